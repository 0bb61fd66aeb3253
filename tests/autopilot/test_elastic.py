"""Simulations of the autopilot change sizes and plans of elastic jobs as rounds do, and count lengths in their best."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gavel.autopilot.course import course_of
from gavel.autopilot.decision import decide, verify
from gavel.autopilot.futures import drawn
from gavel.autopilot.rollout import Situation
from gavel.autopilot.stored import pack, unpack
from gavel.cli import app
from gavel.simulator.active import Active
from gavel.simulator.lean import LeanWorld, simulate
from gavel.simulator.outcome import Scenario
from gavel.simulator.world_state import WorldState
from tests.autopilot.test_decision import a_flight, a_question, flown
from tests.autopilot.test_rollout import certain, course
from tests.simulator.test_lean import RUNNER, a_cluster_of_nodes
from tests.simulator.test_lean_elastic import RATES, a_job, a_world
from workloads.traces.history import Surroundings, lines_of
from workloads.traces.job import TraceJob

CHOICES = ("sizes", "rigid", "plans")
JOBS = [a_job(i, "steep" if i % 2 else "flat", 60 + 97 * (i * 7 % 5), 11.0 * i, CHOICES[i % 3]) for i in range(12)]


def a_scenario(policy: str = "fifo") -> Scenario:
    return replace(a_world(policy), is_elastic=True)


def a_state(jobs: list[TraceJob] = JOBS, *, after_s: float = 60.0, policy: str = "fifo") -> WorldState:
    """The state of a run before the first round that starts at `after_s` or later."""
    states: list[WorldState] = []
    world = LeanWorld(jobs, a_scenario(policy), RUNNER)
    for _ in world.rounds(lambda now_s: states.append(world.state(now_s))):
        if states[-1].at_s >= after_s:
            return states[-1]
    raise AssertionError("the run ended before")


def a_situation(state: WorldState) -> Situation:
    return Situation(state=state, scenario=a_scenario(), horizon_s=1e9)


@pytest.mark.parametrize("policy", ["fifo", "rank_weighted_speed"])
def test_a_rollout_of_what_really_happens_ends_jobs_when_they_really_end(policy: str) -> None:
    state = a_state(policy=policy)
    result = course(a_situation(state), policy, certain(state, JOBS[state.jobs_seen :]))
    real = {int(row.id): row for row in simulate(JOBS, a_scenario(policy), runner=RUNNER).rows}
    ended_s = dict(zip(result.indices.tolist(), result.ended_at_s.tolist(), strict=True))
    assert len(ended_s) > 4 and ended_s == {index: pytest.approx(real[index].finished_at_s) for index in ended_s}
    ideal_s = dict(zip(result.indices.tolist(), result.ideal_s.tolist(), strict=True))
    assert ideal_s == {index: pytest.approx(real[index].fastest_s) for index in ended_s}


def test_a_job_alone_grows_in_a_rollout_and_a_rigid_one_does_not() -> None:
    elastic, rigid = a_job(0, "steep", 2000, 0.0, "sizes"), a_job(0, "steep", 2000, 0.0, "rigid")
    grown, kept = (
        course(a_situation(state), "fifo", certain(state, [])).ended_at_s[0]
        for state in (a_state([job], after_s=0.0) for job in (elastic, rigid))
    )
    assert grown == pytest.approx(kept * RATES["steep", 1, "fast"] / RATES["steep", 4, "fast"], rel=0.05)


def test_a_length_is_that_in_the_best_size_whatever_size_is_in_force() -> None:
    """Two states of one job, in its smallest size and in its largest: what it states is as long in both."""
    jobs = [a_job(0, "steep", 5000, 0.0, "sizes")]
    small, large = a_state(jobs, after_s=0.0), a_state(jobs, after_s=30.0)
    assert (small.active.jobs[0].spec.scale_factor, large.active.jobs[0].spec.scale_factor) == (1, 4)
    for state in (small, large):
        assert Active.of(state.active).fastest_rate.tolist() == [RATES["steep", 4, "fast"]]
        future = drawn(state.active, (), now_s=state.at_s, until_s=state.at_s, random=np.random.default_rng(1))
        assert future.ends_at_step == (5000,)


def test_a_question_with_elastic_jobs_is_stored_without_command_lines_and_decided_again() -> None:
    state = a_state()
    hushed = tuple(_with_secret(job) for job in state.active.jobs)
    question = a_question(
        state=replace(state, active=replace(state.active, jobs=hushed)), scenario=a_scenario(), candidates=("fifo",)
    )
    body = pack(question)
    asked = unpack(body)
    assert "hush" not in repr(asked) and asked.scenario.is_elastic
    assert any(len(job.spec.plans) == 2 for job in asked.state.active.jobs)
    assert verify(decide(asked, RUNNER), unpack(pack(asked)), RUNNER) == ()


def _with_secret(job: TraceJob) -> TraceJob:
    plans = tuple(replace(plan, argv=("train", "--key=hush")) for plan in job.spec.plans)
    return replace(job, spec=replace(job.spec, plans=plans))


@pytest.mark.full
def test_a_run_under_the_autopilot_ends_elastic_jobs_and_learns_from_each_epoch() -> None:
    ran = flown(JOBS[:6], a_flight(epoch_s=40.0), a_scenario())
    assert len(ran.decisions) >= 2 and len(list(ran.result().rows)) == 6
    for decision, question in zip(ran.decisions, ran.questions, strict=True):
        assert verify(decision, question, RUNNER) == ()
    (first, *_), taught = ran.decisions, ran.epochs[0]
    assert taught.replayed[first.chosen] == pytest.approx(taught.real, rel=0.02), "the same rounds, replayed"


def test_the_isolated_time_of_a_job_that_is_left_is_that_over_all_sizes() -> None:
    """Three jobs alike in two sizes: an equal share is worth the same to each."""
    state = a_state([a_job(i, "steep", 5000, 0.0, "sizes") for i in range(3)])
    assert len({job.spec.scale_factor for job in state.active.jobs}) > 1
    left = course_of((), state.active, a_scenario(), from_s=0.0, until_s=state.at_s)
    speed = 2 / 3 * RATES["steep", 2, "fast"] + 1 / 3 * RATES["steep", 4, "slow"]  # a third of each type, all the time
    assert left.isolated_s.tolist() == [pytest.approx(5000 / speed)] * 3


def test_histories_of_elastic_jobs_are_flown_and_searched(tmp_path: Path) -> None:
    trace = tmp_path / "history.jsonl"
    spoken = [replace(job, steps_per_s=_by_size(job)) for job in JOBS if not job.spec.plans]
    trace.write_text("".join(lines_of(spoken, Surroundings(cluster=a_cluster_of_nodes(fast=4, slow=4)))))
    common = ["--trace", str(trace), "--round", "10"]
    command = ["simulate", *common, "--autopilot", "--candidate", "fifo", "--candidate", "shortest_job_first"]
    ran = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert ran.exit_code == 0 and "regret" in ran.output, ran.output
    refused = CliRunner().invoke(app, ["simulate", *common, "--length-error", "1"], env={"COLUMNS": "200"})
    assert refused.exit_code != 0 and "elastic jobs or execution plans; leave it out" in refused.output


def _by_size(job: TraceJob) -> dict[int, dict[str, float]]:
    sizes = job.spec.sizes or (1,)
    return {size: {name: RATES[job.spec.kind, size, name] for name in ("fast", "slow")} for size in sizes}
