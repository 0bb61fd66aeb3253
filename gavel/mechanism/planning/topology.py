"""Gangs that stay in one zone, or another place that a label of nodes names: on which nodes they may be now."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.tick import Tick
from gavel.types import Job, JobId, JobSpec, JobState, Lease, WorkerId

Places = Mapping[str, str]
"""Node -> its value of a label; nodes without it are left out."""


def keep_in_one_place(tick: Tick) -> None:
    """Leave each job with a `topology_label` the nodes of one value of it: that of its gang, else the best one now.

    The best is where most of the workers that it needs are free, then where most can be used, of the values where its
    whole gang fits.
    """
    labelled = [job for job in tick.wanting if job.spec.topology_label]
    if not labelled:
        return
    leases, held = _leases(tick), _held(tick)
    feasibility = Feasibility(tick.usable)
    after = {job.id: _in_place(tick, job, _place(tick, job, leases.get(job.id), held, feasibility)) for job in labelled}
    tick.wanting = [after.get(job.id, job) for job in tick.wanting]


def fits_in_one_place(spec: JobSpec, feasibility: Feasibility) -> bool:
    """Return whether some value of the job's label has room for its whole gang; True for a job without a label."""
    if not spec.topology_label:
        return True
    values = {node.labels.get(spec.topology_label) for node in feasibility.cluster.nodes} - {None}
    return any(feasibility.types_of(_at(spec, value)) for value in values if value)


def _in_place(tick: Tick, job: Job, value: str | None) -> Job:
    return job if value is None else replace(job, spec=_at(job.spec, value))


def _at(spec: JobSpec, value: str) -> JobSpec:
    return replace(spec, node_labels={**spec.node_labels, spec.topology_label: value})


def _place(
    tick: Tick, job: Job, lease: Lease | None, held: Mapping[WorkerId, JobId], feasibility: Feasibility
) -> str | None:
    """The value of the label for the job; None if no node has it."""
    places = {
        node.name: value for node in tick.seen.cluster.nodes if (value := node.labels.get(job.spec.topology_label))
    }
    if not places:
        return None
    node_of = {worker.id: worker.node for worker in tick.seen.cluster.workers}
    there = {places.get(node_of.get(worker, ""), "") for worker in lease.worker_ids} if lease else set()
    if len(there) == 1 and "" not in there:
        return there.pop()
    usable, free = _counts(tick, job, places, held)
    fitting = [value for value in sorted({*places.values()}) if feasibility.types_of(_at(job.spec, value))]
    size = job.spec.scale_factor
    return max(fitting or sorted({*places.values()}), key=lambda value: (min(size, free[value]), usable[value]))


def _counts(
    tick: Tick, job: Job, places: Places, held: Mapping[WorkerId, JobId]
) -> tuple[Counter[str], dict[str, int]]:
    """How many workers that the job may have can be used in each place, and how many of one type are free there."""
    usable, free = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for worker in tick.usable.workers:
        if (value := places.get(worker.node)) and job.spec.needs.allows_worker(worker):
            usable[value] += 1
            free[value][worker.accelerator_type] += held.get(worker.id, job.id) == job.id
    return usable, defaultdict(int, {value: max(counts.values(), default=0) for value, counts in free.items()})


def _leases(tick: Tick) -> dict[JobId, Lease]:
    """The lease of each gang that is there, or is planned and has yet to start."""
    leases: dict[JobId, Lease] = {}
    for lease in (each for plan in tick.round_plans for each in plan.leases if each.expires_at_s > tick.now_s):
        job = tick.jobs.get(lease.job_id)
        runs = job is not None and job.state is JobState.LEASED and job.generation == lease.generation
        if job is not None and (runs or lease.generation > job.generation):
            leases[job.id] = lease
    return leases


def _held(tick: Tick) -> dict[WorkerId, JobId]:
    """Who holds each worker of the newest round."""
    plans = tick.round_plans[-1:]
    return {worker: lease.job_id for plan in plans for lease in plan.leases for worker in lease.worker_ids}
