"""Two sessions on the same accelerators: one that waits joins one that runs, if both let another onto theirs.

Each keeps its gang, its end and its lease to the end; only the two are a pair, as two packed jobs are. A session is not
measured, so nobody knows how fast the two are together: both have said that they do not mind.
"""

from collections.abc import Sequence
from dataclasses import replace

from gavel.mechanism.cluster.feasibility import overfull, used_by
from gavel.mechanism.jobs.index import is_schedulable, order_key
from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.mechanism.jobs.reservations import claim_of, outlasted, sharing
from gavel.mechanism.planning.reserved_types import claimed_later
from gavel.mechanism.tick import Tick
from gavel.types import Job, JobState, Lease, Needs, Reason, RoundPlan, WorkerId

MAY_JOIN_THOUGH = Reason.NON_PREEMPTIBLE_LIMIT  # a limit that leaves no whole workers may leave half of some


def with_sessions_that_join(
    tick: Tick, parent: RoundPlan | None, kept: Sequence[Lease], *, round_duration_s: float
) -> tuple[Lease, ...]:
    """Return the leases that stay, with those of sessions that join one of them, the longest waiting first.

    A session joins one whose gang has as many workers, on a type that it may have and with enough memory, cores and
    memory of nodes for both. The limits for jobs that may not be preempted hold for half of the workers.
    """
    leases = list(kept)
    for job in sorted(_waiting(tick, kept), key=order_key):
        partner = next((each for each in leases if _may_share(tick, each, job)), None)
        if partner is None or not _has_room(tick, job, partner, leases, round_duration_s):
            continue
        both = (partner.job_id, job.id)
        before = next((each for each in (parent.leases if parent else ()) if each.job_id == job.id), None)
        generation = generation_beside(job, before, partner.worker_ids)
        joined = replace(partner, job_id=job.id, generation=generation, plan=job.spec.plan)
        leases = [replace(each, combination=both) if each is partner else each for each in leases]
        leases.append(replace(joined, combination=both))
    return tuple(leases)


def shares(job: Job) -> bool:
    """Return whether the job is a session that lets another one onto its accelerators."""
    return job.spec.is_interactive and job.spec.accelerator_share < 1 and not job.spec.topology_label


def _waiting(tick: Tick, kept: Sequence[Lease]) -> list[Job]:
    has_lease = {lease.job_id for lease in kept}
    sessions = [job for job in tick.index.non_preemptible.values() if shares(job) and job.id not in has_lease]
    return [job for job in sessions if job.state is JobState.QUEUED and _is_served(tick, job)]


def _is_served(tick: Tick, job: Job) -> bool:
    hold = tick.held.get(job.id)
    return (hold is None or hold[0] is MAY_JOIN_THOUGH) and is_schedulable(job, tick.now_s)


def _may_share(tick: Tick, lease: Lease, job: Job) -> bool:
    """Whether the gang of the lease is alone on its workers, lets another there, and both fit into the accelerators."""
    other = tick.jobs[lease.job_id]
    is_alone = lease.combination == (lease.job_id,) and shares(other)
    if not is_alone or len(lease.worker_ids) != job.spec.scale_factor:
        return False
    return both_fit(tick, lease.worker_ids, job.spec.needs, other.spec.needs.colocated_with(job.spec.needs))


def both_fit(tick: Tick, worker_ids: Sequence[WorkerId], needs: Needs, both: Needs) -> bool:
    """Return whether a gang with `needs` may run on these workers, which are open and have the memory for `both`."""
    workers = [each for each in tick.usable.workers if each.id in set(worker_ids)]  # of nodes that are open
    names = {each.node for each in workers}
    nodes = [each for each in tick.usable.nodes if each.name in names]
    is_open = len(workers) == len(worker_ids)
    return is_open and all(map(both.allows_worker, workers)) and all(map(needs.allows_node, nodes))


def nodes_have_room(tick: Tick, worker_ids: Sequence[WorkerId], needs: Needs, leases: Sequence[Lease]) -> bool:
    """Return whether the nodes of these workers have cores and memory for one more gang there, beside the `leases`."""
    held = [(lease.worker_ids, tick.jobs[lease.job_id].spec.needs) for lease in leases]
    together: list[tuple[tuple[str, ...], Needs]] = [*held, (tuple(worker_ids), needs)]
    node_of = {worker.id: worker.node for worker in tick.seen.cluster.workers}
    names = {node_of[worker] for worker in worker_ids}
    return not any(overfull(tick.seen.cluster, used_by(together, node_of), names))


def _has_room(tick: Tick, job: Job, partner: Lease, leases: Sequence[Lease], round_duration_s: float) -> bool:
    """Whether cores and memory of the nodes, the tiers' limits and the reservations leave room for both."""
    if not nodes_have_room(tick, partner.worker_ids, job.spec.needs, leases):
        return False
    name = partner.accelerator_type
    is_within = name in _room(tick, partner, leases).types(job.spec.tier, job.spec.scale_factor / 2, [name])
    return is_within and _is_in_nobodys_way(tick, job, partner, leases, round_duration_s)


def _room(tick: Tick, partner: Lease, leases: Sequence[Lease]) -> Room:
    """What the limits leave where the partner holds half of its workers only."""
    room = Room(tick.snapshot.tiers, tick.seen.cluster.capacity_workers())
    for lease in leases:
        spec = tick.jobs[lease.job_id].spec
        workers = len(lease.worker_ids) / (2 if len(lease.combination) > 1 or lease is partner else 1)
        if not spec.preemptible:
            room.take(spec.tier, workers, [lease.accelerator_type])
    return room


def _is_in_nobodys_way(tick: Tick, job: Job, partner: Lease, leases: Sequence[Lease], round_duration_s: float) -> bool:
    """Whether no reservation needs the workers before the end of the one of the two that ends last."""
    plan = RoundPlan(
        round_index=0,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=0.0,
        leases=tuple(leases),
        policy="",
        allocation_digest="",
    )
    held = {lease.job_id: (lease.accelerator_type,) for lease in leases}
    both = (job, tick.jobs[partner.job_id])
    left_out = outlasted(sharing([plan], held.keys()), tick.jobs).union(each.id for each in both)
    calendar = claimed_later(tick, held, left_out=left_out, round_duration_s=round_duration_s)
    types = (partner.accelerator_type,)
    claims = [claim_of(each, types, tick.now_s, round_duration_s=round_duration_s) for each in both]
    return bool(calendar.types_later(max(claims, key=lambda each: each.ends_at_s)))


def generation_beside(job: Job, before: Lease | None, worker_ids: Sequence[WorkerId]) -> int:
    """Return the generation of a gang on workers that another gang is on: that of the round `before`, in which it was
    there or is about to start there; else a new one.
    """
    newest = max(job.generation, before.generation if before else 0)
    is_same = before is not None and (before.worker_ids, before.generation) == (tuple(worker_ids), newest)
    is_live = newest > job.generation or job.state is JobState.LEASED
    return newest if is_same and is_live else newest + 1
