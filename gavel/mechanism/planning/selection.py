"""Chooses the gangs of a round and their types: pinned gangs, profiling gangs, those with claims, then any that fit.

A row is a gang of one job, or a packed pair of jobs on the same workers: rows 0 .. n-1 are the jobs alone, row n + k is
pair k. Lags are kept per job, whichever job it shares its workers with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.mechanism.planning.assignment import assign
from gavel.mechanism.planning.priority import accrue, claims_published, fastest_first, limits, shuffled, urgency
from gavel.types import BoolArray, FloatArray, IntArray, Planner

TARGET_FRACTION_MIN = 1e-9  # a smaller time fraction is a solver's rounding
FASTER_BY = 1e-6  # a gang does not move to a type that is no faster
ONE_IDLE = 0.999  # of a pair's worth is left if one of its jobs does not lag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectionProblem:
    """What a round's gangs are chosen from: n jobs in order of arrival, p packed pairs, m accelerator types.

    `pinned` rows stay where they are held; `late`: (row, column) pairs that go next; `profiling`: those after them,
    already within their budget.
    `stay_rounds`: by how many rounds another gang must lag more to take a gang's place. `fastest_first`: the columns of
    the types, the fastest first, if the caller has that order already.
    """

    rates: FloatArray  # (n, m) steps/s alone, 0 where the job cannot run
    scale_factor: IntArray  # (n,)
    capacity_workers: IntArray  # (m,)
    target_fraction: FloatArray  # (n, m) time fractions of the allocation, alone and packed
    ledger: FloatArray  # (n, m) rounds, see Ledger
    kept: IntArray  # (n,) column of the type held in the round before, -1: none
    round_index: int
    planner: Planner = "lag"
    is_new_allocation: bool = True
    profiling: Sequence[tuple[int, int]] = ()
    pairs: Sequence[tuple[int, int]] = ()  # p pairs of rows
    pair_target_fraction: FloatArray = field(
        default_factory=lambda: np.zeros((0, 0))
    )  # (p, m), part of the target fractions of both jobs
    pinned: Sequence[int] = ()
    late: Sequence[tuple[int, int]] = ()
    stay_rounds: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,); (0,): none
    minimum_rounds: float = 0.0  # that a gang runs once it is started
    fastest_first: Sequence[int] | None = None
    may_fill: BoolArray = field(default_factory=lambda: np.ones(0, dtype=bool))  # (n,) take what is left; (0,): all

    @property
    def holds_on(self) -> bool:
        """True if a gang keeps its place against another that lags only a little more.

        A minimum run counts as a price of half its length: then gangs mostly stay that long by their claims, and the
        minimum hardly ever keeps one where it does not lag.
        """
        return bool(self.minimum_rounds or self.stay_rounds.any())

    @property
    def jobs_of_row(self) -> IntArray:
        """The jobs of each row, (n + p, 2); a job alone twice."""
        alone = np.repeat(np.arange(len(self.rates)), 2).reshape(-1, 2)
        return np.concatenate([alone, np.array(self.pairs, dtype=np.int64).reshape(-1, 2)]) if self.pairs else alone


@dataclass(slots=True)
class Choice:
    """The gangs chosen so far; the only thing that choosing changes."""

    free: list[int]
    sizes: list[int]
    pairs: Sequence[tuple[int, int]] = ()
    of_row: dict[int, int] = field(default_factory=dict)
    served: set[int] = field(default_factory=set)

    def take(self, row: int, column: int) -> bool:
        """Choose the whole gang, if it still fits and its jobs have nothing yet."""
        jobs = self.jobs(row)
        size = self.sizes[jobs[0]]
        if self.free[column] < size or not self.served.isdisjoint(jobs):
            return False
        self.of_row[row] = column
        self.served.update(jobs)
        self.free[column] -= size
        return True

    def take_all(self, rows: list[int], columns: list[int]) -> None:
        """Choose gangs of which the caller knows that they fit and that their jobs have none yet."""
        self.of_row.update(zip(rows, columns, strict=True))
        for row, column in zip(rows, columns, strict=True):
            jobs = self.jobs(row) if self.pairs else (row,)
            self.served.update(jobs)
            self.free[column] -= self.sizes[jobs[0]]

    def take_in_order(self, rows: Sequence[int], column: int) -> None:
        """Choose each of the gangs that still fits, until nothing is free there."""
        if self.pairs:
            for row in rows:
                self.take(row, column)
            return
        free = self.free[column]  # the same for jobs alone, in a tenth of the time
        for row in rows:
            if not free:
                break
            if self.sizes[row] <= free and row not in self.served:
                self.of_row[row] = column
                self.served.add(row)
                free -= self.sizes[row]
        self.free[column] = free

    def jobs(self, row: int) -> tuple[int, ...]:
        """The jobs of a row."""
        count = len(self.sizes)
        return (row,) if row < count else self.pairs[row - count]

    def cells(self) -> tuple[list[int], list[int]]:
        """(job, column) of each job that runs, as two lists."""
        if not self.pairs:
            return list(self.of_row), list(self.of_row.values())
        pairs = [(job, column) for row, column in self.of_row.items() for job in self.jobs(row)]
        return [job for job, _ in pairs], [column for _, column in pairs]


def choose(selection: SelectionProblem) -> tuple[dict[int, int], FloatArray]:
    """Return the type's column for each row that gets a gang (row -> column), and the ledger (n, m) after the round."""
    choice = Choice(selection.capacity_workers.tolist(), selection.scale_factor.tolist(), selection.pairs)
    # 1. gangs that have not run long enough to stop, 2. jobs far behind, kinds nobody has measured
    for row in selection.pinned:
        choice.take(row, int(selection.kept[choice.jobs(row)[0]]))
    for row, column in (*selection.late, *selection.profiling):
        choice.take(row, column)
    # 3. by claim, 4. work conserving
    if selection.planner == "lag":
        return _choose_by_lag(selection, choice)
    return _choose_published(selection, choice)


# --- the assignment problem over the lags ---------------------------------------------------------------------------


def _choose_by_lag(selection: SelectionProblem, choice: Choice) -> tuple[dict[int, int], FloatArray]:
    longest = selection.minimum_rounds + float(selection.stay_rounds.max(initial=0.0))
    limit = limits(selection.scale_factor, selection.kept, selection.capacity_workers, beyond_rounds=longest)
    lag = accrue(selection.ledger, selection.target_fraction, limit, beyond_rounds=longest)
    profiling = {job for row, _ in selection.profiling if row in choice.of_row for job in choice.jobs(row)}
    _take_most_worth(selection, choice, lag)
    claimed = choice.served - profiling
    _fill(selection, choice)
    # Every round given reduces a positive lag by one. Another lag goes down only if the gang had a claim: one that
    # stays because a move has a price runs ahead, and gives the rounds back later.
    jobs, columns = choice.cells()
    is_claimed = np.zeros(len(lag), dtype=bool)
    is_claimed[list(claimed)] = True
    lag[jobs, columns] -= (lag[jobs, columns] > 0) | is_claimed[jobs]
    return choice.of_row, lag


def _take_most_worth(selection: SelectionProblem, choice: Choice, lag: FloatArray) -> None:
    jobs, claims = selection.jobs_of_row, lag.copy()
    if selection.holds_on:  # the claim of a gang on its place grows by what its move would cost
        held = np.flatnonzero(selection.kept >= 0)
        stay_rounds = selection.stay_rounds if selection.stay_rounds.size else np.zeros(len(lag))
        claims[held, selection.kept[held]] += np.maximum(stay_rounds, selection.minimum_rounds / 2)[held]
    worth = np.where(_open(selection, claims), _worth(selection, claims, jobs), 0.0)
    if choice.served:
        worth[np.isin(jobs, list(choice.served)).any(axis=1)] = 0.0
    size = selection.scale_factor[jobs[:, 0]]
    column = assign(worth, size, np.array(choice.free, dtype=np.int64), jobs)
    rows = np.flatnonzero(column >= 0)
    choice.take_all(rows.tolist(), column[rows].tolist())


def _open(selection: SelectionProblem, lag: FloatArray) -> BoolArray:
    """Where each row has a claim, (n + p, m).

    A job has one where it lags, unless all its target fraction there is packed. A pair has one where it has a target
    fraction and one of its jobs lags.
    """
    is_behind = lag > TARGET_FRACTION_MIN
    alone = (selection.rates > 0) & is_behind
    if not selection.pairs:
        return alone
    pairs = np.array(selection.pairs, dtype=np.int64)
    packed = selection.pair_target_fraction > TARGET_FRACTION_MIN
    return np.concatenate([alone & ~_only_packed(selection, pairs), packed & is_behind[pairs].any(axis=1)])


def _only_packed(selection: SelectionProblem, pairs: IntArray) -> BoolArray:
    """Where all of a job's target fraction is shared with another job, (n, m)."""
    packed = _packed(selection, pairs)
    return np.asarray((packed > TARGET_FRACTION_MIN) & (selection.target_fraction - packed <= TARGET_FRACTION_MIN))


def _packed(selection: SelectionProblem, pairs: IntArray) -> FloatArray:
    """The part of each job's time that it shares with another, (n, m)."""
    packed = np.zeros_like(selection.target_fraction)
    for member in (0, 1):
        np.add.at(packed, pairs[:, member], selection.pair_target_fraction)
    return packed


def _worth(selection: SelectionProblem, claims: FloatArray, jobs: IntArray) -> FloatArray:
    """What each row is worth on each type, (n + p, m): its jobs' urgency times its workers.

    A pair of which one job does not lag is worth less than the other job alone.
    """
    count = len(claims)
    urgent = urgency(claims, selection.kept) * selection.scale_factor[:, None]
    if not selection.pairs:
        return urgent
    together = np.where(claims > 0, urgent, 0.0)[jobs[count:]].sum(axis=1)
    is_idle = claims[jobs[count:]].min(axis=1) <= 0
    return np.concatenate([urgent, np.where(is_idle, ONE_IDLE, 1.0) * together])


# --- the published rule ---------------------------------------------------------------------------------------------


def _choose_published(selection: SelectionProblem, choice: Choice) -> tuple[dict[int, int], FloatArray]:
    columns = list(selection.fastest_first or fastest_first(selection.rates))
    if selection.planner == "published_shuffled":
        columns = shuffled(columns, selection.round_index)
    received = np.zeros_like(selection.ledger) if selection.is_new_allocation else selection.ledger.copy()
    target_fraction, usable, given = selection.target_fraction, selection.rates > 0, received
    if selection.pairs:
        pairs = np.array(selection.pairs, dtype=np.int64)
        target_fraction = np.concatenate([target_fraction - _packed(selection, pairs), selection.pair_target_fraction])
        usable = np.concatenate([usable, selection.pair_target_fraction > TARGET_FRACTION_MIN])
        given = np.concatenate([received, received[pairs].mean(axis=1)])
    for column, rows in claims_published(target_fraction, given, usable, columns):
        choice.take_in_order(rows, column)
    jobs, ran = choice.cells()
    received[jobs, ran] += 1.0
    return choice.of_row, received


# --- what is left ---------------------------------------------------------------------------------------------------


def _fill(selection: SelectionProblem, choice: Choice) -> None:
    """Give what is left to waiting jobs in order of arrival, each alone on its fastest free type.

    Where moves have a price, gangs that can stay where they are go first.
    """
    if not any(choice.free):
        return
    rates = selection.rates
    allowed = np.flatnonzero(selection.may_fill).tolist() if selection.may_fill.size else range(len(rates))
    waiting = [row for row in allowed if row not in choice.served]
    for row in waiting if selection.holds_on else ():
        column = int(selection.kept[row])
        if column >= 0 and rates[row, column] > 0:
            choice.take(row, column)
    held, speed = np.flatnonzero(selection.kept >= 0), rates.copy()
    speed[held, selection.kept[held]] *= 1.0 + FASTER_BY
    preference = np.argsort(-speed[waiting], axis=1, kind="stable").tolist()
    for row, columns in zip(waiting, preference, strict=True):
        for column in columns:
            if rates[row, column] > 0 and choice.take(row, column):
                break
