"""Assigns whole gangs to few accelerator types so that their summed worth is large: a transportation problem.

1. `_prices`: a price per worker of each type, so that the next step starts near the optimum.
2. `_greedy`: gangs in order of their worth less the price of their workers, each if it still fits.
3. `_exchange`: moves between types, in and out, around cycles that raise the worth, until there is none. For gangs of
   one size that is the optimum (Klein, "A primal method for minimal cost flows", 1967); with several each is optimal
   given the others, so then
4. `make_room`: a large gang replaces smaller ones that are worth less together; then 3 again.
"""

import numpy as np

from gavel.mechanism.planning.least_moves import LeastMoves
from gavel.types import BoolArray, FloatArray, IntArray

PRICE_PASSES_MAX = 6
PRICED_ROWS = 512  # below, to exchange from the greedy answer is faster than to price
SORTED_ROWS = 512  # below, to look at all rows at each exchange is faster
EXCHANGES_MAX = 1_000
ROOMS_MAX = 16
GAIN_MIN = 1e-9  # less is rounding


def assign(worth: FloatArray, size: IntArray, free: IntArray, jobs: IntArray) -> IntArray:
    """Return the column of each row's type, (r,), -1: none. The summed worth is large; no type exceeds its workers.

    `worth` (r, m) of each row's gang on each type, 0 or less: not there; `size` (r,) its workers; `free` (m,) workers
    of each type; `jobs` (r, 2) whose gangs the row holds, twice the same if it holds one. A job gets one row at most.
    """
    got = np.full(len(worth), -1, dtype=np.int64)
    rows = np.flatnonzero((worth > 0).any(axis=1))
    if not rows.size or not free.any():
        return got
    worth, size, jobs = worth[rows], size[rows], jobs[rows]
    prices = _prices(worth, size, free) if rows.size > PRICED_ROWS else np.zeros(len(free))
    state = _State(worth, size, jobs, _greedy(worth, size, free, jobs, prices), free)
    if not state.is_best_for_all():
        _exchange_all(state)
        for _ in range(0 if state.is_of_one_size else ROOMS_MAX):
            if not state.make_room():
                break
            _exchange_all(state)
    got[rows] = np.where(state.column == len(free), -1, state.column)
    return got


def _prices(worth: FloatArray, size: IntArray, free: IntArray) -> FloatArray:
    """The price of a worker of each type, (m,), at which no more are wanted than there are, given the other prices."""
    per_worker = worth / size[:, None]
    prices = np.zeros(len(free))
    for _ in range(PRICE_PASSES_MAX):
        before = prices.copy()
        for column in range(len(free)):
            elsewhere = per_worker - prices
            elsewhere[:, column] = 0.0
            gain = per_worker[:, column] - np.maximum(elsewhere.max(axis=1), 0.0)
            prices[column] = _clearing_price(gain, size, int(free[column]))
        if np.abs(prices - before).max() <= GAIN_MIN:
            break
    return prices


def _clearing_price(gain: FloatArray, size: IntArray, free: int) -> float:
    """The least price per worker above which no more workers are wanted than are free."""
    wanted = np.flatnonzero(gain > 0)
    if size[wanted].sum() <= free:
        return 0.0
    if size.min() == size.max():  # no need to sort
        first_out = free // int(size[0])
        return float(-np.partition(-gain[wanted], first_out)[first_out])
    order = wanted[np.argsort(-gain[wanted])]
    return float(gain[order[np.searchsorted(np.cumsum(size[order]), free, side="right")]])


def _greedy(worth: FloatArray, size: IntArray, free: IntArray, jobs: IntArray, prices: FloatArray) -> IntArray:
    rows, columns = np.nonzero(worth > 0)
    order = np.argsort(prices[columns] - worth[rows, columns] / size[rows], kind="stable")
    left, sizes, first, second = free.tolist(), size.tolist(), jobs[:, 0].tolist(), jobs[:, 1].tolist()
    got: dict[int, int] = {}
    served: set[int] = set()
    for row, column in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        if left[column] < sizes[row] or first[row] in served or second[row] in served:
            continue
        got[row] = column
        served.add(first[row])
        served.add(second[row])
        left[column] -= sizes[row]
        if not any(left):
            break
    column_of = np.full(len(worth), len(free), dtype=np.int64)
    column_of[list(got)] = list(got.values())
    return column_of


class _State:
    """The column of each row's type; `column` = number of types: none. Only exchanges change it."""

    def __init__(self, worth: FloatArray, size: IntArray, jobs: IntArray, column: IntArray, free: IntArray) -> None:
        self.types = len(free)
        self.worth = np.column_stack([np.where(worth > 0, worth, -np.inf), np.zeros(len(worth))])
        self.size, self.jobs, self.column = size, jobs, column
        self.has_pairs = bool((jobs[:, 0] != jobs[:, 1]).any())
        self.free = free - np.bincount(column, weights=size, minlength=self.types + 1)[: self.types].astype(np.int64)

    @property
    def is_of_one_size(self) -> bool:
        """True if exchanges alone lead to the optimum: all gangs have one size, each of another job."""
        return not self.has_pairs and bool((self.size == self.size[0]).all())

    @property
    def is_worth_sorting(self) -> bool:
        """True if so many rows are sorted sooner than looked at at each exchange; a pair may block another row."""
        return not self.has_pairs and len(self.column) > SORTED_ROWS

    def is_best_for_all(self) -> bool:
        """True if every row is on the type where it is worth most: then there is nothing to exchange."""
        here = self.worth[np.arange(len(self.column)), self.column]
        return bool((here >= self.worth.max(axis=1) - GAIN_MIN).all())

    def is_blocked(self) -> BoolArray:
        """Rows, (r,), that have no type because another row of one of their jobs has one."""
        waits = self.column == self.types
        if not self.has_pairs:
            return np.zeros(len(waits), dtype=bool)
        served = np.zeros(int(self.jobs.max()) + 1, dtype=bool)
        served[self.jobs[~waits]] = True
        return np.asarray(waits & served[self.jobs].any(axis=1))

    def moves(self, size: int) -> tuple[FloatArray, IntArray]:
        """Return the least cost of a move between two columns, (m + 1, m + 1), and its row; -1: free workers."""
        cost = np.full((self.types + 1, self.types + 1), np.inf)
        mover = np.full(cost.shape, -1, dtype=np.int64)
        movable = (self.size == size) & ~self.is_blocked()
        for column in range(self.types + 1):
            rows = np.flatnonzero(movable & (self.column == column))
            if rows.size:
                lost = self.worth[rows, column, None] - self.worth[rows]
                best = lost.argmin(axis=0)
                cost[column], mover[column] = lost[best, np.arange(self.types + 1)], rows[best]
        return self.with_free_workers(cost, mover, size)

    def with_free_workers(self, cost: FloatArray, mover: IntArray, size: int) -> tuple[FloatArray, IntArray]:
        """Return costs and rows of moves, where free workers may be what moves, at no cost."""
        roomy = np.flatnonzero(self.free >= size)
        cost[roomy, -1], mover[roomy, -1] = 0.0, -1
        idle = np.flatnonzero(cost[-1] > 0)
        cost[-1, idle], mover[-1, idle] = 0.0, -1
        np.fill_diagonal(cost, 0.0)
        return cost, mover

    def turn(self, cycle: list[int], mover: IntArray, size: int) -> list[int]:
        """Make the moves around a cycle of columns; return the rows that moved."""
        moved = []
        for start, finish in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            row = int(mover[start, finish])
            if row < 0:
                continue
            self.column[row] = finish
            moved.append(row)
            if start < self.types:
                self.free[start] += size
            if finish < self.types:
                self.free[finish] -= size
        return moved

    def make_room(self) -> bool:
        """Replace the gangs worth least per worker by the waiting gang that gains most; False if none gains."""
        best, change = GAIN_MIN, None
        waiting = np.flatnonzero((self.column == self.types) & ~self.is_blocked())
        for column in range(self.types):
            there = np.flatnonzero(self.column == column)
            there = there[np.argsort(self.worth[there, column] / self.size[there], kind="stable")]
            freed = self.free[column] + np.r_[0, np.cumsum(self.size[there])]
            lost = np.r_[0.0, np.cumsum(self.worth[there, column])]
            rows = waiting[self.size[waiting] <= freed[-1]]
            out = np.searchsorted(freed, self.size[rows])
            gain = self.worth[rows, column] - lost[out]
            if rows.size and gain.max() > best:
                best, first = float(gain.max()), int(gain.argmax())
                change = rows[first], column, there[: out[first]]
        if change is not None:
            self._replace(*change)
        return change is not None

    def _replace(self, row: int, column: int, out: IntArray) -> None:
        self.column[out], self.column[row] = self.types, column
        self.free[column] += self.size[out].sum() - self.size[row]


def _exchange_all(state: _State) -> None:
    for size in sorted(set(state.size.tolist()), reverse=True):
        _exchange(state, size)


def _exchange(state: _State, size: int) -> None:
    """Turn cycles that raise the worth until there is none, among gangs of one size."""
    least: LeastMoves | None = None
    for _ in range(EXCHANGES_MAX):
        cost, mover = state.moves(size) if least is None else state.with_free_workers(*least.table(), size)
        cycle = _negative_cycle(cost)
        if not cycle:
            return
        if least is None and state.is_worth_sorting:
            least = LeastMoves(state.worth, state.column, np.flatnonzero(state.size == size))
        moved = state.turn(cycle, mover, size)
        if least is not None:
            least.take(moved)


def _negative_cycle(cost: FloatArray) -> list[int]:
    """A simple cycle of negative cost as its columns, [] if there is none; by all shortest paths (Floyd, Warshall)."""
    far, onward = cost.copy(), np.tile(np.arange(len(cost)), (len(cost), 1))
    for middle in range(len(cost)):
        through = far[:, middle, None] + far[None, middle]
        shorter = through < far - GAIN_MIN
        far = np.where(shorter, through, far)
        onward = np.where(shorter, onward[:, middle, None], onward)
        starts = np.flatnonzero(np.diagonal(far) < -GAIN_MIN)
        if starts.size:
            return _cycle_from(int(starts[0]), onward)
    return []


def _cycle_from(start: int, onward: IntArray) -> list[int]:
    path = [start]
    while (column := int(onward[path[-1], start])) not in path:
        path.append(column)
    return path[path.index(column) :]
