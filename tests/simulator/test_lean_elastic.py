"""The lean simulation chooses the sizes and plans of elastic jobs as the driver does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.mechanism.planning import sizes
from gavel.simulator.outcome import Scenario
from gavel.types.execution_plans import ExecutionPlan
from tests.simulator.test_lean import a_cluster_of_nodes, a_scenario, a_trace_job, assert_same
from tests.simulator.test_simulation import FULL
from workloads.traces.job import TraceJob

SPEEDS = {"steep": {"fast": 4.0, "slow": 1.0}, "flat": {"fast": 1.0, "slow": 1.1}}
RATES = {
    (f"{kind}{plan}", size, name): rate * 1.00371 * size**power
    for kind, rates in SPEEDS.items()
    for plan, power in (("", 0.8), ("[data=1]", 0.7), ("[tensor=2]", 0.85))
    for size in (1, 2, 4)
    for name, rate in rates.items()
    if (plan, size) != ("[tensor=2]", 1)
}
RATES["flat", 4, "slow"] = 0.0
PLANS = {"data=1": (1, 2, 4), "tensor=2": (2, 4)}


def a_job(index: int, kind: str, steps: int, at_s: float, choice: str) -> TraceJob:
    """A rigid job of one worker, one with three sizes, or one with two plans as well."""
    weight = 1.0 + 0.0137 * index  # no two jobs are equal
    if choice == "rigid":
        return a_trace_job(index, kind, steps, at_s, weight=weight)
    elastic: dict[str, Any] = {"sizes": (1, 2, 4), "global_batch": 64, "weight": weight}
    if choice == "sizes":
        return a_trace_job(index, kind, steps, at_s, **elastic)
    plans = tuple(ExecutionPlan(name=name, kind=f"{kind}[{name}]", sizes=sizes) for name, sizes in PLANS.items())
    return a_trace_job(index, f"{kind}[data=1]", steps, at_s, **elastic, plans=plans, plan="data=1")


def a_world(policy: str, **over: Any) -> Scenario:
    scenario = a_scenario(a_cluster_of_nodes(fast=4, slow=4), policy, **over)
    return replace(scenario, throughput=RATES, switch_cost_s={"": 0.0})


@pytest.fixture(autouse=True, scope="module")
def unmeasured() -> Iterator[None]:
    """A driver that has measured no restart yet takes it to cost nothing, as it does here, and as the scenario says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "UNMEASURED_PART", 0.0)
        yield


@pytest.mark.small("{}")
@pytest.mark.parametrize("over", [{}, {"backfill": True}, {"solve_on": "event"}], ids=str)
@settings(max_examples=60 if FULL else 6, phases=(Phase.explicit, Phase.generate))
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from(["steep", "flat"]),
            st.integers(1, 600),
            st.integers(0, 90),
            st.sampled_from(["rigid", "sizes", "plans"]),
        ),
        min_size=1,
        max_size=7,
    ),
    policy=st.sampled_from(["rank_weighted_speed", "fifo", "equal_share"]),
)
def test_it_plans_the_rounds_that_the_driver_plans(
    over: dict[str, Any], drawn: list[tuple[str, int, int, str]], policy: str
) -> None:
    arrivals = sorted(drawn, key=lambda job: job[2])
    jobs = [a_job(i, kind, steps, float(at_s), choice) for i, (kind, steps, at_s, choice) in enumerate(arrivals)]
    assert_same(jobs, a_world(policy, **over))
