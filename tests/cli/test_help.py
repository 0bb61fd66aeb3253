"""What a new user meets first: `gavel --help`, and what works before any service runs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.panels import PANELS
from gavel.policies.registry import available


def test_help_lists_every_command_under_a_heading() -> None:
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout
    assert " Commands " not in said  # the heading of those that have none
    places = [said.index(f" {panel} ") for panel in PANELS]
    assert places == sorted(places)


def test_policies_are_listed_where_no_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(app, ["policies", "--json"], env={"GAVEL_URL": "", "GAVEL_POLICY": "makespan"})
    answer = json.loads(listed.stdout)
    assert [each["name"] for each in answer["items"]] == [each.name for each in available()]
    assert answer["current"] == "makespan"
