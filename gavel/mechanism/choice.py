"""Which gangs run in a round, each on which type: pinned and profiling gangs, then by claim, then who can use the rest.

A row is a gang of one job, or a packed pair of jobs on the same workers: rows 0 .. n-1 are the jobs alone, row n + k is
pair k. Time owed is kept per job, whoever it shares its workers with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gavel.mechanism.assignment import assign
from gavel.mechanism.priority import accrue, claims_published, fastest_first, shuffled, urgency
from gavel.types import BoolArray, FloatArray, IntArray

Planner = Literal["owed", "published", "published_shuffled"]
PROMISED_MIN = 1e-9  # a smaller time fraction is a solver's rounding
STAYING_SPEED = 1e-6  # a gang does not move to a type that is no faster
ONE_IDLE = 0.999  # of a pair's worth is left if one of its jobs is owed nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """Where n jobs and p packed pairs stand on m accelerator types when a round's gangs are chosen; jobs in order of
    arrival.

    `pinned` rows stay where they are held; `profiling`: (row, column) pairs that go next, already within their budget.
    `stay_rounds`: how many rounds more another gang must be owed to take a gang's place. `fastest_first`: the types'
    columns in that order, where the caller knows it already.
    """

    rates: FloatArray  # (n, m) steps/s alone, 0 where the job cannot run
    scale_factor: IntArray  # (n,)
    capacity_workers: IntArray  # (m,)
    promised: FloatArray  # (n, m) time fractions of the allocation, alone and packed
    ledger: FloatArray  # (n, m) rounds, see Ledger
    kept: IntArray  # (n,) column of the type held in the round before, -1: none
    round_index: int
    planner: Planner = "owed"
    is_new_allocation: bool = True
    profiling: Sequence[tuple[int, int]] = ()
    pairs: Sequence[tuple[int, int]] = ()  # p pairs of rows
    pair_promised: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # (p, m), a part of both jobs' promised
    pinned: Sequence[int] = ()
    stay_rounds: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n,); (0,): none
    minimum_rounds: float = 0.0  # that a gang runs once it is started
    fastest_first: Sequence[int] | None = None
    may_fill: BoolArray = field(default_factory=lambda: np.ones(0, dtype=bool))  # (n,) take what is left; (0,): all

    @property
    def holds_on(self) -> bool:
        """True if gangs do not give way to anybody who is owed more.

        A minimum run counts as a price of half of it: then gangs stay that long by themselves, and the minimum hardly
        ever keeps one where it is not owed time.
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
        """Choose gangs that are known to fit, and none for a job that has one."""
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
        found = [(job, column) for row, column in self.of_row.items() for job in self.jobs(row)]
        return [job for job, _ in found], [column for _, column in found]


def choose(standing: Standing) -> tuple[dict[int, int], FloatArray]:
    """Column of the type of each row that gets a gang, and the ledger (n, m) after the round."""
    choice = Choice(standing.capacity_workers.tolist(), standing.scale_factor.tolist(), standing.pairs)
    # 1. gangs that have not run long enough to stop, 2. kinds nobody has measured
    for row in standing.pinned:
        choice.take(row, int(standing.kept[choice.jobs(row)[0]]))
    for row, column in standing.profiling:
        choice.take(row, column)
    # 3. by claim, 4. work conserving
    if standing.planner == "owed":
        return _choose_owed(standing, choice)
    return _choose_published(standing, choice)


# --- the assignment problem over the owed lags ----------------------------------------------------------------------


def _choose_owed(standing: Standing, choice: Choice) -> tuple[dict[int, int], FloatArray]:
    longest = standing.minimum_rounds + float(standing.stay_rounds.max(initial=0.0))
    owed = accrue(standing.ledger, standing.promised, beyond_rounds=longest)
    profiling = {job for row, _ in standing.profiling if row in choice.of_row for job in choice.jobs(row)}
    _take_most_worth(standing, choice, owed)
    claimed = choice.served - profiling
    _fill(standing, choice)
    # Every round given is a round less owed. One that nobody promised is not held against the job, unless it was taken
    # from others: a gang that stays because a move has a price runs ahead, and gives the rounds back later.
    jobs, columns = choice.cells()
    is_claimed = np.zeros(len(owed), dtype=bool)
    is_claimed[list(claimed)] = True
    owed[jobs, columns] -= (owed[jobs, columns] > 0) | is_claimed[jobs]
    return choice.of_row, owed


def _take_most_worth(standing: Standing, choice: Choice, owed: FloatArray) -> None:
    jobs, claims = standing.jobs_of_row, owed.copy()
    if standing.holds_on:  # who is held is owed as much more as its move costs
        held = np.flatnonzero(standing.kept >= 0)
        stay_rounds = standing.stay_rounds if standing.stay_rounds.size else np.zeros(len(owed))
        claims[held, standing.kept[held]] += np.maximum(stay_rounds, standing.minimum_rounds / 2)[held]
    worth = np.where(_open(standing, claims), _worth(standing, claims, jobs), 0.0)
    if choice.served:
        worth[np.isin(jobs, list(choice.served)).any(axis=1)] = 0.0
    size = standing.scale_factor[jobs[:, 0]]
    column = assign(worth, size, np.array(choice.free, dtype=np.int64), jobs)
    rows = np.flatnonzero(column >= 0)
    choice.take_all(rows.tolist(), column[rows].tolist())


def _open(standing: Standing, owed: FloatArray) -> BoolArray:
    """Where each row has a claim, (n + p, m): a job where it is owed time, a pair where it is promised time and one of
    its jobs is owed some. A job does not go alone where all the time that it was promised is packed.
    """
    is_owed = owed > PROMISED_MIN
    alone = (standing.rates > 0) & is_owed
    if not standing.pairs:
        return alone
    pairs = np.array(standing.pairs, dtype=np.int64)
    packed = standing.pair_promised > PROMISED_MIN
    return np.concatenate([alone & ~_only_packed(standing, pairs), packed & is_owed[pairs].any(axis=1)])


def _only_packed(standing: Standing, pairs: IntArray) -> BoolArray:
    """Where all the time that a job is promised is shared with another, (n, m)."""
    packed = _packed(standing, pairs)
    return np.asarray((packed > PROMISED_MIN) & (standing.promised - packed <= PROMISED_MIN))


def _packed(standing: Standing, pairs: IntArray) -> FloatArray:
    """The part of each job's time that it shares with another, (n, m)."""
    packed = np.zeros_like(standing.promised)
    for member in (0, 1):
        np.add.at(packed, pairs[:, member], standing.pair_promised)
    return packed


def _worth(standing: Standing, claims: FloatArray, jobs: IntArray) -> FloatArray:
    """What each row is worth on each type, (n + p, m): its jobs' urgency times its workers.

    A pair of which one job is owed nothing gives way to the other job alone.
    """
    count = len(claims)
    urgent = urgency(claims, standing.kept) * standing.scale_factor[:, None]
    if not standing.pairs:
        return urgent
    together = np.where(claims > 0, urgent, 0.0)[jobs[count:]].sum(axis=1)
    is_idle = claims[jobs[count:]].min(axis=1) <= 0
    return np.concatenate([urgent, np.where(is_idle, ONE_IDLE, 1.0) * together])


# --- the published rule ---------------------------------------------------------------------------------------------


def _choose_published(standing: Standing, choice: Choice) -> tuple[dict[int, int], FloatArray]:
    columns = list(standing.fastest_first or fastest_first(standing.rates))
    if standing.planner == "published_shuffled":
        columns = shuffled(columns, standing.round_index)
    received = np.zeros_like(standing.ledger) if standing.is_new_allocation else standing.ledger.copy()
    promised, usable, given = standing.promised, standing.rates > 0, received
    if standing.pairs:
        pairs = np.array(standing.pairs, dtype=np.int64)
        promised = np.concatenate([promised - _packed(standing, pairs), standing.pair_promised])
        usable = np.concatenate([usable, standing.pair_promised > PROMISED_MIN])
        given = np.concatenate([received, received[pairs].mean(axis=1)])
    for column, rows in claims_published(promised, given, usable, columns):
        choice.take_in_order(rows, column)
    jobs, ran = choice.cells()
    received[jobs, ran] += 1.0
    return choice.of_row, received


# --- what is left ---------------------------------------------------------------------------------------------------


def _fill(standing: Standing, choice: Choice) -> None:
    """What is left goes to waiting jobs in order of arrival, each alone on its fastest free type.

    Where moves have a price, gangs that can stay where they are go first.
    """
    if not any(choice.free):
        return
    rates = standing.rates
    allowed = np.flatnonzero(standing.may_fill).tolist() if standing.may_fill.size else range(len(rates))
    waiting = [row for row in allowed if row not in choice.served]
    for row in waiting if standing.holds_on else ():
        column = int(standing.kept[row])
        if column >= 0 and rates[row, column] > 0:
            choice.take(row, column)
    held, speed = np.flatnonzero(standing.kept >= 0), rates.copy()
    speed[held, standing.kept[held]] *= 1.0 + STAYING_SPEED
    preference = np.argsort(-speed[waiting], axis=1, kind="stable").tolist()
    for row, columns in zip(waiting, preference, strict=True):
        for column in columns:
            if rates[row, column] > 0 and choice.take(row, column):
                break
