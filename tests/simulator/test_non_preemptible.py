"""Jobs that may not be moved: the fast simulation keeps their gangs where they are, as the driver does."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.simulator.lean import simulate
from gavel.types import Cluster
from tests.simulator.test_lean import (
    BESIDE,
    PACKED,
    PUBLISHED,
    a_cluster_of_nodes,
    a_scenario,
    a_trace_job,
    assert_same,
)
from tests.simulator.test_needs import a_mixed_cluster

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"

drawn_jobs = st.lists(
    st.tuples(
        st.sampled_from(["steep", "flat"]),
        st.integers(1, 300),
        st.integers(0, 90),
        st.fixed_dictionaries(
            {
                "size": st.sampled_from([1, 1, 1, 2]),
                "preemptible": st.booleans(),
                "cpu_cores": st.sampled_from([1, 1, 3]),
                "memory_bytes": st.sampled_from([0, 20]),
            }
        ),
    ),
    min_size=2,
    max_size=9,
)
SMALL = a_cluster_of_nodes(per_node=2, fast=2, slow=1)  # full of gangs that stay, it has no worker to share
CLUSTERS = {"with cores and memory": a_mixed_cluster(), "small": SMALL}
POLICIES = ["fifo", "least_attained_service?queues=continuous", "dominant_resource_fairness?among=users"]
RULES = [{}, {"backfill": True}, {"backfill": True, "solve_on": "event"}, PUBLISHED]


@pytest.mark.small("small")
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=list(CLUSTERS))
@settings(max_examples=150 if FULL else 12, phases=(Phase.explicit, Phase.generate))
@given(drawn=drawn_jobs, over=st.sampled_from(RULES), policy=st.sampled_from(POLICIES), cost_s=st.sampled_from([0, 7]))
def test_it_plans_the_rounds_that_the_driver_plans(
    cluster: Cluster, drawn: list[Any], over: dict[str, Any], policy: str, cost_s: int
) -> None:
    jobs = [
        a_trace_job(index, kind, steps, float(at_s), **needs)
        for index, (kind, steps, at_s, needs) in enumerate(sorted(drawn, key=lambda job: job[2]))
    ]
    scenario = a_scenario(cluster, policy, price_moves=False, **over)
    cost_s = 0 if scenario.settings.backfill else cost_s  # the driver fills gaps by costs that it has to measure
    assert_same(jobs, replace(scenario, switch_cost_s={"": cost_s * 1.00371}) if cost_s else scenario)


@pytest.mark.full
@settings(max_examples=150 if FULL else 12, phases=(Phase.explicit, Phase.generate))
@given(drawn=drawn_jobs, over=st.sampled_from([{}, {"solve_on": "event"}, {"backfill": True}]))
def test_it_keeps_those_that_share_workers_as_the_driver_does(drawn: list[Any], over: dict[str, Any]) -> None:
    jobs = [
        a_trace_job(index, kind, steps, float(at_s), **needs | {"cpu_cores": 1, "memory_bytes": 0})
        for index, (kind, steps, at_s, needs) in enumerate(sorted(drawn, key=lambda job: job[2]))
    ]
    scenario = a_scenario(a_cluster_of_nodes(fast=2, slow=2), PACKED, space_sharing=True, **over)
    assert_same(jobs, replace(scenario, colocated=BESIDE))


def test_a_gang_that_may_not_be_moved_keeps_its_workers_whoever_comes() -> None:
    first, second = (a_trace_job(i, "steep", 400, 12.0 * i, preemptible=bool(i), weight=1.0 + 99 * i) for i in range(2))
    outcome = simulate([first, second], a_scenario(a_cluster_of_nodes(fast=1), "max_min_fairness"))
    ends_s = [row.finished_at_s for row in outcome.rows]
    assert ends_s[0] is not None and ends_s[1] is not None and ends_s[0] < ends_s[1]
    assert [row.preemptions for row in outcome.rows] == [0, 0]
