"""Gangs on nodes that are away may run until their round is over: nothing else of their jobs starts until then."""

from dataclasses import replace

import pytest

from gavel.mechanism.cluster.away import CLOCK_MARGIN_S, gangs_away
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
OVER_S = 10.0 + GRACE_S + CLOCK_MARGIN_S


def test_a_gang_is_away_until_its_round_and_the_grace_after_it_are_over() -> None:
    key = {("j1", 1)}
    assert gangs_away(PLANS, ONE, OVER_S - 0.1, lease_grace_s=GRACE_S) == key
    assert gangs_away(PLANS, ONE, OVER_S, lease_grace_s=GRACE_S) == set()
    assert gangs_away(PLANS, BOTH, OVER_S - 0.1, lease_grace_s=GRACE_S) == set()
    cut = a_plan(1, a_lease(1, "n0-0", 4.0))  # an amended plan ends leases whose gang has ended
    assert gangs_away((cut,), ONE, OVER_S - 0.1, lease_grace_s=GRACE_S) == key


@pytest.mark.parametrize(
    ("cluster", "now_s", "starts"),
    [(ONE, OVER_S - 0.1, False), (ONE, OVER_S, True), (BOTH, OVER_S - 0.1, True)],
)
def test_a_job_that_lost_its_gang_starts_when_that_cannot_run_any_more(
    cluster: Cluster, now_s: float, starts: bool
) -> None:
    """The service that learned of the loss may have ended since: only the store tells its successor."""
    job = replace(a_job(), id="j1", state=JobState.QUEUED, generation=1)
    seen = Observation(observed_at_s=now_s, cluster=cluster)
    actions = reconcile(PLANS, {"j1": job}, seen, lease_grace_s=GRACE_S)
    assert bool(actions.launches) is starts
