"""What a new user sees first: `gavel --help`, and commands that work before any service runs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.panels import PANELS
from gavel.policies.registry import available


def test_help_lists_every_command_under_a_heading() -> None:
    output = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout
    assert " Commands " not in output  # the heading of those that have none
    places = [output.index(f" {panel} ") for panel in PANELS]
    assert places == sorted(places)


def test_policies_are_listed_where_no_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(app, ["policy", "list", "--json"], env={"GAVEL_URL": "", "GAVEL_POLICY": "makespan"})
    answer = json.loads(listed.stdout)
    assert [each["name"] for each in answer["items"]] == [each.name for each in available()]
    assert answer["current"] == "makespan"
