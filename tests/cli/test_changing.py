"""What `gavel job set` takes, and that it changes what it says."""

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gavel.cli import app
from gavel.cli.submit_options import rate_of
from tests.api.conftest import Service, service
from tests.api.test_services import SERVICE

__all__ = ["service"]


@pytest.mark.parametrize(
    ("text", "rate"), [(None, None), ("40", 40), ("2.5", 2.5), ('{"V100": 40, "K80": 9}', {"V100": 40, "K80": 9})]
)
def test_a_rate_is_a_number_or_one_for_each_type(text: str | None, rate: Any) -> None:
    assert rate_of(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "V100=40", "[1]", '"40"', "null"])
def test_another_text_is_no_rate(text: str) -> None:
    with pytest.raises(typer.Exit):
        rate_of(text)


def test_numbers_of_a_service_are_changed_and_something_has_to_be(service: Service) -> None:
    name, ann = service.user()
    body = {"argv": ["serve"], "mode": "service", "service": SERVICE | {"demand": 5, "rate": 1}}
    job_id = ann.post("/v1/jobs", json=body).json()["id"]
    given = ["--url", service.url, "--token", service.token(name), "job", "set", job_id]
    options = [
        "--rate",
        "4",
        "--headroom",
        "0",
        "--replicas-min",
        "0",
        "--replicas-max",
        "7",
        "--demand",
        "9",
        "--json",
    ]
    changed = json.loads(CliRunner().invoke(app, [*given, *options]).stdout)["service"]
    assert (changed["demand"]["rates"], changed["demand"]["headroom"], changed["demand"]["stated"]) == ({"": 4}, 0, 9)
    assert (changed["replicas_min"], changed["replicas_max"]) == (0, 7)
    changed = json.loads(CliRunner().invoke(app, [*given, "--json", "--", "serve", "2"]).stdout)
    assert (changed["argv"], changed["service"]["version"]) == (["serve", "2"], 2)
    nothing = CliRunner().invoke(app, given)
    assert (nothing.exit_code, "say what to change" in nothing.output) == (2, True)
