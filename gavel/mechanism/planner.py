"""From an allocation to a round's leases: profiling first, then what is owed, then whoever can use what is left."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.mechanism.placement import place
from gavel.mechanism.priority import Owed, accrue, claims
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    Job,
    JobId,
    JobState,
    Lease,
    RoundPlan,
    WorkerId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """What a plan is made from. `jobs` in order of arrival; `to_profile`: (job, type) pairs nobody has measured yet."""

    jobs: Sequence[Job]
    cluster: Cluster
    problem: AllocationProblem
    allocation: Allocation
    owed_rounds: Owed
    parent: RoundPlan | None
    starts_at_s: float
    duration_s: float
    to_profile: Sequence[tuple[JobId, AcceleratorType]] = ()
    profiling_workers_fraction: float = 0.5


@dataclass(slots=True)
class _Choice:
    """The gangs chosen so far; the only thing that planning changes."""

    free: dict[AcceleratorType, int]
    of_job: dict[JobId, tuple[AcceleratorType, int]] = field(default_factory=dict)

    def take(self, job: Job, accelerator_type: AcceleratorType) -> bool:
        """Choose the whole gang, if it still fits and its job has nothing yet."""
        size = job.spec.scale_factor
        if job.id in self.of_job or self.free.get(accelerator_type, 0) < size:
            return False
        self.of_job[job.id] = (accelerator_type, size)
        self.free[accelerator_type] -= size
        return True


def plan_round(view: RoundView) -> tuple[RoundPlan, dict[tuple[JobId, AcceleratorType], float]]:
    """The round's plan, and the rounds owed after it. Whole gangs of one type only; work conserving."""
    jobs = {job.id: job for job in view.jobs}
    before = {lease.job_id: lease for lease in view.parent.leases} if view.parent else {}
    kept = {job_id: lease.accelerator_type for job_id, lease in before.items()}
    owed = accrue(view.owed_rounds, view.allocation, jobs)
    choice = _Choice(view.cluster.capacity_workers())
    # 1. kinds nobody has measured get one round on each type, within a budget of workers
    profiled = _choose_profiling(choice, view, jobs)
    # 2. the rounds that the allocation owes, largest debt first
    for claim in claims(owed, kept):
        if _can_run(view, claim.job_id, claim.accelerator_type):
            choice.take(jobs[claim.job_id], claim.accelerator_type)
    # 3. work conserving: what is left goes to waiting jobs in order of arrival, each on its fastest free type
    _fill(choice, view)
    # 4. every round given is a round less owed; a round nobody promised is not held against the job
    for job_id, (accelerator_type, _) in choice.of_job.items():
        key = (job_id, accelerator_type)
        if owed.get(key, 0.0) > 0:
            owed[key] -= 1.0
    # 5. workers, then leases: a gang that stays keeps its token, any other gets the next
    placed = place(choice.of_job, view.cluster, {job_id: lease.worker_ids for job_id, lease in before.items()})
    index = view.parent.round_index if view.parent else 0
    leases = tuple(
        Lease(
            job_id=job_id,
            token=_token(jobs[job_id], before.get(job_id), workers),
            combination=(job_id,),
            accelerator_type=choice.of_job[job_id][0],
            worker_ids=workers,
            round_index=index + 1,
            expires_at_s=view.starts_at_s + view.duration_s,
            is_profiling=job_id in profiled,
        )
        for job_id, workers in sorted(placed.items())
    )
    plan = RoundPlan(
        round_index=index + 1,
        parent_round_index=index,
        starts_at_s=view.starts_at_s,
        duration_s=view.duration_s,
        leases=leases,
        policy=view.allocation.policy,
        allocation_digest=digest(view.allocation),
    )
    return plan, owed


def digest(allocation: Allocation) -> str:
    """Short fingerprint of an allocation's fractions."""
    content = repr(allocation.combinations).encode() + np.round(allocation.time_fraction, 9).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _choose_profiling(choice: _Choice, view: RoundView, jobs: Mapping[JobId, Job]) -> set[JobId]:
    """Jobs that profile this round: each unmeasured (kind, scale factor, type) once, at least one gang a type."""
    budget = {name: view.profiling_workers_fraction * count for name, count in choice.free.items()}
    started: set[tuple[str, int, AcceleratorType]] = set()
    profiled: set[JobId] = set()
    for job_id, accelerator_type in view.to_profile:
        spec = jobs[job_id].spec
        what = (spec.kind, spec.scale_factor, accelerator_type)
        affordable = budget[accelerator_type] >= min(spec.scale_factor, view.profiling_workers_fraction)
        if affordable and what not in started and choice.take(jobs[job_id], accelerator_type):
            budget[accelerator_type] -= spec.scale_factor
            started.add(what)
            profiled.add(job_id)
    return profiled


def _fill(choice: _Choice, view: RoundView) -> None:
    for row, job in enumerate(view.jobs):
        rates = view.problem.throughput_steps_per_s[row, 0]
        for column in np.argsort(-rates, kind="stable"):
            if rates[column] > 0 and choice.take(job, view.problem.accelerator_types[column]):
                break


def _can_run(view: RoundView, job_id: JobId, accelerator_type: AcceleratorType) -> bool:
    row = view.problem.job_ids.index(job_id)
    column = view.problem.accelerator_types.index(accelerator_type)
    return bool(view.problem.throughput_steps_per_s[row, 0, column] > 0)


def _token(job: Job, before: Lease | None, workers: tuple[WorkerId, ...]) -> int:
    """The same token only for a gang that is still held, or about to be, on the same workers."""
    if before and before.worker_ids == workers and before.token >= job.token and not _is_over(job, before):
        return before.token
    return max(job.token, before.token if before else 0) + 1


def _is_over(job: Job, before: Lease) -> bool:
    return job.token == before.token and job.state is not JobState.LEASED
