"""What must hold of every plan and allocation, checked in production: named functions that raise InvariantViolated."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from gavel.errors import InvariantViolated
from gavel.types import Allocation, Cluster, Job, JobId, RoundPlan

TOLERANCE = 1e-6


def check_plan(plan: RoundPlan, *, cluster: Cluster, jobs: Mapping[JobId, Job], parent: RoundPlan | None) -> None:
    """Raises InvariantViolated if the plan breaks any invariant of leases, workers, tokens or rounds."""
    one_lease_per_worker(plan)
    whole_gangs_of_one_type(plan, cluster, jobs)
    tokens_grow(plan, jobs, parent)
    rounds_increase(plan, parent)


def one_lease_per_worker(plan: RoundPlan) -> None:
    """I1: a worker holds at most one lease, a job at most one."""
    workers = Counter(worker for lease in plan.leases for worker in lease.worker_ids)
    jobs = Counter(lease.job_id for lease in plan.leases)
    twice = [name for name, count in (workers + jobs).items() if count > 1]
    if twice:
        raise InvariantViolated("one_lease_per_worker", f"round {plan.round_index} leases {', '.join(twice)} twice")


def whole_gangs_of_one_type(plan: RoundPlan, cluster: Cluster, jobs: Mapping[JobId, Job]) -> None:
    """I2: a lease has exactly scale-factor existing workers, all of its accelerator type."""
    type_of = {worker.id: worker.accelerator_type for worker in cluster.workers}
    for lease in plan.leases:
        types = [type_of.get(worker) for worker in lease.worker_ids]
        if len(types) != jobs[lease.job_id].spec.scale_factor or set(types) != {lease.accelerator_type}:
            raise InvariantViolated("whole_gangs_of_one_type", f"job {lease.job_id} got {lease.worker_ids} of {types}")


def tokens_grow(plan: RoundPlan, jobs: Mapping[JobId, Job], parent: RoundPlan | None) -> None:
    """I5: a lease's token is the job's, or larger; a lease on other workers than before has a larger one."""
    before = {lease.job_id: lease for lease in parent.leases} if parent else {}
    for lease in plan.leases:
        old = before.get(lease.job_id)
        moved = old is not None and old.token == lease.token and old.worker_ids != lease.worker_ids
        if lease.token < max(1, jobs[lease.job_id].token) or moved:
            raise InvariantViolated("tokens_grow", f"job {lease.job_id} was given token {lease.token} again")


def rounds_increase(plan: RoundPlan, parent: RoundPlan | None) -> None:
    """I8: rounds strictly increase, parent = previous, and time does not go back."""
    index = parent.round_index if parent else 0
    early = parent is not None and plan.starts_at_s < parent.starts_at_s
    if plan.parent_round_index != index or plan.round_index != index + 1 or early:
        raise InvariantViolated("rounds_increase", f"round {plan.round_index} cannot follow round {index}")


def check_allocation(allocation: Allocation) -> None:
    """I9: fractions are finite and in [0, 1], rows sum to at most 1."""
    x = allocation.time_fraction
    if x.size and not (np.isfinite(x).all() and x.min() >= -TOLERANCE and x.sum(axis=1).max() <= 1 + TOLERANCE):
        raise InvariantViolated("allocation_is_fractions", f"policy {allocation.policy} gave {x!r}")
