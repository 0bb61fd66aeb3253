"""Gangs on nodes that are away: they end with their leases, and until then nobody knows whether they run."""

from collections.abc import Collection, Iterable

from gavel.types import Cluster, JobId, RoundPlan


def gangs_away(plans: Iterable[RoundPlan], cluster: Cluster, over: Collection[int]) -> frozenset[tuple[JobId, int]]:
    """Return the gangs (job, generation) that may run on workers that are not there now.

    That is until their round, which may end later than their lease, is one of those that are `over`. What a service
    before this one was told of those nodes is of no use: only the plans are stored.
    """
    there = {worker.id for worker in cluster.workers}
    leases = (lease for plan in plans if plan.round_index not in over for lease in plan.leases)
    return frozenset((lease.job_id, lease.generation) for lease in leases if not there.issuperset(lease.worker_ids))
