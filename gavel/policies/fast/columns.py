"""Packed pairs by class: a linear program over classes of identical jobs and pairs of classes, by column generation.

X_cj is the time that all jobs of class c together run alone on type j, X_cdj the time that they run beside jobs of d (d
may be c: two jobs of one class). With n_c jobs in class c and g the service that a unit of time gives to one of them:

    (1/n_c) sum over the columns with c of g X >= target_c       sum over the columns with c of X <= n_c
    sum over the columns on j of s X <= N_j                      X >= 0, a self pair counting twice for c

It is as exact as naming every job (`_classes`), and does not grow with the jobs: k classes have at most m k(k + 1)/2
pairs. Few of them are of use at a time. So the program starts with the jobs alone and the pairs that gain most, and
takes in what its prices show to be missing, until nothing is: then they bound all columns, taken in or not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.policies.programs.filling import LEAST_PRICE, SLACK, Answer
from gavel.types import FloatArray, IntArray

MOST_COLUMNS = 4_000_000
FIRST_PAIRS, NEXT_PAIRS = 200, 300
MOST_GENERATIONS = 500
NO_GAIN = 1e-10  # reduced cost; of a reach whose prices sum to about 1


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """v columns over k classes: time of `first` (v,) beside `second` (v,), -1: alone, on type `kind` (v,).

    `gain` (v, 2) is the service that a unit of time gives to one job of each, `scale` (v,) the workers it holds, and
    `count` (k,) how many jobs a class has. Those alone come first.
    """

    first: IntArray
    second: IntArray
    kind: IntArray
    gain: FloatArray
    scale: FloatArray
    count: IntArray


def columns(alone: FloatArray, parts: FloatArray, kind: IntArray, scale: IntArray, count: IntArray) -> Columns:
    """Every column that may be of use, pairs that gain most first. Raises SolveFailed for more than MOST_COLUMNS.

    `alone` (k, m) is the service of a job of each class per unit of time, `parts` (k, g, m) what is left of that beside
    a job of each kind, `kind` (k,) that of each class, -1: never packed. Left out are pairs of which no more than 1
    part is left together: their jobs get as much by taking turns.
    """
    k, types = alone.shape
    if k * k * types > 2 * MOST_COLUMNS:
        raise SolveFailed(f"{k} classes of jobs make too many pairs; most: {MOST_COLUMNS} columns")
    single, on = np.nonzero(alone > 0)
    c, d = np.triu_indices(k)
    may = (scale[c] == scale[d]) & (kind[c] >= 0) & (kind[d] >= 0) & ((c != d) | (count[c] > 1))
    c, d = c[may], d[may]
    left = np.stack([parts[c, kind[d]], parts[d, kind[c]]], axis=2)
    pair, pair_on = np.nonzero((left > 0).all(axis=2) & (left.sum(axis=2) > 1))
    best = np.argsort(-left[pair, pair_on].sum(axis=1), kind="stable")
    pair, pair_on = pair[best], pair_on[best]
    c, d = c[pair], d[pair]
    gain = np.zeros((len(single) + len(c), 2))
    gain[: len(single), 0] = alone[single, on]
    gain[len(single) :] = left[pair, pair_on] * np.column_stack([alone[c, pair_on], alone[d, pair_on]])
    first, second = np.concatenate([single, c]), np.concatenate([np.full(len(single), -1), d])
    return Columns(first, second, np.concatenate([on, pair_on]), gain, scale[first].astype(float), count)


class Generated:
    """The question "how far towards these targets?" over `columns` and `workers` (m,) of each type; k classes.

    A simplex (HiGHS) goes on from its last answer each time. `time` (v,) is what it holds: the time of each column.
    `gap` is the most, in reach, by which an answer may have fallen short of its own bound.
    """

    def __init__(self, columns: Columns, workers: FloatArray, time_limit_s: float) -> None:
        self.jobs = len(columns.count)
        self.time, self.gap = np.zeros(len(columns.first)), 0.0
        self._columns, self._workers = columns, workers
        self._unit = _unit(columns)
        self._by_column = _matrix(columns, workers, self._unit)
        self._start = np.zeros(self.jobs)
        self._limits = np.ones(self.jobs + len(workers))
        alone = int((columns.second < 0).sum())
        self._taken = np.arange(min(len(columns.first), alone + FIRST_PAIRS))
        self._highs = _stated(self._by_column[self._taken], self.jobs)
        self._highs.setOptionValue("time_limit", time_limit_s)

    def within(self, workers: FloatArray | None) -> None:
        """Ask from now on within `workers` (m,) of each type; None: the whole cluster."""
        self._limits[self.jobs :] = 1.0 if workers is None else workers / self._workers

    def best(self, has_use: FloatArray | None = None) -> FloatArray:
        """The most service each job of a class can have, (k,), by its best column of those that are of use (v,)."""
        gain = self._columns.gain if has_use is None else self._columns.gain * has_use[:, None]
        best = np.zeros(self.jobs)
        np.maximum.at(best, self._columns.first, gain[:, 0])
        packed = self._columns.second >= 0
        np.maximum.at(best, self._columns.second[packed], gain[packed, 1])
        return best

    def ask(self, service: FloatArray, way: FloatArray) -> Answer:
        """How far along `way` every class can rise together from `service`; raises SolveFailed."""
        start = service * (1 - SLACK)
        self._pose(start, way)
        for _ in range(MOST_GENERATIONS):
            x, prices = self._solved(way)
            profit = self._by_column @ prices
            missing = profit > NO_GAIN
            missing[self._taken] = False
            if not missing.any():
                return self._answer(x, prices, profit, service)
            self._take(np.flatnonzero(missing)[np.argsort(-profit[missing], kind="stable")[:NEXT_PAIRS]])
        raise SolveFailed(f"the columns of packed pairs did not settle within {MOST_GENERATIONS} generations")

    def most(self, worth: FloatArray, least: FloatArray) -> float:
        """Maximise the sum of `worth` (k,) times service, every class keeping `least` (k,); raises SolveFailed.

        Returns how far, relatively, the answer may be from the best; `time` then holds it, and no more is to be asked.
        """
        value: FloatArray = self._by_column[:, : self.jobs] @ worth
        value = value / float(value.max())
        self._pose(least * (1 - SLACK), np.zeros(self.jobs))
        self._highs.changeColCost(0, 0.0)
        self._highs.changeColBounds(0, 0.0, 0.0)
        self._cost(self._taken, -value)
        for _ in range(MOST_GENERATIONS):
            x, prices = simplex.solved(self._highs)
            prices = np.append(np.maximum(0.0, prices[: self.jobs]), np.minimum(0.0, prices[self.jobs :]))
            profit = value + self._by_column @ prices
            missing = profit > NO_GAIN
            missing[self._taken] = False
            if not missing.any():
                share = self._share(x)
                self.time = share * self._unit
                bound = float(np.maximum(0.0, profit).sum() - prices[self.jobs :] @ self._limits)
                bound -= float(prices[: self.jobs] @ self._start)
                return max(0.0, bound / float(value @ share) - 1.0)
            more = np.flatnonzero(missing)[np.argsort(-profit[missing], kind="stable")[:NEXT_PAIRS]]
            self._take(more)
            self._cost(more, -value)
        raise SolveFailed(f"the columns of packed pairs did not settle within {MOST_GENERATIONS} generations")

    def _cost(self, columns: IntArray, cost: FloatArray) -> None:
        """Set the cost (v,) of these columns, which are among those taken."""
        place = np.flatnonzero(np.isin(self._taken, columns)).astype(np.int32)
        self._highs.changeColsCost(len(place), place + 1, cost[self._taken[place]])

    def _share(self, x: FloatArray) -> FloatArray:
        """The share (v,) of each column in the program's answer, within the workers."""
        share = np.zeros(len(self._unit))
        share[self._taken] = np.maximum(0.0, x[1:])
        used, limits = (self._by_column.T @ share)[self.jobs :], self._limits
        full = np.divide(used, limits, out=np.ones_like(limits), where=limits > 0)
        share /= max(1.0, float(full.max()))
        return share

    def _pose(self, start: FloatArray, way: FloatArray) -> None:
        lower = np.concatenate([start, np.full(len(self._limits), -np.inf)])
        simplex.bound(self._highs, lower, np.concatenate([np.full(self.jobs, np.inf), self._limits]))
        for row in range(self.jobs):
            self._highs.changeCoeff(row, 0, -way[row])
        self._start = start

    def _solved(self, way: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Reach and the time of the columns taken, (1 + taken,), and the prices of the rows, of which the way costs 1.

        Prices of time and workers count as negative, so that what a column yields beyond its cost is matrix @ prices.
        """
        x, prices = simplex.solved(self._highs)
        prices[: self.jobs] = np.maximum(0.0, prices[: self.jobs])
        prices[self.jobs :] = np.minimum(0.0, prices[self.jobs :])
        costs = float(prices[: self.jobs] @ way)
        if not costs > 0:
            raise SolveFailed("highs gave no price to the targets")
        return x, prices / costs

    def _take(self, more: IntArray) -> None:
        added = self._by_column[more]
        zeros, top = np.zeros(len(more)), np.full(len(more), np.inf)
        self._highs.addCols(len(more), zeros, zeros, top, added.nnz, added.indptr[:-1], added.indices, added.data)
        self._taken = np.concatenate([self._taken, more])

    def _answer(self, x: FloatArray, prices: FloatArray, profit: FloatArray, service: FloatArray) -> Answer:
        """The answer at `x` and its distance to the bound at `prices`, in which what a column may yield counts too."""
        k, reach = self.jobs, float(x[0])
        share = self._share(x)
        yielded = float(np.maximum(0.0, profit).sum())  # no column's share exceeds 1
        bound = -float(prices[k:] @ self._limits) - float(prices[:k] @ self._start) + yielded
        self.gap = max(self.gap, bound - reach)
        self.time = share * self._unit
        paid = (self._by_column[:, k:] @ -prices[k:]) / self._unit
        return Answer(
            reach=reach,
            exact_reach=reach - SLACK * float(prices[:k] @ service),
            service=(self._by_column.T @ share)[:k],
            prices=prices[:k],
            stuck=prices[:k] / self._columns.count * float(self._columns.count.mean()),
            has_use=(-profit / self._unit <= LEAST_PRICE * float(paid.max())).astype(float),
        )


def _unit(columns: Columns) -> FloatArray:
    """The most time that each column can have, (v,), as far as its jobs allow: it counts in shares of that."""
    packed, count = columns.second >= 0, columns.count.astype(float)
    smaller = np.where(packed, np.minimum(count[columns.first], count[columns.second]), count[columns.first])
    unit: FloatArray = np.where(columns.first == columns.second, smaller / 2, smaller)
    return unit


def _matrix(columns: Columns, workers: FloatArray, unit: FloatArray) -> Any:
    """(v, 2k + m): the service of each class, the time and the workers, as parts of those there are, of each column."""
    from scipy import sparse

    k, every = len(columns.count), np.arange(len(columns.first))
    packed = np.flatnonzero(columns.second >= 0)
    column = np.concatenate([every, packed])
    of_class = np.concatenate([columns.first, columns.second[packed]])
    part = unit[column] / columns.count[of_class]
    served = part * np.concatenate([columns.gain[:, 0], columns.gain[packed, 1]])
    held = columns.scale * unit / workers[columns.kind]
    rows = np.concatenate([column, column, every])
    places = np.concatenate([of_class, k + of_class, 2 * k + columns.kind])
    values = np.concatenate([served, part, held])
    return sparse.csr_array((values, (rows, places)), shape=(len(every), 2 * k + len(workers)))


def _stated(by_column: Any, classes: int) -> Any:
    """The program over some columns, after the reach, which takes from every class's service as it is asked."""
    every, size = np.arange(classes), by_column.shape[0] + 1
    matrix = simplex.ByColumn(
        by_column.shape[1],
        np.concatenate([[0], classes + by_column.indptr]),
        np.concatenate([every, by_column.indices]),
        np.concatenate([-np.ones(classes), by_column.data]),
    )
    cost, lower = np.append(-1.0, np.zeros(size - 1)), np.append(-np.inf, np.zeros(size - 1))
    # primal: with a column more the last answer is still valid
    return simplex.stated(matrix, cost, lower, method=simplex.PRIMAL)
