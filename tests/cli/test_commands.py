"""Commands that tests/test_cli.py does not run, in this process against a real server with a scheduler's thread."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app
from gavel.types import JobState, Lease, NodeStatus, Operation, OperationState, Scope
from tests.api.conftest import NOW_S, Service, service
from tests.api.rounds import a_record
from tests.api.test_operations import a_scheduler

__all__ = ["service"]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def job_id(service: Service) -> Iterator[str]:
    """A job that runs on fast-0, beside one that waits; a scheduler ends each command at once."""
    operator = service.operator()
    body = {"argv": ["x"], "total_steps": 5, "name": "seen", "tier": "gold"}
    submitted, _ = (str(operator.post("/v1/jobs", json=body).json()["id"]) for _ in range(2))
    lease = Lease(
        job_id=submitted,
        generation=1,
        combination=(submitted,),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )
    leased = replace(service.store.job(submitted), state=JobState.LEASED, generation=1)
    service.change(leased, round=a_record([lease], {submitted: (0.75, 0.25)}), nodes=(NodeStatus(name="node-0"),))

    def obey(command: Operation) -> Operation:
        return replace(command, state=OperationState.DONE, result={"seen": command.kind}, finished_at_s=NOW_S)

    with a_scheduler(service, obey):
        yield submitted


@pytest.fixture
def gavel(service: Service, job_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command as an operator; its output, or the words of its refusal."""
    monkeypatch.chdir(tmp_path)
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR), "COLUMNS": "160"}

    def run(*arguments: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, arguments, env=env)
        assert done.exit_code == code, (done.output, done.exception)
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return run


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("summary", ["hierarchical", "1 of 6 busy", "gold"]),
        ("queue", ["seen", "gold", "QUEUED"]),
        ("placements", ["fast-0", "seen", "gold"]),
        ("shares", ["gold", "17%", "▂"]),
        ("round show 1", ["hierarchical", "→fast-0"]),
        ("tier show gold", ["gold", "fairness", "50%"]),
        ("node show node-0", ["node-0", "ready"]),
        ("catalogue", ["KIND"]),
        ("allocations --group", ["0.75", "0.25", "gold"]),
        ("resource list", ["NAME"]),
        ("health", ["ok"]),
        ("top --once", ["gavel top", "fast", "seen", "QUEUED"]),
    ],
)
def test_a_view_comes_for_people_and_as_json(gavel: Run, command: str, shown: list[str]) -> None:
    text = gavel(*command.split())
    assert [part for part in shown if part not in text] == []
    assert gavel(*command.split(), "--json") is not None


def test_what_prometheus_reads_is_printed(gavel: Run) -> None:
    assert "# TYPE gavel_" in gavel("metrics")


def test_a_token_is_made_listed_and_taken_back(gavel: Run) -> None:
    gavel("user", "set", "zoe", "--tier", "gold")
    assert "zoe" in gavel("user", "show", "zoe")
    made = gavel("token", "create", "zoe").strip()
    (held,) = gavel("token", "list", "zoe", "--json")
    assert held["scope"] == "user" and made not in gavel("token", "list", "zoe")
    assert gavel("token", "revoke", "zoe", held["id"], "--json") == []
    assert gavel("token", "list", "zoe", "--json") == []


def test_the_policy_is_switched_and_the_operation_can_be_looked_up(gavel: Run) -> None:
    asked = gavel("policy", "set", "max_min_fairness", "--json")
    assert (asked["kind"], asked["state"]) == ("policy.switch", "done")
    assert "policy.switch" in gavel("operation", "show", asked["id"])
    assert "done" in gavel("policy", "set", "--reset")
    assert gavel("policy", "set", code=2) == "" and gavel("policy", "set", "fifo", "--reset", code=2) == ""


def test_resources_are_set_and_deleted_one_by_one_and_together(gavel: Run, tmp_path: Path) -> None:
    assert gavel("resource", "set", "lb", "--node", "node-0", "--json")["kind"] == "resources.set"
    assert "resources.set" in gavel("resource", "delete", "lb")
    (tmp_path / "names.json").write_text(json.dumps([{"name": "lb", "capacity": 1, "nodes": ["node-0"]}]))
    assert "done" in gavel("resource", "apply", "names.json")
    assert gavel("resource", "set", "lb", code=2) == "" and gavel("resource", "apply", "none.json", code=2) == ""


@pytest.mark.parametrize("form", ["list", "lines"])
def test_a_file_of_jobs_is_submitted_whole(gavel: Run, tmp_path: Path, form: str) -> None:
    jobs = [{"argv": ["x"], "total_steps": 5, "name": f"{form}-{n}", "tier": "gold"} for n in range(3)]
    text = json.dumps(jobs) if form == "list" else "\n".join(map(json.dumps, jobs))
    (tmp_path / "jobs.json").write_text(text)
    assert [job["name"] for job in gavel("job", "submit-batch", "jobs.json", "--json")] == [job["name"] for job in jobs]


@pytest.mark.parametrize("text", ["[", "{]", ""])
def test_a_file_that_holds_no_jobs_is_refused(gavel: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    if text:
        assert gavel("job", "submit-batch", "jobs.json", code=2) == ""
    assert gavel("job", "submit-batch", "missing.json", code=2) == ""
