"""From an allocation to a round's leases: which gangs (choice.py), on which workers (placement.py), which tokens."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.mechanism.caps import uncapped
from gavel.mechanism.choice import PROMISED_MIN, Choice, Planner, Standing, choose
from gavel.mechanism.placement import Layout, Workers, place
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    FloatArray,
    Job,
    JobId,
    JobState,
    Lease,
    RoundPlan,
)

__all__ = [
    "Ledger",
    "Planner",
    "RoundView",
    "Standing",
    "choose",
    "digest",
    "gathers",
    "plan_round",
    "stay_rounds",
    "time_per_job",
]

Ledger = Mapping[tuple[JobId, AcceleratorType], float]
"""What a planner keeps from round to round: `owed`: rounds owed; `published`: rounds received since the last solve."""
GATHERING_PAYS_FROM_ROUNDS = 0.1  # a gang over several nodes loses more of a round than this by not moving together


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """What a plan is made from. `jobs` in order of arrival; `to_profile`: (job, type) pairs nobody has measured yet.

    `switch_cost_s`: seconds that a gang of a job kind loses by a move, `""`: of any other kind. A gang that was started
    less than `minimum_run_s` before the round stays; `started_at_s` says when those that run now were.
    """

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
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    minimum_run_s: float = 0.0
    started_at_s: Mapping[JobId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shares:
    """An allocation as the mechanism reads it: each job's time on each type, and which part of it is packed."""

    of_job: FloatArray  # (n, m), alone and packed
    pairs: list[tuple[int, int]]  # rows of the jobs
    of_pair: FloatArray  # (p, m)


def plan_round(view: RoundView) -> tuple[RoundPlan, dict[tuple[JobId, AcceleratorType], float]]:
    """The round's plan, and the planner's ledger after it. Whole gangs of one type only; work conserving.

    A packed pair of the allocation gets two leases on the same workers, both with the pair as their combination.
    """
    before = {lease.job_id: lease for lease in view.parent.leases} if view.parent else {}
    layout = view.layout or Layout(view.cluster)
    # 1. which gangs, each on which type
    standing = _standing(view, before, layout)
    chosen, ledger = choose(standing)
    # 2. which workers
    placed = _placed(view, standing, chosen, before, layout)
    # 3. leases: a gang that stays keeps its token, any other gets the next
    plan = RoundPlan(
        round_index=standing.round_index,
        parent_round_index=standing.round_index - 1,
        starts_at_s=view.starts_at_s,
        duration_s=view.duration_s,
        leases=tuple(_leases(view, standing, chosen, placed, before)),
        policy=view.allocation.policy,
        allocation_digest=digest(view.allocation),
    )
    return plan, _ledger_of(ledger, view.problem)


def _standing(view: RoundView, before: Mapping[JobId, Lease], layout: Layout) -> Standing:
    shares = _shares(view.allocation, view.problem)
    column_of = {name: column for column, name in enumerate(view.problem.accelerator_types)}
    kept = [column_of.get(before[job.id].accelerator_type, -1) if job.id in before else -1 for job in view.jobs]
    shares, pinned = _pinned(view, before, layout, shares)
    return Standing(
        rates=_rates_alone(view.problem),
        scale_factor=view.problem.scale_factor,
        capacity_workers=view.problem.capacity_workers,
        promised=shares.of_job,
        ledger=_rows_of(view.owed_rounds, view.problem),
        kept=np.array(kept, dtype=np.int64),
        round_index=view.parent.round_index + 1 if view.parent else 1,
        planner=view.planner,
        is_new_allocation=view.is_new_allocation,
        profiling=_profiling(view),
        pairs=shares.pairs,
        pair_promised=shares.of_pair,
        pinned=pinned,
        stay_rounds=stay_rounds([job.spec.kind for job in view.jobs], view.switch_cost_s, view.duration_s),
        minimum_rounds=view.minimum_run_s / view.duration_s,
        may_fill=uncapped(view.problem),
    )


def stay_rounds(kinds: Sequence[str], switch_cost_s: Mapping[str, float], duration_s: float) -> FloatArray:
    """How many rounds more another gang must be owed to take the place of one of each kind, (n,); (0,) without costs.

    Who gives way at a difference of D rounds owed serves about D * D / 2 rounds of lag until the difference is made up;
    that must be worth the c rounds that the move costs: D >= sqrt(2 c), as in the lot sizes of Harris (1913).
    """
    if not any(switch_cost_s.values()):
        return np.zeros(0)
    other = switch_cost_s.get("", 0.0)
    price = {kind: math.sqrt(2 * switch_cost_s.get(kind, other) / duration_s) for kind in set(kinds)}
    return np.array([price[kind] for kind in kinds])


def digest(allocation: Allocation) -> str:
    """Short fingerprint of an allocation's fractions."""
    content = repr(allocation.combinations).encode() + np.round(allocation.time_fraction, 9).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


# --- the allocation as rows ------------------------------------------------------------------------------------------


def time_per_job(allocation: Allocation, problem: AllocationProblem) -> FloatArray:
    """Time fractions (jobs, types), summed over the combinations that a job is in."""
    return _shares(allocation, problem).of_job


def _shares(allocation: Allocation, problem: AllocationProblem) -> _Shares:
    """Combinations are taken by name: a policy may promise time to pairs that the problem does not name."""
    fractions = allocation.time_fraction
    types = fractions.shape[1]
    if allocation.combinations == tuple((job_id,) for job_id in problem.job_ids):
        return _Shares(of_job=fractions, pairs=[], of_pair=np.zeros((0, types)))
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    of_job, packed = np.zeros((len(row_of), types)), {}
    for members, row in zip(allocation.combinations, fractions, strict=True):
        rows = tuple(row_of[job_id] for job_id in members)
        of_job[list(rows)] += row
        if len(rows) == 2 and (row > PROMISED_MIN).any():
            packed[rows[0], rows[1]] = row
    return _Shares(of_job=of_job, pairs=list(packed), of_pair=np.array(list(packed.values())).reshape(-1, types))


def _rates_alone(problem: AllocationProblem) -> FloatArray:
    """Steps/s of each job alone on each type, (n, m); 0 for a job that may only run packed."""
    count, rates = len(problem.job_ids), problem.throughput_steps_per_s[:, 0]
    row_of = {members[0]: row for row, members in enumerate(problem.combinations) if len(members) == 1}
    if len(row_of) == len(problem.combinations) == count and all(job == row for job, row in row_of.items()):
        return rates
    alone = np.zeros((count, rates.shape[1]))
    alone[list(row_of)] = rates[list(row_of.values())]
    return alone


def _rows_of(ledger: Ledger, problem: AllocationProblem) -> FloatArray:
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    column_of = {name: column for column, name in enumerate(problem.accelerator_types)}
    rows = np.zeros((len(row_of), len(column_of)))
    for (job_id, name), rounds in ledger.items():
        if job_id in row_of and name in column_of:
            rows[row_of[job_id], column_of[name]] = rounds
    return rows


def _ledger_of(ledger: FloatArray, problem: AllocationProblem) -> dict[tuple[JobId, AcceleratorType], float]:
    rows, columns = np.nonzero(ledger)
    ids, types, rounds = problem.job_ids, problem.accelerator_types, ledger[rows, columns].tolist()
    cells = zip(rows.tolist(), columns.tolist(), rounds, strict=True)
    return {(ids[row], types[column]): value for row, column, value in cells}


# --- what goes before the allocation ---------------------------------------------------------------------------------


def _profiling(view: RoundView) -> list[tuple[int, int]]:
    """Who may profile this round: each unmeasured (kind, scale factor, type) once, at least one gang a type."""
    types = view.problem.accelerator_types
    capacity = dict(zip(types, view.problem.capacity_workers.tolist(), strict=True))
    choice = Choice(list(capacity.values()), view.problem.scale_factor.tolist())
    budget = {name: view.profiling_workers_fraction * count for name, count in capacity.items()}
    row_of = {job.id: row for row, job in enumerate(view.jobs)} if view.to_profile else {}
    started: set[tuple[str, int, AcceleratorType]] = set()
    for job_id, name in view.to_profile:
        spec = view.jobs[row_of[job_id]].spec
        what = (spec.kind, spec.scale_factor, name)
        affordable = budget[name] >= min(spec.scale_factor, view.profiling_workers_fraction)
        if affordable and what not in started and choice.take(row_of[job_id], types.index(name)):
            budget[name] -= spec.scale_factor
            started.add(what)
    return list(choice.of_row.items())


def _pinned(
    view: RoundView, before: Mapping[JobId, Lease], layout: Layout, shares: _Shares
) -> tuple[_Shares, tuple[int, ...]]:
    """The rows that have not run their minimum yet; a pair of them is one, whatever it is promised by now."""
    if view.minimum_run_s <= 0:
        return shares, ()
    row_of = {job.id: row for row, job in enumerate(view.jobs)}
    young = {job.id for job in view.jobs if job.id in before and _is_young(view, job, before[job.id], layout)}
    pairs, of_pair, pinned = list(shares.pairs), [*shares.of_pair], dict[int, None]()
    for job_id in sorted(young, key=row_of.__getitem__):
        held = before[job_id].combination
        rows = tuple(row_of[each] for each in held if each in young)
        if len(rows) < 2:
            pinned[row_of[job_id]] = None
            continue
        pair = next((each for each in pairs if set(each) == set(rows)), (rows[0], rows[1]))
        if pair not in pairs:
            pairs.append(pair)
            of_pair.append(np.zeros(shares.of_job.shape[1]))
        pinned[len(row_of) + pairs.index(pair)] = None
    of_pairs = np.array(of_pair).reshape(-1, shares.of_job.shape[1])
    return _Shares(of_job=shares.of_job, pairs=pairs, of_pair=of_pairs), tuple(pinned)


def _is_young(view: RoundView, job: Job, lease: Lease, layout: Layout) -> bool:
    """True for a gang that runs, or is about to, on workers that are still there, for less than the minimum."""
    ran_s = view.starts_at_s - view.started_at_s.get(job.id, view.starts_at_s)
    is_whole = layout.is_gang(lease.worker_ids, lease.accelerator_type, job.spec.scale_factor)
    return ran_s < view.minimum_run_s and is_whole and not lease.is_profiling and not _is_over(job, lease)


# --- workers, leases and tokens --------------------------------------------------------------------------------------


def _placed(
    view: RoundView, standing: Standing, chosen: Mapping[int, int], before: Mapping[JobId, Lease], layout: Layout
) -> dict[int, Workers]:
    """The workers of each chosen row."""
    types, count = view.problem.accelerator_types, len(view.jobs)
    pairs = {count + index: pair for index, pair in enumerate(standing.pairs)}
    sizes = standing.scale_factor.tolist()
    gangs = [(row, types[column], sizes[pairs[row][0] if row >= count else row]) for row, column in chosen.items()]
    held, pinned = _held(view.jobs, before), standing.pinned
    return place(gangs, layout, held, pairs=pairs, pinned=pinned, gathers=gathers(standing))


def _leases(
    view: RoundView,
    standing: Standing,
    chosen: Mapping[int, int],
    placed: Mapping[int, Workers],
    before: Mapping[JobId, Lease],
) -> Iterator[Lease]:
    jobs, types, count = view.jobs, view.problem.accelerator_types, len(view.jobs)
    profiled = {row for row, column in standing.profiling if chosen.get(row) == column}
    for row in sorted(chosen):
        members = (row,) if row < count else standing.pairs[row - count]
        combination, workers = tuple([jobs[member].id for member in members]), placed[row]
        for member in members:
            job = jobs[member]
            yield Lease(
                job_id=job.id,
                token=_token(job, before.get(job.id), workers),
                combination=combination,
                accelerator_type=types[chosen[row]],
                worker_ids=workers,
                round_index=standing.round_index,
                expires_at_s=view.starts_at_s + view.duration_s,
                is_profiling=row in profiled,
            )


def _held(jobs: Sequence[Job], before: Mapping[JobId, Lease]) -> dict[int, Workers]:
    """The workers that each job's gang held. Those of a gang that is over may have gone to another since."""
    held = {row: before[job.id].worker_ids for row, job in enumerate(jobs) if job.id in before}
    over = [row for row in held if _is_over(jobs[row], before[jobs[row].id])]
    if over:
        gone = set(over)
        taken = {worker for row, workers in held.items() if row not in gone for worker in workers}
        held = {row: workers for row, workers in held.items() if row not in gone or taken.isdisjoint(workers)}
    return held


def gathers(standing: Standing) -> set[int]:
    """Rows that may move to fewer nodes: gangs of several workers whose move costs little."""
    if standing.planner != "owed":
        return set()
    price = standing.stay_rounds if standing.stay_rounds.size else np.zeros(len(standing.rates))
    cheap = np.flatnonzero((standing.scale_factor > 1) & (price**2 / 2 <= GATHERING_PAYS_FROM_ROUNDS))
    return set(cheap.tolist()) - set(standing.pinned)


def _token(job: Job, before: Lease | None, workers: Workers) -> int:
    """The same token only for a gang that is still held, or about to be, on the same workers."""
    if before and before.worker_ids == workers and before.token >= job.token and not _is_over(job, before):
        return before.token
    return max(job.token, before.token if before else 0) + 1


def _is_over(job: Job, before: Lease) -> bool:
    return job.token == before.token and job.state is not JobState.LEASED
