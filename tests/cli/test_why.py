"""Why and what if on the command line, in this process against a real server."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from gavel.cli import app, show
from gavel.types import Expected, JobState, Prediction, Scope
from tests.api.conftest import NOW_S, Service, service
from tests.api.rounds import a_record

__all__ = ["service"]

Run = Callable[..., str]
BODY = {"argv": ["x"], "total_steps": 1000, "tier": "gold", "throughputs": {"fast": 10.0, "slow": 5.0}}


@pytest.fixture(scope="module")
def waiting(service: Service) -> str:
    """A job that has half of the fast workers' time, and none of it yet."""
    job_id = str(service.operator().post("/v1/jobs", json=BODY).json()["id"])
    record = a_record([], {job_id: [0.5, 0.0]})
    service.change(round=replace(record, problem=replace(record.problem, now_s=NOW_S)))
    return job_id


@pytest.fixture
def gavel(service: Service, waiting: str) -> Iterator[Run]:
    env = {"GAVEL_URL": service.url, "GAVEL_TOKEN": service.token("operator", Scope.OPERATOR), "COLUMNS": "80"}

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, arguments, env=env)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    yield run


def test_explain_says_why_where_and_when(gavel: Run, waiting: str) -> None:
    output = " ".join(gavel("job", "explain", waiting).split())
    assert output.startswith(
        "fast has 2 of 2 workers free; the next round gives them away. You are next in gold; it starts"
    )
    assert "what helps" in output and "target" not in output and "in about" in output
    assert gavel("job", "show", waiting).split()[:3] == ["fast", "has", "2"], "the same sentence first"
    output = gavel("job", "explain", waiting, "--numbers")
    assert "BehindFairShare" in output and "fast: 0 of 2 leased" in output and "target" in output
    assert "nine in ten" in output
    answer = json.loads(gavel("job", "explain", waiting, "--json"))
    assert answer["position"] == 1 and answer["est_finish_at_s"] > NOW_S


@pytest.mark.full
def test_a_preview_keeps_the_rules_that_no_option_names(gavel: Run, service: Service) -> None:
    before = service.store.tiers()
    output = gavel("tier", "preview", "gold", "--weight", "3")
    assert "gold" in output and "silver" in output and "WOULD BE" in output and "%" in output
    assert service.store.tiers() == before


@pytest.mark.full
def test_a_what_if_tries_all_that_its_options_name(gavel: Run, waiting: str) -> None:
    options = ("--policy", "fifo", "--weight", "gold=3", "--add", "fast:2:3", "--kind", "mlp-b256", "--steps", "50")
    answer: dict[str, Any] = json.loads(gavel("what-if", *options, "--tier", "gold", "--json"))
    assert answer["policy_after"] == "fifo" and answer["capacity_after"]["fast"] == 8
    assert {job["job_id"] for job in answer["jobs"]} == {waiting, "what-if"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--weight", "gold"), "give TIER=WEIGHT"),
        (("--weight", "lead=2"), "there is no tier lead"),
        (("--add", "fast"), "give TYPE:WORKERS"),
        (("--add", "fast:x"), "give TYPE:WORKERS"),
        (("--steps", "5"), "needs --kind and --steps"),
    ],
)
def test_a_what_if_that_cannot_be_read_says_what_would_do(gavel: Run, options: tuple[str, ...], why: str) -> None:
    assert why in gavel("what-if", *options, code=2)


def test_calibration_says_how_good_predictions_were(gavel: Run, service: Service) -> None:
    assert "no job that was predicted has completed yet" in gavel("calibration")
    ended = str(service.operator().post("/v1/jobs", json=BODY).json()["id"])
    finish = Expected(at_s=NOW_S + 100, low_s=NOW_S + 50, high_s=NOW_S + 200)
    service.change(predictions=(Prediction(job_id=ended, made_at_s=NOW_S, finish=finish),))
    job = replace(service.store.job(ended), state=JobState.COMPLETED, steps_done=1000)
    service.change(replace(job, started_at_s=NOW_S + 1, finished_at_s=NOW_S + 120))
    output = gavel("calibration")
    assert "100% (should: 90%)" in output and "20.0 s" in output


def test_a_submission_is_answered_in_sentences(gavel: Run) -> None:
    output = gavel("job", "submit", "--steps", "5", "--tier", "gold", "--name", "mine", "--", "true")
    assert "(mine)" in output and "The next round takes the job into account; it starts in about" in " ".join(
        output.split()
    )
    assert "gavel job logs -f " in output


def test_the_answer_for_a_job_that_failed_ends_with_its_last_lines(gavel: Run, service: Service) -> None:
    job = service.operator().post("/v1/jobs", json=BODY).json()
    stored = replace(service.store.job(job["id"]), state=JobState.FAILED, finished_at_s=NOW_S, log_tail="a\nb\x1b\n")
    service.change(stored)
    job |= service.operator().get(f"/v1/jobs/{job['id']}").json()
    lines = [str(each) for each in show.submitted(job, "Failed at step 0 of 1000.").renderables]
    assert lines == [f"job {job['id']}", "Failed at step 0 of 1000.", "a\nb\\x1b"]
    followed = show.submitted(job, "Failed at step 0 of 1000.", is_log_shown=True).renderables
    assert [str(each) for each in followed] == lines[:2], "--follow has printed them"
    assert "Failed at step 0 of 1000" in gavel("job", "show", job["id"])
