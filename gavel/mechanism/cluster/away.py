"""Gangs on nodes that are away: they end with their leases, and until then nobody knows whether they run."""

from collections.abc import Iterable

from gavel.types import Cluster, JobId, RoundPlan

CLOCK_MARGIN_S = 1.0  # seconds by which the clock of a node may be late at the end of a lease


def gangs_away(
    plans: Iterable[RoundPlan], cluster: Cluster, now_s: float, *, lease_grace_s: float
) -> frozenset[tuple[JobId, int]]:
    """Return the gangs (job, generation) that may run on workers that are not there now.

    That is until their round is over, which may be later than their lease, and for the grace of `lease_grace_s` seconds
    after it. What a service before this one was told of those nodes is of no use: only the plans are stored.
    """
    there = {worker.id for worker in cluster.workers}
    leases = (
        lease for plan in plans if plan.ends_at_s + lease_grace_s + CLOCK_MARGIN_S > now_s for lease in plan.leases
    )
    return frozenset((lease.job_id, lease.generation) for lease in leases if not there.issuperset(lease.worker_ids))
