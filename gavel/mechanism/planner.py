"""From an allocation to a round's leases: profiling first, then by priority, then whoever can use what is left."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gavel.mechanism.placement import Layout, place
from gavel.mechanism.priority import accrue, claims_owed, claims_published, fastest_first, shuffled
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    FloatArray,
    IntArray,
    Job,
    JobId,
    JobState,
    Lease,
    RoundPlan,
    WorkerId,
)

Planner = Literal["owed", "published", "published_shuffled"]
Ledger = Mapping[tuple[JobId, AcceleratorType], float]
"""What a planner keeps from round to round: `owed`: rounds owed; `published`: rounds received since the last solve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """What a plan is made from. `jobs` in order of arrival; `to_profile`: (job, type) pairs nobody has measured yet."""

    jobs: Sequence[Job]
    cluster: Cluster
    problem: AllocationProblem
    allocation: Allocation
    owed_rounds: Ledger
    parent: RoundPlan | None
    starts_at_s: float
    duration_s: float
    to_profile: Sequence[tuple[JobId, AcceleratorType]] = ()
    profiling_workers_fraction: float = 0.5
    planner: Planner = "owed"
    is_new_allocation: bool = True
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where n jobs on m accelerator types stand when a round's gangs are chosen; rows in order of arrival.

    `profiling`: (row, column) pairs that go first, already within their budget. `fastest_first`: the types' columns in
    that order, where the caller knows it already.
    """

    rates: FloatArray  # (n, m) steps/s, 0 where the job cannot run
    scale_factor: IntArray  # (n,)
    capacity_workers: IntArray  # (m,)
    promised: FloatArray  # (n, m) time fractions of the allocation
    ledger: FloatArray  # (n, m) rounds, see Ledger
    kept: IntArray  # (n,) column of the type held in the round before, -1: none
    round_index: int
    planner: Planner = "owed"
    is_new_allocation: bool = True
    profiling: Sequence[tuple[int, int]] = ()
    fastest_first: Sequence[int] | None = None


@dataclass(slots=True)
class _Choice:
    """The gangs chosen so far; the only thing that choosing changes."""

    free: list[int]
    sizes: list[int]
    of_row: dict[int, int] = field(default_factory=dict)

    def take(self, row: int, column: int) -> bool:
        """Choose the whole gang, if it still fits and its job has nothing yet."""
        size = self.sizes[row]
        if self.free[column] < size or row in self.of_row:
            return False
        self.of_row[row] = column
        self.free[column] -= size
        return True


def plan_round(view: RoundView) -> tuple[RoundPlan, dict[tuple[JobId, AcceleratorType], float]]:
    """The round's plan, and the planner's ledger after it. Whole gangs of one type only; work conserving."""
    types, jobs = view.problem.accelerator_types, view.jobs
    before = {lease.job_id: lease for lease in view.parent.leases} if view.parent else {}
    index = view.parent.round_index if view.parent else 0
    column_of = {name: column for column, name in enumerate(types)}
    # 1. which gangs, each on which type
    kept = [column_of.get(before[job.id].accelerator_type, -1) if job.id in before else -1 for job in jobs]
    profiling = _profiling(view)
    chosen, ledger = choose(
        Standing(
            rates=view.problem.throughput_steps_per_s[:, 0],
            scale_factor=view.problem.scale_factor,
            capacity_workers=view.problem.capacity_workers,
            promised=time_per_job(view.allocation, view.problem),
            ledger=_rows_of(view.owed_rounds, view.problem),
            kept=np.array(kept, dtype=np.int64),
            round_index=index + 1,
            planner=view.planner,
            is_new_allocation=view.is_new_allocation,
            profiling=profiling,
        )
    )
    # 2. which workers
    gangs = [(row, types[column], jobs[row].spec.scale_factor) for row, column in chosen.items()]
    held = {row: before[job.id].worker_ids for row, job in enumerate(jobs) if job.id in before}
    placed = place(gangs, view.layout or Layout(view.cluster), held)
    # 3. leases: a gang that stays keeps its token, any other gets the next
    profiled = {row for row, column in profiling if chosen.get(row) == column}
    leases = tuple(
        Lease(
            job_id=jobs[row].id,
            token=_token(jobs[row], before.get(jobs[row].id), workers),
            combination=(jobs[row].id,),
            accelerator_type=types[chosen[row]],
            worker_ids=workers,
            round_index=index + 1,
            expires_at_s=view.starts_at_s + view.duration_s,
            is_profiling=row in profiled,
        )
        for row, workers in sorted(placed.items())
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
    return plan, _ledger_of(ledger, view.problem)


def choose(standing: Standing) -> tuple[dict[int, int], FloatArray]:
    """Column of the type of each row that gets a gang, and the ledger (n, m) after the round."""
    choice = _Choice(standing.capacity_workers.tolist(), standing.scale_factor.tolist())
    usable = standing.rates > 0
    # 1. kinds nobody has measured
    for row, column in standing.profiling:
        choice.take(row, column)
    # 2. by priority, 3. work conserving
    if standing.planner == "owed":
        return _choose_owed(standing, choice, usable)
    columns = list(standing.fastest_first or fastest_first(standing.rates))
    if standing.planner == "published_shuffled":
        columns = shuffled(columns, standing.round_index)
    received = np.zeros_like(standing.ledger) if standing.is_new_allocation else standing.ledger.copy()
    for column, rows in claims_published(standing.promised, received, usable, columns):
        for row in rows:
            if not choice.free[column]:
                break
            choice.take(row, column)
    received[list(choice.of_row), list(choice.of_row.values())] += 1.0
    return choice.of_row, received


def _choose_owed(
    standing: Standing, choice: _Choice, usable: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> tuple[dict[int, int], FloatArray]:
    owed = accrue(standing.ledger, standing.promised)
    for row, column in claims_owed(owed, usable, standing.kept):
        choice.take(row, column)
    _fill(choice, standing.rates)
    # every round given is a round less owed; a round nobody promised is not held against the job
    rows, columns = list(choice.of_row), list(choice.of_row.values())
    owed[rows, columns] -= owed[rows, columns] > 0
    return choice.of_row, owed


def _fill(choice: _Choice, rates: FloatArray) -> None:
    """What is left goes to waiting jobs in order of arrival, each on its fastest free type."""
    if not any(choice.free):
        return
    waiting = [row for row in range(len(rates)) if row not in choice.of_row]
    preference = np.argsort(-rates[waiting], axis=1, kind="stable").tolist()
    for row, columns in zip(waiting, preference, strict=True):
        for column in columns:
            if rates[row, column] > 0 and choice.take(row, column):
                break


def digest(allocation: Allocation) -> str:
    """Short fingerprint of an allocation's fractions."""
    content = repr(allocation.combinations).encode() + np.round(allocation.time_fraction, 9).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


def time_per_job(allocation: Allocation, problem: AllocationProblem) -> FloatArray:
    """Time fractions (jobs, types), summed over the combinations that a job is in."""
    fractions = allocation.time_fraction
    if all(members == (row,) for row, members in enumerate(problem.combinations)):
        return fractions
    summed = np.zeros((len(problem.job_ids), fractions.shape[1]))
    for row, members in enumerate(problem.combinations):
        summed[list(members)] += fractions[row]
    return summed


def _rows_of(ledger: Ledger, problem: AllocationProblem) -> FloatArray:
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    column_of = {name: column for column, name in enumerate(problem.accelerator_types)}
    rows = np.zeros((len(row_of), len(column_of)))
    for (job_id, name), rounds in ledger.items():
        if job_id in row_of and name in column_of:
            rows[row_of[job_id], column_of[name]] = rounds
    return rows


def _ledger_of(rows: FloatArray, problem: AllocationProblem) -> dict[tuple[JobId, AcceleratorType], float]:
    entries = zip(*np.nonzero(rows), strict=True)
    return {
        (problem.job_ids[row], problem.accelerator_types[column]): float(rows[row, column]) for row, column in entries
    }


def _profiling(view: RoundView) -> list[tuple[int, int]]:
    """Who may profile this round: each unmeasured (kind, scale factor, type) once, at least one gang a type."""
    types = view.problem.accelerator_types
    capacity = dict(zip(types, view.problem.capacity_workers.tolist(), strict=True))
    choice = _Choice(list(capacity.values()), view.problem.scale_factor.tolist())
    budget = {name: view.profiling_workers_fraction * count for name, count in capacity.items()}
    row_of = {job.id: row for row, job in enumerate(view.jobs)}
    started: set[tuple[str, int, AcceleratorType]] = set()
    for job_id, name in view.to_profile:
        spec = view.jobs[row_of[job_id]].spec
        what = (spec.kind, spec.scale_factor, name)
        affordable = budget[name] >= min(spec.scale_factor, view.profiling_workers_fraction)
        if affordable and what not in started and choice.take(row_of[job_id], types.index(name)):
            budget[name] -= spec.scale_factor
            started.add(what)
    return list(choice.of_row.items())


def _token(job: Job, before: Lease | None, workers: tuple[WorkerId, ...]) -> int:
    """The same token only for a gang that is still held, or about to be, on the same workers."""
    if before and before.worker_ids == workers and before.token >= job.token and not _is_over(job, before):
        return before.token
    return max(job.token, before.token if before else 0) + 1


def _is_over(job: Job, before: Lease) -> bool:
    return job.token == before.token and job.state is not JobState.LEASED
