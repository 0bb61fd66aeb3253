"""Weights of the priority rule: searched on one part of a history, proved on another, or honestly not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gavel.autopilot import goals
from gavel.autopilot.search import FIXED, Proof, rule_of, searched
from gavel.cli import app
from gavel.errors import InvalidRequest
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.policies.weighted_priority import FEATURES, RULES
from tests.builders import a_cluster
from tests.conftest import IS_FULL
from tests.simulator.test_lean import a_scenario, a_trace_job
from workloads.traces.job import TraceJob

GOAL = goals.read("mean_slowdown")
ROUND_S, TRIALS, COMMAND_ROUND_S = (10.0, 12, "60") if IS_FULL else (60.0, 4, "300")
SCENARIO = replace(
    a_scenario(a_cluster(a100=2), "hierarchical", round_duration_s=ROUND_S), throughput={("k", 1, "a100"): 1.0}
)


def a_history(count: int = 20) -> list[TraceJob]:
    """Short jobs that would wait behind a long one now and then."""
    return [a_trace_job(place, "k", 900 if place % 5 == 0 else 40 + place, 60.0 * place) for place in range(count)]


def searched_in(jobs: list[TraceJob], **over: Any) -> Proof:
    fixed = ("fifo", "shortest_job_first", "smallest_gang_first")
    return searched(jobs, SCENARIO, GOAL, InlineRunner(), **{"trials": TRIALS, "seed": 3, "fixed": fixed, **over})


@given(st.lists(st.floats(-2, 2), min_size=len(FEATURES), max_size=len(FEATURES)))
def test_the_text_of_a_rule_is_that_of_a_policy_with_exactly_these_weights(weights: list[float]) -> None:
    text = rule_of(weights)
    assert registry.canonical(text) == text
    assert [getattr(registry.load(text), name) for name in FEATURES] == [round(each, 2) for each in weights]


def test_the_same_search_has_the_same_proof_and_the_rule_is_no_worse_than_its_well_known_points() -> None:
    proof = searched_in(a_history())
    assert proof == searched_in(a_history())
    assert (proof.searched_jobs, proof.proved_jobs) == (12, 8)
    orders = [name for name in proof.searched if name in RULES]
    assert orders and all(proof.searched[proof.rule] <= proof.searched[name] + 1e-9 for name in orders)


@pytest.mark.full
def test_the_search_does_not_see_the_jobs_that_prove_it() -> None:
    """Other jobs in the last part: another proof, but the same rule and the same costs on the first part."""
    jobs = a_history()
    lengths = [900, 700, 40, 800, 30, 600, 50, 20]
    later = [
        replace(job, spec=replace(job.spec, total_steps=each)) for job, each in zip(jobs[12:], lengths, strict=True)
    ]
    one, other = searched_in(jobs), searched_in([*jobs[:12], *later])
    assert (one.rule, one.searched) == (other.rule, other.searched) and one.proved != other.proved


def a_proof(rule: float, best: float) -> Proof:
    return Proof(
        goal="mean_jct", rule="weighted_priority?age=1", seed=0, trials=1, searched_jobs=1, proved_jobs=1,
        searched={}, proved={"fifo": 1.0, "shortest_job_first": best, "weighted_priority?age=1": rule},
    )  # fmt: skip


@pytest.mark.parametrize(("rule", "is_proved"), [(0.90, False), (0.88, False), (0.87, True)])
def test_a_rule_is_proved_by_a_margin_over_the_best_fixed_policy_of_the_last_part(rule: float, is_proved: bool) -> None:
    proof = a_proof(rule, 0.9)
    assert (proof.best_fixed, proof.is_proved) == ("shortest_job_first", is_proved)


def test_a_short_history_and_a_goal_with_limits_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="a search needs 20 at least"):
        searched_in(a_history(19))
    limited = goals.read("mean_jct,longest_wait_s<=60")
    with pytest.raises(InvalidRequest, match="knows no limits"):
        searched(a_history(), SCENARIO, limited, InlineRunner(), trials=12, seed=0)


def test_the_command_prints_weights_figures_and_what_to_do(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    lines = [f"{60 * place},{900 if place % 5 == 0 else 40 + place},1" for place in range(20)]
    trace.write_text("submit_time_s,duration_s,num_gpus\n" + "\n".join(lines) + "\n")
    command = ["search-priority", "--trace", str(trace), "--cluster", "a100:2", "--round", COMMAND_ROUND_S]
    command += ["--trials", "12"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "cost on the 12 jobs searched, on the 8 after them" in shown.output
    assert "proved: " in shown.output.splitlines()[-1] and "the best fixed policy there" in shown.output
    record = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert record["best_fixed"] in record["proved"] and {registry.canonical(each) for each in FIXED} < set(
        record["proved"]
    )
    refused = CliRunner().invoke(app, [*command, "--measure", "0:9"])
    assert refused.exit_code == 2 and "needs 20 at least" in " ".join(refused.output.split())
