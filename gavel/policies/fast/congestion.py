"""The least congestion at which some jobs reach their targets: a structured interior point, and a simplex for few.

min z such that, for each job i and accelerator type j,
    sum_j A_ij x_ij >= tau_i,   sum_j x_ij <= 1,   held_j + sum_i s_i x_ij <= N_j + (z - 1) w_j,   x >= 0.
Everything but the m capacity rows concerns one job, so each Newton step is solved job by job (two rows each, in closed
form) and through one (m, m) matrix: O(k m^2) for k jobs, no sparse algebra.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gavel.types import FloatArray

BoolArray = npt.NDArray[np.bool_]

MOST_STEPS = 60
STALLED_AFTER = 4
SETTLED = 1e-8
CLOSE = 1e-3  # from here on an error that does not fall means that rounding has the upper hand
TO_THE_BORDER = 0.995


@dataclass(frozen=True, slots=True, eq=False)
class Congestion:
    """The least congestion question. k jobs, m types; `usable` says which of the (m, k) entries may be above zero.

    `rates` (m, k) are over the target (so that each target is 1), `room` (k,) is the limit on time, `free` (m,) is
    N - w - held, `elastic` (m,) is w.
    """

    rates: FloatArray
    usable: BoolArray
    scale: FloatArray
    room: FloatArray
    free: FloatArray
    elastic: FloatArray


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
    """The answer at a vertex with exact prices, for few jobs (HiGHS); None if the solver has none."""
    from scipy import sparse
    from scipy.optimize import linprog

    kinds, jobs = np.nonzero(asked.usable)
    column, size = np.arange(len(jobs)), len(jobs)
    k, m = len(asked.scale), len(asked.free)
    values = np.concatenate([-asked.rates[kinds, jobs], np.ones(size), asked.scale[jobs], -asked.elastic])
    rows = np.concatenate([jobs, k + jobs, 2 * k + kinds, 2 * k + np.arange(m)])
    columns = np.concatenate([column, column, column, np.full(m, size)])
    matrix = sparse.csc_array((values, (rows, columns)), shape=(2 * k + m, size + 1))
    limits = np.concatenate([-np.ones(k), asked.room, asked.free])
    bounds = np.zeros((size + 1, 2))
    bounds[:, 1], bounds[size, 0] = np.inf, -np.inf
    cost = np.append(np.zeros(size), 1.0)
    exact = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(cost, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs-ds", options=exact)
    if found.status != 0:
        return None
    fractions = np.zeros((m, k))
    fractions[kinds, jobs] = np.maximum(0.0, found.x[:size])
    return Answer(float(found.fun), fractions, np.maximum(0.0, -found.ineqlin.marginals[2 * k :]))


def by_interior_point(asked: Congestion, tolerance: float) -> Answer:
    """The answer to about `tolerance`, or the best that was reached (Mehrotra's predictor and corrector)."""
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
    z = float(((fractions @ asked.scale - asked.free) / asked.elastic).max())
    return Answer(z, fractions, best.p, is_settled=best.error <= SETTLED)


def _delivering(asked: Congestion, fractions: FloatArray) -> FloatArray:
    """Fractions that reach each target exactly where time allows: what the method leaves short is rounding."""
    got = (asked.rates * fractions).sum(axis=0)
    delivering = fractions / np.maximum(got, 1e-300)
    enough: FloatArray = delivering / np.maximum(1.0, delivering.sum(axis=0))
    return enough


@dataclass(slots=True, eq=False)
class _Direction:
    x: FloatArray
    v: FloatArray
    u: FloatArray
    r: FloatArray
    z: float
    d: FloatArray
    lam: FloatArray
    mu: FloatArray
    p: FloatArray


class _Point:
    """x and z with slacks v (targets), u (time), r (capacity); duals d of x >= 0 and lam, mu, p of the three rows."""

    def __init__(self, asked: Congestion, at: _Direction) -> None:
        self.asked, self.at = asked, at
        self.x, self.z, self.p = at.x, at.z, at.p
        self.open = asked.usable.astype(float)
        held = self.open * at.x
        self.short = 1.0 - (asked.rates * held).sum(axis=0) + at.v
        self.late = asked.room - held.sum(axis=0) - at.u
        self.over = asked.free + asked.elastic * at.z - held @ asked.scale - at.r
        self.wrong = self.open * (at.d - at.mu - asked.scale * at.p[:, None] + at.lam * asked.rates)
        self.norm = 1.0 - float(asked.elastic @ at.p)
        self.products = int(asked.usable.sum()) + 2 * len(at.v) + len(at.r)
        self.gap = float((held * at.d).sum() + at.v @ at.lam + at.u @ at.mu + at.r @ at.p)
        primal = max(_most(self.short), _most(self.late), _most(self.over) / _most(asked.elastic))
        self.error = max(self.gap, primal, abs(self.norm), float(np.abs(self.wrong).max(axis=0).sum()))

    @staticmethod
    def start(asked: Congestion) -> "_Point":
        """Even shares, even prices, and slacks and duals of about the size that they will have."""
        m, k = asked.rates.shape
        count = np.maximum(1, asked.usable.sum(axis=0))
        best = (asked.rates * asked.usable).max(axis=0)
        need = np.minimum(1.0, 1.0 / best)
        x = np.where(asked.usable, need / count, 1.0)
        p = np.full(m, 1.0 / float(asked.elastic.sum()))
        cost = asked.scale * float(p.mean())
        load = ((asked.usable * x) @ asked.scale - asked.free) / asked.elastic
        z = max(1.0, float(load.max())) * 1.5
        r = np.maximum(asked.free + asked.elastic * z - (asked.usable * x) @ asked.scale, 0.1 * asked.elastic)
        lam, mu = cost * need, cost * 0.5
        d = np.where(asked.usable, np.maximum(mu + asked.scale * p[:, None] - lam * asked.rates, 0.3 * cost), 1.0)
        return _Point(asked, _Direction(x, np.full(k, 0.3), np.full(k, 0.3), r, z, d, lam, mu, p))

    def moved(self) -> "_Point":
        """One predictor and corrector step."""
        system = _System(self)
        at = self.at
        zero = system.direction(-self.open * at.x * at.d, -at.v * at.lam, -at.u * at.mu, -at.r * at.p)
        primal, dual = self._step(zero)
        after = self._gap_after(zero, primal, dual)
        centre = max(0.0, after / self.gap) ** 3 * self.gap / self.products
        change = system.direction(
            self.open * (centre - at.x * at.d - zero.x * zero.d),
            centre - at.v * at.lam - zero.v * zero.lam,
            centre - at.u * at.mu - zero.u * zero.mu,
            centre - at.r * at.p - zero.r * zero.p,
        )
        primal, dual = self._step(change)
        return self._along(change, min(1.0, TO_THE_BORDER * primal), min(1.0, TO_THE_BORDER * dual))

    def _step(self, to: _Direction) -> tuple[float, float]:
        at = self.at
        primal = max(_blocks(at.x, to.x), _blocks(at.v, to.v), _blocks(at.u, to.u), _blocks(at.r, to.r))
        dual = max(_blocks(at.d, to.d), _blocks(at.lam, to.lam), _blocks(at.mu, to.mu), _blocks(at.p, to.p))
        return 1.0 / max(1.0, primal), 1.0 / max(1.0, dual)

    def _gap_after(self, to: _Direction, a: float, b: float) -> float:
        at = self.at
        entries = (self.open * (at.x + a * to.x) * (at.d + b * to.d)).sum()
        rows = (at.v + a * to.v) @ (at.lam + b * to.lam) + (at.u + a * to.u) @ (at.mu + b * to.mu)
        return float(entries + rows + (at.r + a * to.r) @ (at.p + b * to.p))

    def _along(self, to: _Direction, a: float, b: float) -> "_Point":
        at = self.at
        return _Point(
            self.asked,
            _Direction(
                at.x + a * to.x, at.v + a * to.v, at.u + a * to.u, at.r + a * to.r, at.z + a * to.z,
                at.d + b * to.d, at.lam + b * to.lam, at.mu + b * to.mu, at.p + b * to.p,
            ),
        )  # fmt: skip


class _System:
    """The Newton system at a point: two rows a job, then the Schur complement over the types."""

    def __init__(self, point: _Point) -> None:
        asked, at = point.asked, point.at
        self.point = point
        self.w = point.open * at.x / at.d
        rated = asked.rates * self.w
        k11 = (asked.rates * rated).sum(axis=0) + at.v / at.lam
        k12 = -rated.sum(axis=0)
        k22 = self.w.sum(axis=0) + at.u / at.mu
        det = k11 * k22 - k12 * k12
        self.inverse = (k22 / det, -k12 / det, k11 / det)
        self.f1, self.f2 = asked.scale * rated, -asked.scale * self.w
        g1, g2 = self._per_job(self.f1, self.f2)
        self.schur = np.diag(self.w @ (asked.scale**2) + at.r / at.p) - self.f1 @ g1.T - self.f2 @ g2.T
        self.for_z = np.linalg.solve(self.schur, asked.elastic)

    def _per_job(self, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        i11, i12, i22 = self.inverse
        return i11 * first + i12 * second, i12 * first + i22 * second

    def direction(self, cx: FloatArray, cv: FloatArray, cu: FloatArray, cr: FloatArray) -> _Direction:
        """Where the residuals vanish and the complementary products change by cx, cv, cu, cr (to first order)."""
        point, asked, at = self.point, self.point.asked, self.point.at
        pull = point.wrong + cx / at.x
        pulled = self.w * pull
        h1 = point.short + cv / at.lam - (asked.rates * pulled).sum(axis=0)
        h2 = pulled.sum(axis=0) - point.late + cu / at.mu
        e1, e2 = self._per_job(h1, h2)
        right = cr / at.p - point.over + pulled @ asked.scale + self.f1 @ e1 + self.f2 @ e2
        straight = np.linalg.solve(self.schur, right)
        dz = (float(asked.elastic @ straight) - point.norm) / float(asked.elastic @ self.for_z)
        dp = straight - self.for_z * dz
        dlam, dmu = self._per_job(h1 + dp @ self.f1, h2 + dp @ self.f2)
        dx = self.w * (pull + asked.rates * dlam - dmu - asked.scale * dp[:, None])
        return _Direction(
            dx, (cv - at.v * dlam) / at.lam, (cu - at.u * dmu) / at.mu, (cr - at.r * dp) / at.p, dz,
            point.open * (cx - at.d * dx) / at.x, dlam, dmu, dp,
        )  # fmt: skip


def _most(values: FloatArray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _blocks(value: FloatArray, change: FloatArray) -> float:
    """The reciprocal of the longest step along `change` that keeps `value` >= 0."""
    return float((-change / value).max(initial=0.0))
