"""A simulation that goes on from the state of another one plans the same rounds; settings may change on the way."""

import pickle
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.simulator.lean import LeanWorld, simulate
from gavel.simulator.outcome import Scenario
from gavel.simulator.world_state import WorldState
from tests.simulator.test_lean import BESIDE, PACKED, RUNNER, a_cluster_of_nodes, a_scenario, a_trace_job, trace_jobs
from tests.simulator.test_simulation import FULL
from workloads.traces.job import TraceJob

Plans = list[tuple[float, dict[int, tuple[str, tuple[str, ...]]]]]
CLUSTER = a_cluster_of_nodes(fast=4, slow=4)
POLICIES = ["shortest_job_first", "max_min_fairness", "finish_time_fairness"]


def in_order(drawn: list[tuple[str, int, int, int]]) -> list[TraceJob]:
    jobs = [a_trace_job(i, kind, steps, float(at_s), size) for i, (kind, steps, at_s, size) in enumerate(drawn)]
    return sorted(jobs, key=lambda job: job.submitted_at_s)


def with_states(jobs: list[TraceJob], scenario: Scenario) -> tuple[Plans, list[WorldState], dict[str, float | None]]:
    """The plans of a whole run, the state before each of its rounds, and when each job ended."""
    world, states = LeanWorld(jobs, scenario, RUNNER), list[WorldState]()
    plans = [(plan[0], world.named(plan)) for plan in world.rounds(lambda now_s: states.append(world.state(now_s)))]
    return plans, states, {row.name: row.finished_at_s for row in world.result().rows}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cost_s", [0.0, 3.0])
@settings(max_examples=40 if FULL else 4, phases=(Phase.explicit, Phase.generate))
@given(drawn=trace_jobs, part=st.floats(0, 1))
def test_a_run_that_goes_on_from_a_state_is_the_rest_of_the_whole_run(
    policy: str, cost_s: float, drawn: list[tuple[str, int, int, int]], part: float
) -> None:
    jobs = in_order(drawn)
    scenario = a_scenario(CLUSTER, policy)
    scenario = Scenario(
        cluster=CLUSTER, throughput=scenario.throughput, settings=scenario.settings, switch_cost_s={"": cost_s}
    )
    plans, states, ends = with_states(jobs, scenario)
    at = min(int(part * len(states)), len(states) - 1)
    state: WorldState = pickle.loads(pickle.dumps(states[at]))
    rest = LeanWorld(jobs[state.jobs_seen :], scenario, RUNNER, state)
    assert [(plan[0], rest.named(plan)) for plan in rest.rounds()] == plans[at:]
    assert {row.name: row.finished_at_s for row in rest.result().rows}.items() <= ends.items()


def test_a_state_is_a_copy_that_a_run_from_it_does_not_change() -> None:
    jobs = [a_trace_job(0, "steep", 500), a_trace_job(1, "flat", 300)]
    scenario = a_scenario(CLUSTER, "fifo")
    _, states, _ = with_states(jobs, scenario)
    before = states[3].active.numbers.copy()
    for _ in LeanWorld([], scenario, RUNNER, states[3]).rounds():
        pass
    assert (states[3].active.numbers == before).all()


def test_a_run_follows_other_settings_from_the_next_round_on() -> None:
    """1. A long job and short ones on one worker, first come, first served: the long one would go first.

    2. Shortest first from the second round on: the short ones end before it. 3. Rounds are shorter from then on.
    """
    jobs = [a_trace_job(0, "steep", 400), *(a_trace_job(i, "steep", 20) for i in range(1, 4))]
    scenario = a_scenario(a_cluster_of_nodes(fast=1), "fifo")
    world = LeanWorld(jobs, scenario, RUNNER)
    starts = []
    for number, (start_s, _) in enumerate(world.rounds()):
        starts.append(start_s)
        if number == 0:
            changes = {"policy": "shortest_job_first", "round_duration_s": 5.0}
            world.follow(scenario.settings.model_copy(update=changes))
    ends = {row.name: row.finished_at_s or 0.0 for row in world.result().rows}
    fifo = {row.name: row.finished_at_s or 0.0 for row in simulate(jobs, scenario, runner=RUNNER).rows}
    assert max(fifo, key=lambda name: fifo[name]) != "job-0"
    assert max(ends, key=lambda name: ends[name]) == "job-0"
    assert min(after - before for before, after in pairwise(starts[2:])) <= 5.0


@pytest.mark.parametrize("is_packed", [True, False])
def test_jobs_share_workers_only_while_the_settings_say_so(is_packed: bool) -> None:
    jobs = [a_trace_job(i, "flat", 40) for i in range(3)]
    scenario = a_scenario(a_cluster_of_nodes(fast=1), PACKED, space_sharing=is_packed)
    scenario = Scenario(
        cluster=scenario.cluster, throughput=scenario.throughput, settings=scenario.settings, colocated=BESIDE
    )
    world = LeanWorld(jobs, scenario, RUNNER)
    assert any(len(gangs) > 1 for _, gangs in world.rounds()) == is_packed
