"""The invariants of every plan and allocation, checked in production: functions that raise InvariantViolated."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import numpy as np

from gavel.errors import InvariantViolated
from gavel.mechanism.cluster.feasibility import overfull, used_by
from gavel.types import NO_NEEDS, Allocation, Cluster, Job, JobId, Lease, Node, RoundPlan

TOLERANCE = 1e-6


def check_plan(
    plan: RoundPlan,
    *,
    cluster: Cluster,
    jobs: Mapping[JobId, Job],
    parent: RoundPlan | None,
    now_s: float | None = None,
) -> None:
    """Raise InvariantViolated if the plan breaks any invariant of leases, workers, generations or rounds.

    `now_s`: when it is checked, by default its start. A lease that has ended by then is history: its job and workers
    may be gone.
    """
    ended_s = plan.starts_at_s if now_s is None else now_s
    live = [lease for lease in plan.leases if lease.expires_at_s > ended_s]
    one_combination_per_worker(plan)
    one_lease_per_job(plan)
    pairs_share_their_workers(plan)
    whole_gangs_of_one_type(live, cluster, jobs)
    plans_hold(live, jobs)
    generations_grow(live, jobs, parent)
    rounds_increase(plan, parent)


def one_combination_per_worker(plan: RoundPlan) -> None:
    """I1: at any instant a worker holds one combination at most, a job or a packed pair."""
    held: dict[str, list[Lease]] = defaultdict(list)
    for lease in plan.leases:
        for worker in lease.worker_ids:
            held[worker].append(lease)
    for worker, one, other in _at_once(held, plan):
        if one.combination != other.combination:
            gangs = f"{one.job_id} and to {other.job_id}"
            raise InvariantViolated(
                "one_combination_per_worker", f"round {plan.round_index} leases {worker} to {gangs} at once"
            )


def one_lease_per_job(plan: RoundPlan) -> None:
    """I4: at any instant a job holds one lease at most."""
    held: dict[str, list[Lease]] = defaultdict(list)
    for lease in plan.leases:
        held[lease.job_id].append(lease)
    for job_id, _, _ in _at_once(held, plan):
        raise InvariantViolated("one_lease_per_job", f"round {plan.round_index} leases to job {job_id} twice at once")


def pairs_share_their_workers(plan: RoundPlan) -> None:
    """I2: a lease's combination holds its job, and at most one other, whose gang is leased the very same workers."""
    where = {(lease.job_id, lease.combination): lease.worker_ids for lease in plan.leases}
    for lease in plan.leases:
        members = lease.combination
        if members == (lease.job_id,):
            continue
        together = {where.get((job_id, members)) for job_id in members}
        if lease.job_id not in members or len(set(members)) != 2 or len(together) > 1:
            raise InvariantViolated(
                "pairs_share_their_workers", f"job {lease.job_id} got {lease.worker_ids} beside {members}"
            )


def whole_gangs_of_one_type(leases: Iterable[Lease], cluster: Cluster, jobs: Mapping[JobId, Job]) -> None:
    """I2: a lease has as many existing workers as a gang of its job may have, all of its accelerator type."""
    type_of = {worker.id: worker.accelerator_type for worker in cluster.workers}
    for lease in leases:
        types = [type_of.get(worker) for worker in dict.fromkeys(lease.worker_ids)]
        job = jobs.get(lease.job_id)
        if job is None or len(types) not in job.spec.possible_sizes or set(types) != {lease.accelerator_type}:
            raise InvariantViolated("whole_gangs_of_one_type", f"job {lease.job_id} got {lease.worker_ids} of {types}")


def plans_hold(leases: Iterable[Lease], jobs: Mapping[JobId, Job]) -> None:
    """I11: the gang of a job with execution plans runs under one of these, which holds at its size."""
    for lease in leases:
        job = jobs.get(lease.job_id)
        if job is None or not (job.spec.plans or lease.plan):
            continue
        plan = next((each for each in job.spec.plans if each.name == lease.plan), None)
        if plan is None or len(lease.worker_ids) not in plan.sizes:
            raise InvariantViolated(
                "plans_hold", f"job {lease.job_id} got plan {lease.plan!r} for {len(lease.worker_ids)} workers"
            )


def needs_are_met(given: Iterable[Lease], leases: Iterable[Lease], cluster: Cluster, jobs: Mapping[JobId, Job]) -> None:
    """I10: leases that are `given` now are where their jobs may run, and no node that they are on is beyond its cores
    or memory by the needs of all `leases` that hold together.
    """
    leases, given = list(leases), list(given)
    needs = {lease.job_id: jobs[lease.job_id].spec.needs for lease in leases if lease.job_id in jobs}
    if all(each == NO_NEEDS for each in needs.values()):
        return
    nodes, workers = {each.name: each for each in cluster.nodes}, {each.id: each for each in cluster.workers}
    for lease in given:
        for worker in (workers[each] for each in lease.worker_ids):
            node = nodes.get(worker.node, Node(name=worker.node))
            if not (needs[lease.job_id].allows_worker(worker) and needs[lease.job_id].allows_node(node)):
                raise InvariantViolated(
                    "needs_are_met", f"job {lease.job_id} may not run on {worker.id} of {node.name}"
                )
    busy = {workers[each].node for lease in given for each in lease.worker_ids}
    node_of = {each.id: each.node for each in cluster.workers}
    held = [(lease.worker_ids, needs[lease.job_id]) for lease in leases if lease.job_id in needs]
    if name := next(overfull(cluster, used_by(held, node_of), busy), None):
        raise InvariantViolated("needs_are_met", f"gangs on node {name} need more cores or memory than it has")


def generations_grow(leases: Iterable[Lease], jobs: Mapping[JobId, Job], parent: RoundPlan | None) -> None:
    """I5: a lease's generation is the job's, or larger; one on other workers or under another plan has a larger one."""
    before = {lease.job_id: lease for lease in parent.leases} if parent else {}
    for lease in leases:
        old = before.get(lease.job_id)
        is_same = old is None or (old.worker_ids, old.plan) == (lease.worker_ids, lease.plan)
        moved = old is not None and old.generation == lease.generation and not is_same
        if lease.generation < max(1, jobs[lease.job_id].generation) or moved:
            raise InvariantViolated(
                "generations_grow", f"job {lease.job_id} was given generation {lease.generation} again"
            )


def rounds_increase(plan: RoundPlan, parent: RoundPlan | None) -> None:
    """I8: rounds strictly increase, parent = previous, and time does not go back."""
    index = parent.round_index if parent else 0
    early = parent is not None and plan.starts_at_s < parent.starts_at_s
    if plan.parent_round_index != index or plan.round_index != index + 1 or early:
        raise InvariantViolated("rounds_increase", f"round {plan.round_index} cannot follow round {index}")


def check_allocation(allocation: Allocation) -> None:
    """I9: fractions are finite and in [0, 1]; no job's, alone and packed, sum to more than 1."""
    x = allocation.time_fraction
    if x.size and not (np.isfinite(x).all() and x.min() >= -TOLERANCE and _most_time(allocation) <= 1 + TOLERANCE):
        raise InvariantViolated("allocation_is_fractions", f"policy {allocation.policy} gave {x!r}")


def _most_time(allocation: Allocation) -> float:
    rows = allocation.time_fraction.sum(axis=1)
    if all(len(members) == 1 for members in allocation.combinations):
        return float(rows.max())
    of_job: dict[JobId, float] = defaultdict(float)
    for members, fraction in zip(allocation.combinations, rows.tolist(), strict=True):
        for job_id in members:
            of_job[job_id] += fraction
    return max(of_job.values())


def _at_once(held: Mapping[str, list[Lease]], plan: RoundPlan) -> Iterator[tuple[str, Lease, Lease]]:
    """(name, two of the leases held under it that overlap in time)."""
    for name, leases in held.items():
        for one, other in combinations(leases, 2):
            latest = max(_starts_at_s(one, plan), _starts_at_s(other, plan))
            if latest < min(one.expires_at_s, other.expires_at_s):
                yield name, one, other


def _starts_at_s(lease: Lease, plan: RoundPlan) -> float:
    return plan.starts_at_s if lease.starts_at_s is None else lease.starts_at_s
