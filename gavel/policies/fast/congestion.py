"""The least congestion at which some jobs reach their targets: a structured interior point, and a simplex for few.

min z such that, for each job i and accelerator type j,
    sum_j A_ij x_ij >= tau_i,   sum_j x_ij <= 1,   held_j + sum_i s_i x_ij <= N_j + (z - 1) w_j,   x >= 0.
Everything but the m capacity rows concerns one job, so each Newton step is solved job by job (two rows each, in closed
form) and through one (m, m) matrix: O(k m^2) for k jobs, no sparse algebra.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.policies.fast.envelope import SizeColumns
from gavel.policies.fast.job_classes import Classes, classes
from gavel.types import BoolArray, FloatArray, IntArray

MOST_STEPS = 60
STALLED_AFTER = 4
SETTLED = 1e-8
CLOSE = 1e-3  # from here on an error that does not fall means that rounding has the upper hand
TO_THE_BORDER = 0.995


@dataclass(frozen=True, slots=True, eq=False)
class Congestion:
    """The least congestion question. k jobs, m types; `usable` says which of the (m, k) entries may be above zero.

    `rates` (m, k) are over the target (so that each target is 1), `room` (k,) is the limit on time, `free` (m,) is
    N - w - held, `elastic` (m,) is w. With `sizes` the entries are (columns, k), each of a type and a size.
    """

    rates: FloatArray
    usable: BoolArray
    scale: FloatArray
    room: FloatArray
    free: FloatArray
    elastic: FloatArray
    sizes: SizeColumns | None = None

    def of_types(self, held: FloatArray) -> FloatArray:
        """Return the workers of each type, (m, ..), of what is held by column."""
        return held if self.sizes is None else self.sizes.of_types(held)

    def paid(self, prices: FloatArray) -> FloatArray:
        """Return what each entry costs for all of its time, (m, k), at `prices` (m,) of the types."""
        of_column = prices if self.sizes is None else self.sizes.of_columns(prices)
        return self.scale * of_column[:, None]

    def alike(self) -> Classes:
        """Return the classes of jobs that ask for the same: what is best for one of them is best for all."""
        return classes([*self.rates, self.room])

    def of(self, kinds: Classes) -> "Congestion":
        """Return the question with each class as one job of all its members' workers."""
        first = kinds.first
        return replace(
            self,
            rates=self.rates[:, first],
            usable=self.usable[:, first],
            scale=np.bincount(kinds.of_job, self.scale).astype(np.float64),
            room=self.room[first],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """`z`, the fractions (m, k) that reach it, and prices (m,) of the types with sum_j p_j w_j = 1.

    `is_settled` is False where rounding kept the method from its end: z is then too high.
    """

    z: float
    fractions: FloatArray
    prices: FloatArray
    is_settled: bool = True


def by_simplex(asked: Congestion) -> Answer | None:
    """Return the answer at a vertex with exact prices, for few jobs (HiGHS); None if the solver has none."""
    jobs, kinds = asked.usable.T.nonzero()
    k, m, size = len(asked.scale), len(asked.free), len(jobs)
    lower, upper = np.full(2 * k + m, -np.inf), np.concatenate([np.full(k, np.inf), asked.room, asked.free])
    lower[:k] = 1.0
    cost, least = np.append(np.zeros(size), 1.0), np.append(np.zeros(size), -np.inf)
    try:
        x, prices = simplex.least(_matrix(asked, kinds, jobs), cost, least, (lower, upper))
    except SolveFailed:
        return None
    fractions = np.zeros(asked.rates.shape)
    fractions[kinds, jobs] = np.maximum(0.0, x[:-1])
    return Answer(float(x[-1]), fractions, np.maximum(0.0, -prices[2 * k :]))


def _matrix(asked: Congestion, kinds: IntArray, jobs: IntArray) -> simplex.ByColumn:
    """Targets, times and workers, by the entries of `kinds` and `jobs` (v,), and by z, which comes last."""
    k, m, size = len(asked.scale), len(asked.free), len(jobs)
    values, rows = np.ones((size, 3)), np.empty((size, 3), dtype=np.int32)
    values[:, 0], values[:, 2] = asked.rates[kinds, jobs], asked.scale[jobs]
    types = kinds
    if asked.sizes is not None:
        types, values[:, 2] = asked.sizes.type_index[kinds], asked.scale[jobs] * asked.sizes.size[kinds]
    rows[:, 0], rows[:, 1], rows[:, 2] = jobs, k + jobs, 2 * k + types
    starts = np.append(np.arange(0, 3 * size + 1, 3), 3 * size + m)
    places = np.concatenate([rows.ravel(), np.arange(2 * k, 2 * k + m)])
    return simplex.ByColumn(2 * k + m, starts, places, np.concatenate([values.ravel(), -asked.elastic]))


def by_interior_point(asked: Congestion, tolerance: float) -> Answer:
    """Return the answer to about `tolerance`, or the best that was reached (Mehrotra's predictor and corrector)."""
    point = best = _Point.start(asked)
    waited = 0
    with np.errstate(all="ignore"):  # at the end of its precision a step may divide by zero: it is not taken
        for _ in range(MOST_STEPS):
            try:
                point = point.moved()
            except np.linalg.LinAlgError:
                break
            waited = 0 if point.error < best.error else waited + 1
            best = best if waited else point
            if (
                not np.isfinite(point.error)
                or best.error <= tolerance
                or (best.error <= CLOSE and waited > STALLED_AFTER)
            ):
                break
    fractions = _delivering(asked, best.x * asked.usable)
    z = float(((asked.of_types(fractions @ asked.scale) - asked.free) / asked.elastic).max())
    return Answer(z, fractions, best.p.copy(), is_settled=best.error <= max(SETTLED, tolerance))


def _delivering(asked: Congestion, fractions: FloatArray) -> FloatArray:
    """Fractions that reach each target exactly where time allows: what the method leaves short is rounding."""
    got = (asked.rates * fractions).sum(axis=0)
    delivering = fractions / np.maximum(got, 1e-300)
    enough: FloatArray = delivering / np.maximum(1.0, delivering.sum(axis=0))
    return enough


class _Parts:
    """A vector over the inequalities as one flat array: the (m, k) entries, then k targets, k times and m types."""

    __slots__ = ("entries", "flat", "targets", "times", "types")

    def __init__(self, flat: FloatArray, m: int, k: int) -> None:
        self.flat = flat
        self.entries = flat[: m * k].reshape(m, k)
        self.targets = flat[m * k : m * k + k]
        self.times = flat[m * k + k : m * k + 2 * k]
        self.types = flat[m * k + 2 * k :]


@dataclass(slots=True, eq=False)
class _Direction:
    slack: FloatArray
    dual: FloatArray
    z: float


class _Point:
    """z, and every inequality's slack and dual, flat (`_Parts`).

    The slack of x >= 0 is x itself, those of the three rows v (targets), u (time), r (capacity); their duals are d and
    lam, mu, p. Entries that are not usable stay at 1 and count nowhere: `open` is 0 there.
    """

    def __init__(self, asked: Congestion, slack: FloatArray, dual: FloatArray, z: float, opened: FloatArray) -> None:
        m, k = asked.rates.shape
        self.asked, self.z, self.open = asked, z, opened
        self.slack, self.dual = _Parts(slack, m, k), _Parts(dual, m, k)
        usable = _Parts(opened, m, k).entries
        self.x, self.p = self.slack.entries, self.dual.types
        held = usable * self.x
        self.short = 1.0 - (asked.rates * held).sum(axis=0) + self.slack.targets
        self.late = asked.room - held.sum(axis=0) - self.slack.times
        self.over = asked.free + asked.elastic * z - asked.of_types(held @ asked.scale) - self.slack.types
        gained, paid = self.dual.targets * asked.rates, self.dual.times + asked.paid(self.p)
        self.wrong = usable * (self.dual.entries - paid + gained)
        self.norm = 1.0 - float(asked.elastic @ self.p)
        self.products = opened * slack * dual
        self.gap = float(self.products.sum())
        primal = max(_most(self.short), _most(self.late), _most(self.over) / _most(asked.elastic))
        self.error = max(self.gap, primal, abs(self.norm), float(np.abs(self.wrong).max(axis=0).sum()))

    @staticmethod
    def start(asked: Congestion) -> "_Point":
        """Even shares, even prices, and slacks and duals of about the size that they will have."""
        k = len(asked.scale)
        count = np.maximum(1, asked.usable.sum(axis=0))
        best = (asked.rates * asked.usable).max(axis=0)
        need = np.minimum(1.0, 1.0 / best)
        x = np.where(asked.usable, need / count, 1.0)
        p = np.full(len(asked.free), 1.0 / float(asked.elastic.sum()))
        cost = asked.scale * float(p.mean())
        held = asked.of_types((asked.usable * x) @ asked.scale)
        z = max(1.0, float(((held - asked.free) / asked.elastic).max())) * 1.5
        r = np.maximum(asked.free + asked.elastic * z - held, 0.1 * asked.elastic)
        lam, mu = cost * need, cost * 0.5
        d = np.where(asked.usable, np.maximum(mu + asked.paid(p) - lam * asked.rates, 0.3 * cost), 1.0)
        slack = np.concatenate([x.ravel(), np.full(2 * k, 0.3), r])
        opened = np.concatenate([asked.usable.ravel(), np.ones(2 * k + len(r))])
        return _Point(asked, slack, np.concatenate([d.ravel(), lam, mu, p]), z, opened)

    def moved(self) -> "_Point":
        """One predictor and corrector step."""
        system = _System(self)
        slack, dual = self.slack.flat, self.dual.flat
        zero = system.direction(-self.products)
        primal, other = _step(slack, zero.slack), _step(dual, zero.dual)
        after = float((self.open * (slack + primal * zero.slack)) @ (dual + other * zero.dual))
        centre = max(0.0, after / self.gap) ** 3 * self.gap / float(self.open.sum())
        change = system.direction(self.open * (centre - zero.slack * zero.dual) - self.products)
        primal, other = TO_THE_BORDER * _step(slack, change.slack), TO_THE_BORDER * _step(dual, change.dual)
        moved = slack + primal * change.slack, dual + other * change.dual
        return _Point(self.asked, *moved, self.z + primal * change.z, self.open)


class _System:
    """The Newton system at a point: two rows a job, then the Schur complement over the types."""

    def __init__(self, point: _Point) -> None:
        asked, slack, dual = point.asked, point.slack, point.dual
        self.point = point
        self.ratio = _Parts(point.open * slack.flat / dual.flat, *asked.rates.shape)
        self.w = self.ratio.entries
        rated = asked.rates * self.w
        k11 = (asked.rates * rated).sum(axis=0) + self.ratio.targets
        k12 = -rated.sum(axis=0)
        k22 = self.w.sum(axis=0) + self.ratio.times
        det = k11 * k22 - k12 * k12
        self.inverse = (k22 / det, -k12 / det, k11 / det)
        self.f1, self.f2 = asked.of_types(asked.scale * rated), asked.of_types(-asked.scale * self.w)
        g1, g2 = self._per_job(self.f1, self.f2)
        schur = np.diag(self._squared() + self.ratio.types) - self.f1 @ g1.T - self.f2 @ g2.T
        *self.factors, singular = _lapack().dgetrf(schur)
        if singular:
            raise np.linalg.LinAlgError
        self.for_z = self._solved(asked.elastic)

    def _squared(self) -> FloatArray:
        """What the entries of each type weigh by the squares of their workers, (m,)."""
        asked, squared = self.point.asked, self.w @ (self.point.asked.scale**2)
        return squared if asked.sizes is None else asked.sizes.of_types(squared * asked.sizes.size)

    def _per_job(self, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        i11, i12, i22 = self.inverse
        return i11 * first + i12 * second, i12 * first + i22 * second

    def _solved(self, right: FloatArray) -> FloatArray:
        solution: FloatArray = _lapack().dgetrs(*self.factors, right)[0]
        return solution

    def direction(self, products: FloatArray) -> _Direction:
        """Where the residuals vanish and slack times dual changes by `products` (flat), to first order."""
        point, asked, m, k = self.point, self.point.asked, *self.point.asked.rates.shape
        by_slack, by_dual = _Parts(products / point.slack.flat, m, k), _Parts(products / point.dual.flat, m, k)
        pull = point.wrong + by_slack.entries
        pulled = self.w * pull
        h1 = point.short + by_dual.targets - (asked.rates * pulled).sum(axis=0)
        h2 = pulled.sum(axis=0) - point.late + by_dual.times
        e1, e2 = self._per_job(h1, h2)
        right = by_dual.types - point.over + asked.of_types(pulled @ asked.scale) + self.f1 @ e1 + self.f2 @ e2
        straight = self._solved(right)
        dz = (float(asked.elastic @ straight) - point.norm) / float(asked.elastic @ self.for_z)
        dp = straight - self.for_z * dz
        dlam, dmu = self._per_job(h1 + dp @ self.f1, h2 + dp @ self.f2)
        slack, dual = np.empty_like(products), np.empty_like(products)
        slack[: m * k] = (self.w * (pull + asked.rates * dlam - dmu - asked.paid(dp))).ravel()
        dual[m * k :] = np.concatenate([dlam, dmu, dp])
        rows, entries = slice(m * k, None), slice(0, m * k)
        slack[rows] = by_dual.flat[rows] - self.ratio.flat[rows] * dual[rows]
        back = by_slack.flat[entries] - point.dual.flat[entries] / point.slack.flat[entries] * slack[entries]
        dual[entries] = point.open[entries] * back
        return _Direction(slack, dual, dz)


def _lapack() -> Any:
    """LAPACK itself: for m by m what numpy puts around it takes longer than the solution."""
    from scipy.linalg import lapack

    return lapack


def _most(values: FloatArray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _step(value: FloatArray, change: FloatArray) -> float:
    """The longest step, at most 1, along `change` that keeps `value` >= 0."""
    return 1.0 / max(1.0, float((-change / value).max()))
