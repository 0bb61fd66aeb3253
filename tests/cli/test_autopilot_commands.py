"""`gavel autopilot ..` in this process, against a real server."""

import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.types import Scope
from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.api.conftest import NOW_S, Service, service
from tests.autopilot_history import COMPOSITIONS, keep, three_decisions

__all__ = ["service"]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def gavel(service: Service) -> Iterator[Run]:
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR), "COLUMNS": "100"}

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env=env)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    yield run


def test_before_the_first_decision_status_and_advise_say_so(gavel: Run) -> None:
    assert "The autopilot has made no decision yet." in gavel("autopilot", "status")
    assert "gavel autopilot status" in gavel("autopilot", "advise", code=2)
    assert json.loads(gavel("autopilot", "history", "--json")) == []


def test_a_command_that_sets_nothing_names_the_options(gavel: Run) -> None:
    assert "--mode, --goal, --candidate" in gavel("autopilot", "set", code=2)
    assert "--own-candidates" in gavel("autopilot", "set", "--candidate", "fifo", "--own-candidates", code=2)


@pytest.mark.full
def test_set_and_pin_ask_for_what_their_options_name(gavel: Run, service: Service) -> None:
    asked = ("--mode", "auto", "--goal", "mean_slowdown", "--candidate", "fifo", "--candidate", "equal_share")
    operation = json.loads(gavel("autopilot", "set", *asked, "--epoch", "7200", "--json"))
    body = dict(service.store.operation(operation["id"]).body)
    assert body == {"mode": "auto", "goal": "mean_slowdown", "candidates": ["fifo", "equal_share"], "epoch_s": 7200.0}
    operation = json.loads(gavel("autopilot", "set", "--own-candidates", "--json"))
    assert dict(service.store.operation(operation["id"]).body) == {"candidates": []}
    operation = json.loads(gavel("autopilot", "pin", "fifo/backfill=off", "--json"))
    assert dict(service.store.operation(operation["id"]).body) == {"mode": "pin", "pinned": "fifo/backfill=false"}


def test_status_advise_and_history_show_what_was_decided(gavel: Run, service: Service) -> None:
    keep(service.store, *three_decisions(NOW_S))
    service.change(policy="shortest_job_first", autopilot=AutopilotSetting(mode=AutopilotMode.AUTO))
    output = gavel("autopilot", "status")
    assert output.startswith("shortest_job_first is in force: every other composition is behind")
    assert "REGRET" in output and "+17.6%" in output and "-38.5%" in output
    output = gavel("autopilot", "advise")
    assert all(each in output for each in COMPOSITIONS) and "-20.0%" in output and "8.0%" in output
    output = gavel("autopilot", "history")
    assert output.index("every other") < output.index("it gains 31.0 %"), "newest first"
    whole = gavel("autopilot", "history", "0")
    assert "predicted 0.5, actual 1" in whole and "+31.0%" in whole and "arrivals an hour 0" in whole
    assert json.loads(gavel("autopilot", "history", "0", "--json"))["number"] == 0


def test_the_list_of_policies_marks_the_policy_of_the_composition_in_force(gavel: Run, service: Service) -> None:
    service.change(policy="fifo/backfill=false")
    marked = [line.split()[1] for line in gavel("policy", "list").splitlines() if line.startswith("*")]
    assert marked == ["fifo"]
