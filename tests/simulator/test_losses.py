"""Nodes go away and come back in a lean simulation, as they do where the whole service is simulated."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.cluster.placement import Layout
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.lean import LeanWorld, simulate
from gavel.simulator.losses import Losses
from gavel.simulator.outcome import NodeOutage, Scenario
from tests.simulator.test_lean import RATES, RUNNER, a_cluster_of_nodes, a_scenario, a_trace_job
from tests.simulator.test_simulation import FULL

CLUSTER = a_cluster_of_nodes(fast=2, slow=4)
RATE = RATES["steep", 1, "fast"]


def lost(node: str, from_s: float, until_s: float) -> NodeOutage:
    return NodeOutage(node=node, from_s=from_s, until_s=until_s)


def ends_s(scenario: Scenario, steps: int = 160) -> float:
    (row,) = simulate([a_trace_job(0, "steep", steps)], scenario, runner=RUNNER).rows
    return row.finished_at_s or inf


def test_what_a_gang_did_since_its_last_checkpoint_is_lost_with_its_node() -> None:
    """A job of 40 s on the only node, which goes after 25 s and comes back after 45 s."""
    scenario = a_scenario(a_cluster_of_nodes(fast=1), "fifo")
    outage = replace(scenario, outages=[lost("fast-node-0", 25.0, 45.0)])
    assert ends_s(scenario) == pytest.approx(160 / RATE, abs=0.1)
    assert ends_s(outage) == pytest.approx(45 + 160 / RATE, abs=0.1)
    assert ends_s(replace(outage, checkpoint_period_s=10.0)) == pytest.approx(45 + 160 / RATE - 20, abs=0.5)


@pytest.mark.parametrize("policy", ["fifo", "max_min_fairness", "least_attained_service"])
def test_jobs_end_about_when_they_do_where_the_whole_service_is_simulated(policy: str) -> None:
    jobs = [a_trace_job(i, "steep" if i % 2 else "flat", 60 + 20 * i, at_s=7.0 * i) for i in range(8)]
    outages = [lost("fast-node-0", 31.0, 77.0), lost("slow-node-1", 50.0, 120.0)]
    scenario = replace(a_scenario(CLUSTER, policy), outages=outages)
    lean, whole = (
        [row.jct_s or inf for row in each.result().rows]
        for each in (LeanWorld(jobs, scenario, RUNNER), DrivenWorld(jobs, scenario, RUNNER))
        for _ in [list(each.rounds())]
    )
    assert sum(lean) == pytest.approx(sum(whole), rel=0.1)


def test_overlapping_outages_of_a_node_end_with_the_last_of_them() -> None:
    losses = Losses([lost("slow-node-0", 1.0, 5.0), lost("slow-node-0", 2.0, 9.0)], Layout(CLUSTER))
    assert losses.passed(2.0) and losses.away == {"slow-0", "slow-1"}
    assert losses.passed(5.0) and losses.away == {"slow-0", "slow-1"} and losses.next_s == 9.0
    assert losses.passed(9.0) and not losses.away and not losses.passed(100.0) and losses.next_s == inf


@settings(max_examples=100 if FULL else 12, deadline=None)
@given(
    outages=st.lists(
        st.tuples(st.sampled_from([node.name for node in CLUSTER.nodes]), st.floats(0, 90), st.floats(1, 60)),
        max_size=5,
    ),
    preemptible=st.booleans(),
    backfill=st.booleans(),
)
def test_no_gang_is_on_a_node_that_is_away_and_every_job_ends(
    outages: list[tuple[str, float, float]], preemptible: bool, backfill: bool
) -> None:
    jobs = [a_trace_job(i, "steep", 90, at_s=9.0 * i, size=1 + i % 2, preemptible=preemptible) for i in range(7)]
    every = [lost(node, from_s, from_s + length_s) for node, from_s, length_s in outages]
    world = LeanWorld(jobs, replace(a_scenario(CLUSTER, "fifo", backfill=backfill), outages=every), RUNNER)
    node_of = {worker.id: worker.node for worker in CLUSTER.workers}
    for now_s, placed in world.rounds():
        away = {each.node for each in every if each.from_s <= now_s < each.until_s}
        assert not away & {node_of[worker] for workers in placed.values() for worker in workers}
    assert len(world.result().rows) == len(jobs)
