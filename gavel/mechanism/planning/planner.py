"""Turns an allocation into a round's leases: which gangs (selection.py), on which workers (placement.py)."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.mechanism.cluster.feasibility import Workers
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.caps import uncapped
from gavel.mechanism.planning.placing import chosen_and_placed
from gavel.mechanism.planning.selection import TARGET_FRACTION_MIN, Choice, SelectionProblem
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    FloatArray,
    JobId,
    Lease,
    PlanInputs,
    RoundPlan,
)

__all__ = [
    "Ledger",
    "SelectionProblem",
    "Shares",
    "digest",
    "pinned_rows",
    "plan_round",
    "shares_of",
    "stay_rounds",
    "time_per_job",
]

Ledger = Mapping[tuple[JobId, AcceleratorType], float]
"""What a planner keeps, in rounds: `lag` keeps the lags, `published` the rounds received since the last solve."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """An allocation as the mechanism reads it: each job's time on each type, and which part of it is packed."""

    of_job: FloatArray  # (n, m), alone and packed
    pairs: list[tuple[int, int]]  # rows of the jobs
    of_pair: FloatArray  # (p, m)


class _Round:
    """The inputs of a plan with its problem, and `before`: the lease of each job (row) in the round before."""

    def __init__(self, inputs: PlanInputs, problem: AllocationProblem, layout: Layout | None) -> None:
        self.inputs, self.problem, self.layout = inputs, problem, layout or Layout(inputs.cluster, inputs.used)
        self.ids, self.types = problem.job_ids, problem.accelerator_types
        self.kinds = [inputs.jobs.kinds[kind] for kind in inputs.jobs.kind_of_job.tolist()]
        self.generation: list[int] = inputs.jobs.generation.tolist()
        self.is_leased: list[bool] = inputs.jobs.is_leased.tolist()
        of_job = {lease.job_id: lease for lease in inputs.parent.leases} if inputs.parent else {}
        self.before = {row: of_job[job_id] for row, job_id in enumerate(self.ids) if job_id in of_job}

    def is_over(self, row: int) -> bool:
        """True if the gang that the job had in the round before has ended."""
        return self.generation[row] == self.before[row].generation and not self.is_leased[row]


def plan_round(
    inputs: PlanInputs,
    *,
    problem: AllocationProblem,
    allocation: Allocation,
    lag_rounds: Ledger,
    layout: Layout | None = None,
) -> tuple[RoundPlan, dict[tuple[JobId, AcceleratorType], float]]:
    """Return the round's plan, and the planner's ledger after it; `lag_rounds` is the ledger before it.

    Whole gangs of one type only; work conserving. A packed pair of the allocation gets two leases on the same workers,
    both with the pair as their combination. `inputs.kept` are not among the leases. `layout` is that of
    `inputs.cluster`, if the caller has it.
    """
    round_ = _Round(inputs, problem, layout)
    # 1. which gangs, each on which type and workers
    selection = _selection_problem(round_, shares_of(allocation, problem), lag_rounds)
    chosen, ledger, placed = chosen_and_placed(selection, round_.layout, _held(round_), inputs.jobs.needs_of_rows())
    # 2. leases: a gang that stays keeps its generation, any other gets the next
    plan = RoundPlan(
        round_index=selection.round_index,
        parent_round_index=selection.round_index - 1,
        starts_at_s=inputs.starts_at_s,
        duration_s=inputs.duration_s,
        leases=tuple(_leases(round_, selection, chosen, placed)),
        policy=allocation.policy,
        allocation_digest=digest(allocation),
    )
    return plan, _ledger_of(ledger, problem)


def _selection_problem(round_: _Round, shares: Shares, lag_rounds: Ledger) -> SelectionProblem:
    inputs, problem = round_.inputs, round_.problem
    column_of = {name: column for column, name in enumerate(round_.types)}
    kept = np.full(len(round_.ids), -1, dtype=np.int64)
    held = {row: lease for row, lease in round_.before.items() if not _was_guest(round_, lease)}
    kept[list(held)] = [column_of.get(lease.accelerator_type, -1) for lease in held.values()]
    shares, pinned = _pinned(round_, shares)
    return SelectionProblem(
        rates=_rates_alone(problem),
        scale_factor=problem.scale_factor,
        capacity_workers=problem.capacity_workers,
        target_fraction=shares.of_job,
        ledger=_rows_of(lag_rounds, problem),
        kept=kept,
        round_index=inputs.parent.round_index + 1 if inputs.parent else 1,
        planner=inputs.planner,
        is_new_allocation=inputs.is_new_allocation,
        profiling=_profiling(round_),
        pairs=shares.pairs,
        pair_target_fraction=shares.of_pair,
        pinned=pinned,
        late=_late(round_, column_of),
        stay_rounds=stay_rounds(round_.kinds, inputs.switch_cost_s, inputs.duration_s),
        minimum_rounds=inputs.minimum_run_s / inputs.duration_s,
        may_fill=uncapped(problem),
    )


def stay_rounds(kinds: Sequence[str], switch_cost_s: Mapping[str, float], duration_s: float) -> FloatArray:
    """Return by how many rounds another gang must lag more to take the place of a gang of each kind, (n,).

    (0,) if no move costs anything. A swap at a difference of D rounds reduces the lags by about D * D / 2 rounds in
    all until the difference is gone; that must be worth the c rounds that the move costs: D >= sqrt(2 c), as in the
    lot sizes of Harris (1913).
    """
    if not any(switch_cost_s.values()):
        return np.zeros(0)
    other = switch_cost_s.get("", 0.0)
    price = {kind: math.sqrt(2 * switch_cost_s.get(kind, other) / duration_s) for kind in set(kinds)}
    return np.array([price[kind] for kind in kinds])


def digest(allocation: Allocation) -> str:
    """Return a short hash of an allocation's combinations and fractions."""
    content = repr(allocation.combinations).encode() + np.round(allocation.time_fraction, 9).tobytes()
    return hashlib.sha256(content).hexdigest()[:16]


# --- the allocation as rows ------------------------------------------------------------------------------------------


def time_per_job(allocation: Allocation, problem: AllocationProblem) -> FloatArray:
    """Return the time fractions of the jobs, (n, m), summed over the combinations that a job is in."""
    return shares_of(allocation, problem).of_job


def shares_of(allocation: Allocation, problem: AllocationProblem) -> Shares:
    """Return the allocation by the rows of the problem's jobs.

    Combinations are matched by job ID: a policy may give time to pairs that the problem does not name.
    """
    fractions = allocation.time_fraction
    types = fractions.shape[1]
    if allocation.combinations == tuple((job_id,) for job_id in problem.job_ids):
        return Shares(of_job=fractions, pairs=[], of_pair=np.zeros((0, types)))
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    of_job, packed = np.zeros((len(row_of), types)), {}
    for members, row in zip(allocation.combinations, fractions, strict=True):
        rows = tuple(row_of[job_id] for job_id in members)
        of_job[list(rows)] += row
        if len(rows) == 2 and (row > TARGET_FRACTION_MIN).any():
            packed[rows[0], rows[1]] = row
    return Shares(of_job=of_job, pairs=list(packed), of_pair=np.array(list(packed.values())).reshape(-1, types))


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


def _profiling(round_: _Round) -> list[tuple[int, int]]:
    """(row, column) of the gangs that profile: each unmeasured (kind, scale factor, type) once, within the budget.

    The budget leaves room for at least one gang on each type.
    """
    inputs, problem, types = round_.inputs, round_.problem, round_.types
    sizes, fraction = problem.scale_factor.tolist(), inputs.profiling_workers_fraction
    capacity = dict(zip(types, problem.capacity_workers.tolist(), strict=True))
    choice = Choice(list(capacity.values()), sizes)
    budget = {name: fraction * count for name, count in capacity.items()}
    row_of = {job_id: row for row, job_id in enumerate(round_.ids)} if inputs.to_profile else {}
    started: set[tuple[str, int, AcceleratorType]] = set()
    for job_id, name in inputs.to_profile:
        row = row_of[job_id]
        what = (round_.kinds[row], sizes[row], name)
        affordable = budget[name] >= min(sizes[row], fraction)
        if affordable and what not in started and choice.take(row, types.index(name)):
            budget[name] -= sizes[row]
            started.add(what)
    return list(choice.of_row.items())


def _late(round_: _Round, column_of: Mapping[AcceleratorType, int]) -> list[tuple[int, int]]:
    """(row, column) of the jobs that have a place first."""
    late = round_.inputs.late
    row_of = {job_id: row for row, job_id in enumerate(round_.ids)} if late else {}
    return [(row_of[job_id], column_of[name]) for job_id, name in late]


def _pinned(round_: _Round, shares: Shares) -> tuple[Shares, tuple[int, ...]]:
    """The shares, and the rows that start or have not run their minimum yet."""
    inputs = round_.inputs
    if inputs.minimum_run_s <= 0 and not inputs.starting:
        return shares, ()
    early = set(inputs.starting)
    young = [row for row in round_.before if _is_held(round_, row, is_starting=round_.ids[row] in early)]
    row_of = {round_.ids[row]: row for row in young}
    together = [tuple(row_of[each] for each in round_.before[row].combination if each in row_of) for row in young]
    return pinned_rows(together, shares, len(round_.ids))


def pinned_rows(together: Iterable[tuple[int, ...]], shares: Shares, count: int) -> tuple[Shares, tuple[int, ...]]:
    """Return the shares, and the rows of gangs that stay; two jobs that share workers are one row, a pair.

    `together`: for each of the `count` jobs that stays the rows of those on its workers that stay as well, itself
    included. A pair without a target fraction is added to the shares with zeros.
    """
    pairs, of_pair, pinned = list(shares.pairs), [*shares.of_pair], dict[int, None]()
    for rows in together:
        if len(rows) < 2:
            pinned[rows[0]] = None
            continue
        pair = next((each for each in pairs if set(each) == set(rows)), (rows[0], rows[1]))
        if pair not in pairs:
            pairs.append(pair)
            of_pair.append(np.zeros(shares.of_job.shape[1]))
        pinned[count + pairs.index(pair)] = None
    of_pairs = np.array(of_pair).reshape(len(of_pair), shares.of_job.shape[1])  # maybe of no type: no node is there
    return Shares(of_job=shares.of_job, pairs=pairs, of_pair=of_pairs), tuple(pinned)


def _was_guest(round_: _Round, lease: Lease) -> bool:
    """True for the gang beside a session that stays: it was given no place to keep, and moves wherever it goes on."""
    return len(lease.combination) > 1 and any(each.job_id in lease.combination for each in round_.inputs.kept)


def _is_held(round_: _Round, row: int, *, is_starting: bool) -> bool:
    """True if the gang starts, or has run for less than the minimum, and its workers are still there."""
    inputs, lease, size = round_.inputs, round_.before[row], int(round_.problem.scale_factor[row])
    ran_s = inputs.starts_at_s - inputs.started_at_s.get(round_.ids[row], inputs.starts_at_s)
    is_whole = round_.layout.is_gang(lease.worker_ids, lease.accelerator_type, size)
    is_young = ran_s < inputs.minimum_run_s and not lease.is_profiling
    return (is_young or is_starting) and is_whole and not round_.is_over(row)


# --- workers, leases and generations --------------------------------------------------------------------------------


def _leases(
    round_: _Round, selection: SelectionProblem, chosen: Mapping[int, int], placed: Mapping[int, Workers]
) -> Iterator[Lease]:
    ids, expires_at_s = round_.ids, round_.inputs.starts_at_s + round_.inputs.duration_s
    profiled = {row for row, column in selection.profiling if chosen.get(row) == column}
    for row in sorted(chosen):
        members = (row,) if row < len(ids) else selection.pairs[row - len(ids)]
        combination, workers = tuple([ids[member] for member in members]), placed[row]
        name = round_.types[chosen[row]]
        for member in members:
            plan = _plan_on(round_, member, name)
            yield Lease(
                job_id=ids[member],
                generation=_generation(round_, member, workers, plan),
                combination=combination,
                accelerator_type=name,
                worker_ids=workers,
                round_index=selection.round_index,
                expires_at_s=expires_at_s,
                is_profiling=row in profiled,
                plan=plan,
            )


def _held(round_: _Round) -> dict[int, Workers]:
    """The workers that each job's gang held; a gang that has ended is left out if a live one has a worker of it now."""
    held = {row: lease.worker_ids for row, lease in round_.before.items()}
    over = [row for row in held if round_.is_over(row)]
    if over:
        gone = set(over)
        taken = {worker for row, workers in held.items() if row not in gone for worker in workers}
        held = {row: workers for row, workers in held.items() if row not in gone or taken.isdisjoint(workers)}
    return held


def _plan_on(round_: _Round, row: int, name: AcceleratorType) -> str:
    """The plan that the job has on a type: its own, if its gang stays there though no plan is possible any more."""
    if plan := round_.inputs.plan_on.get(round_.ids[row], {}).get(name, ""):
        return plan
    before = round_.before.get(row)
    return before.plan if before and before.accelerator_type == name else ""


def _generation(round_: _Round, row: int, workers: Workers, plan: str) -> int:
    """The generation before for a gang that goes on, or is about to start, on the same workers under the same plan;
    else a new one.
    """
    newest, before = round_.generation[row], round_.before.get(row)
    is_same = before is not None and (before.worker_ids, before.plan) == (workers, plan)
    if before and is_same and before.generation >= newest and not round_.is_over(row):
        return before.generation
    return max(newest, before.generation if before else 0) + 1
