"""Gangs on nodes that are away may run until their round is over: nothing else of their jobs starts until then."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from gavel.mechanism.cluster.away import gangs_away
from gavel.mechanism.cluster.reconcile import reconcile
from gavel.types import Cluster, JobState, Lease, Observation, RoundPlan
from tests.builders import a_job
from tests.mechanism.world import a_cluster_of_nodes

GRACE_S = 2.0
BOTH = a_cluster_of_nodes(n0="fast", n1="fast")
ONE = Cluster(nodes=BOTH.nodes[1:], workers=BOTH.workers[1:])


def a_lease(generation: int, worker: str, ends_at_s: float) -> Lease:
    return Lease(
        job_id="j1",
        generation=generation,
        combination=("j1",),
        worker_ids=(worker,),
        accelerator_type="fast",
        round_index=1,
        expires_at_s=ends_at_s,
    )


def a_plan(index: int, lease: Lease) -> RoundPlan:
    return RoundPlan(
        round_index=index,
        parent_round_index=index - 1,
        starts_at_s=10.0 * (index - 1),
        duration_s=10.0,
        leases=(lease,),
        policy="test",
        allocation_digest="",
    )


PLANS = (a_plan(1, a_lease(1, "n0-0", 10.0)), a_plan(2, a_lease(2, "n1-0", 20.0)))


def test_a_gang_is_away_until_its_round_is_over() -> None:
    assert gangs_away(PLANS, ONE, over=()) == {("j1", 1)}
    assert gangs_away(PLANS, ONE, over={1}) == set()
    assert gangs_away(PLANS, BOTH, over=()) == set()


@pytest.mark.parametrize(
    ("cluster", "over", "starts"),
    [(ONE, (), False), (ONE, {1}, True), (BOTH, (), True)],
)
def test_a_job_that_lost_its_gang_starts_when_that_cannot_run_any_more(
    cluster: Cluster, over: Collection[int], starts: bool
) -> None:
    """The service that learned of the loss may have ended since: only the store tells its successor."""
    job = replace(a_job(), id="j1", state=JobState.QUEUED, generation=1)
    seen = Observation(observed_at_s=15.0, cluster=cluster)
    actions = reconcile(PLANS, {"j1": job}, seen, lease_grace_s=GRACE_S, over=over)
    assert bool(actions.launches) is starts
