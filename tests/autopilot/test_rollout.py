"""Futures are drawn from a seed; what a composition makes of one is what the simulation makes of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.autopilot.composition import read
from gavel.autopilot.course import Course
from gavel.autopilot.futures import Arrival, Future, drawn
from gavel.autopilot.goals import costs
from gavel.autopilot.rollout import Situation, rolled_out
from gavel.simulator.lean import LeanWorld, simulate
from gavel.simulator.world_state import WorldState
from tests.simulator.test_lean import RUNNER, a_cluster_of_nodes, a_scenario, a_trace_job
from workloads.traces.job import TraceJob

CLUSTER = a_cluster_of_nodes(fast=2, slow=2)
JOBS = [a_trace_job(i, "steep" if i % 2 else "flat", 30 + 37 * (i * 7 % 5), at_s=11.0 * i) for i in range(12)]


def a_state(jobs: list[TraceJob] = JOBS, *, after_s: float = 60.0, policy: str = "fifo", **over: Any) -> WorldState:
    """The state of a run before the first round that starts at `after_s` or later."""
    states: list[WorldState] = []
    world = LeanWorld(jobs, a_scenario(CLUSTER, policy, **over), RUNNER)
    for _ in world.rounds(lambda now_s: states.append(world.state(now_s))):
        if states[-1].at_s >= after_s:
            return states[-1]
    raise AssertionError("the run ended before")


def a_situation(state: WorldState, horizon_s: float = 1e9) -> Situation:
    return Situation(state=state, scenario=a_scenario(CLUSTER, "fifo"), horizon_s=horizon_s)


def certain(state: WorldState, arrivals: list[TraceJob]) -> Future:
    return Future(ends_at_step=tuple(job.total_steps for job in state.active.jobs), arrivals=tuple(arrivals))


def course(situation: Situation, text: str, future: Future) -> Course:
    return rolled_out(situation, read(text, situation.scenario.settings), future, RUNNER)


@pytest.mark.parametrize("policy", ["fifo", "shortest_job_first"])
def test_a_rollout_of_what_really_happens_ends_jobs_when_they_really_end(policy: str) -> None:
    state = a_state(policy=policy)
    result = course(a_situation(state), policy, certain(state, JOBS[state.jobs_seen :]))
    real = {int(row.id): row.finished_at_s for row in simulate(JOBS, a_scenario(CLUSTER, policy), runner=RUNNER).rows}
    assert len(result.indices) > 4
    assert {i: e for i, e in zip(result.indices.tolist(), result.ended_at_s.tolist(), strict=True)} == {
        i: pytest.approx(real[i]) for i in result.indices.tolist()
    }


def test_the_drain_ends_all_jobs_and_costs_what_short_rounds_cost_within_a_little() -> None:
    state = a_state()
    future = certain(state, JOBS[state.jobs_seen :])
    whole = costs(course(a_situation(state), "shortest_job_first", future))
    drained = costs(course(a_situation(state, horizon_s=state.at_s), "shortest_job_first", future))
    assert drained["mean_jct"] == pytest.approx(whole["mean_jct"], rel=0.15)


def test_a_better_order_costs_less() -> None:
    state = a_state()
    future = certain(state, JOBS[state.jobs_seen :])
    short, fifo = (costs(course(a_situation(state), text, future)) for text in ("shortest_job_first", "fifo"))
    assert short["mean_slowdown"] < fifo["mean_slowdown"]


def test_money_is_what_jobs_cost_from_now_on() -> None:
    state = a_state()
    later = course(a_situation(state), "fifo", certain(state, []))
    whole = simulate(JOBS[: state.jobs_seen], a_scenario(CLUSTER, "fifo"), runner=RUNNER)
    cost_usd = {int(row.id): row.cost_usd for row in whole.rows}
    assert 0 < later.cost_usd.sum() < sum(cost_usd[index] for index in later.indices.tolist())


def test_the_longest_wait_is_of_the_job_that_starts_last_after_its_submission() -> None:
    """One worker, two jobs at once: the second waits for the whole first one."""
    jobs = [a_trace_job(0, "steep", 200), a_trace_job(1, "steep", 200)]
    scenario = a_scenario(a_cluster_of_nodes(fast=1), "fifo")
    states: list[WorldState] = []
    world = LeanWorld(jobs, scenario, RUNNER)
    for _ in world.rounds(lambda now_s: states.append(world.state(now_s))):
        break
    of = Situation(state=states[0], scenario=scenario, horizon_s=1e9)
    result = rolled_out(of, read("fifo", scenario.settings), certain(states[0], []), RUNNER)
    first_s = result.ended_at_s.min()
    assert first_s <= result.longest_wait_s < first_s + 20


def a_history(count: int = 30) -> list[Arrival]:
    jobs = [a_trace_job(i, "steep", 100 + i, at_s=20.0 * i) for i in range(count)]
    return [
        Arrival(job=job, s_per_step=0.25, made_steps=job.total_steps if i % 3 else None) for i, job in enumerate(jobs)
    ]


def draw(seed: int, history: list[Arrival], until_s: float = 1000.0) -> Future:
    state = a_state()
    return drawn(state.active, history, now_s=60.0, until_s=until_s, random=np.random.default_rng(seed))


def test_a_seed_gives_the_same_future_and_another_seed_another_one() -> None:
    one, same, other = draw(1, a_history()), draw(1, a_history()), draw(2, a_history())
    assert (one.ends_at_step, one.arrivals) == (same.ends_at_step, same.arrivals)
    assert one.arrivals != other.arrivals


def test_arrivals_come_at_the_rate_of_the_last_ones_until_the_horizon() -> None:
    arrivals = draw(1, a_history(), until_s=60.0 + 20.0 * 50).arrivals
    assert len(arrivals) == pytest.approx(50, abs=2)
    assert all(60.0 < job.submitted_at_s <= 1060.0 for job in arrivals)
    assert list(arrivals) == sorted(arrivals, key=lambda job: job.submitted_at_s)


@pytest.mark.parametrize("history", [[], a_history(1), [replace(each, job=JOBS[0]) for each in a_history(5)]])
def test_nothing_arrives_where_nothing_says_how_often(history: list[Arrival]) -> None:
    assert draw(1, history).arrivals == ()


def test_present_jobs_end_beyond_what_they_have_done() -> None:
    state = a_state()
    history = [replace(each, made_steps=1) for each in a_history()]  # statements are far too long, it seems
    done = [int(each) for each in LeanWorld([], a_scenario(CLUSTER, "fifo"), RUNNER, state)._active.steps_done]
    ends = drawn(state.active, history, now_s=60.0, until_s=60.0, random=np.random.default_rng(1)).ends_at_step
    assert all(end > steps for end, steps in zip(ends, done, strict=True))
