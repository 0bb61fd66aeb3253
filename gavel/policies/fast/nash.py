"""The Nash bargaining solution by a structured interior point, for several sets of weights at once.

maximise sum_i w_i log sum_j A_ij x_ij such that, for each job i and accelerator type j,
    sum_j x_ij <= 1,   sum_i s_i x_ij <= N_j,   x >= 0.
Everything but the m capacity rows concerns one job, whose Hessian is a diagonal plus two rows, so each Newton step is
solved job by job in closed form and through one (m, m) matrix, as in `congestion`. Partial allocation asks the question
n times, each time without one job: a weight of zero leaves a job out, and b questions are solved side by side.

At prices p of the workers and mu of the jobs' time, let rho_i = max_j A_ij / (s_i p_j + mu_i). No valid allocation has
a weighted mean of logarithms above sum_i w_i log(w_i rho_i) + log(p . N + sum_i mu_i), with weights that sum to 1.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gavel.errors import SolveFailed
from gavel.types import BoolArray, FloatArray

MOST_STEPS = 50
SETTLED, CLOSE = 1e-9, 1e-7  # of all conditions; if close, an error that does not fall means that rounding rules
NEGLIGIBLE = 1e-6  # of a job's time: less is the rounding of the method
TO_THE_BORDER = 0.995
REGULAR = 1e-14  # relative: where a job's time and its type's workers end at once, the matrix would be singular
MOST_ENTRIES = 500_000  # worked on at once


@dataclass(frozen=True, slots=True, eq=False)
class Bargain:
    """k jobs (or classes of identical ones) and m types: `rates` (m, k), `scale` (k,) workers held, `workers` (m,)."""

    rates: FloatArray
    scale: FloatArray
    workers: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Agreed:
    """The answers to b questions: `fractions` (b, m, k), and the `gap` (b,) of the mean logarithm to its bound."""

    fractions: FloatArray
    gap: FloatArray


def agree(bargain: Bargain, weight: FloatArray) -> Agreed:
    """Return the answer for each row of `weight` (b, k); a job of weight 0 gets nothing. Raises SolveFailed.

    Every job of positive weight has to have a positive rate on a type with workers.
    """
    at_once = max(1, MOST_ENTRIES // max(1, bargain.rates.size))
    parts = [_agree(bargain, weight[begin : begin + at_once]) for begin in range(0, len(weight), at_once)]
    return Agreed(np.concatenate([part.fractions for part in parts]), np.concatenate([part.gap for part in parts]))


def _agree(bargain: Bargain, weight: FloatArray) -> Agreed:
    unit = float(bargain.workers.mean())
    best = bargain.rates.max(axis=0)
    scaled = Bargain(bargain.rates / np.where(best > 0, best, 1.0), bargain.scale / unit, bargain.workers / unit)
    point = _Point.start(scaled, weight / weight.sum(axis=1, keepdims=True))
    fractions, gap, waiting = (
        np.zeros((len(weight), *bargain.rates.shape)),
        np.zeros(len(weight)),
        np.arange(len(weight)),
    )
    for _ in range(MOST_STEPS):
        before, point = point, _closer(point)
        stalled = (before.error <= CLOSE) & ~(point.error <= before.error)
        for done, ended in ((stalled, before), ((point.error <= SETTLED) & ~stalled, point)):
            if done.any():
                fractions[waiting[done]], gap[waiting[done]] = ended.of(done).agreed()
        left = ~stalled & ~(point.error <= SETTLED)
        point, waiting = point.of(left), waiting[left]
        if not len(waiting):
            return Agreed(fractions, gap)
    raise SolveFailed("the interior point of the Nash bargaining solution did not settle")


def _closer(point: "_Point") -> "_Point":
    """Return the next point; raises SolveFailed where rounding has the upper hand."""
    try:
        return point.moved()
    except np.linalg.LinAlgError as error:
        raise SolveFailed("the interior point of the Nash bargaining solution met a singular system") from error


@dataclass(frozen=True, eq=False)
class _Point:
    """Slacks and duals of all inequalities, (b, m k + k + m) each: of x >= 0, of jobs' time, and of types' workers.

    The slack of x >= 0 is x itself; its dual is d, those of the other rows mu and p. Entries that are not `open` (b,
    like the slacks) stay at 1 and count nowhere. `weight` (b, k) sums to 1.
    """

    bargain: Bargain
    weight: FloatArray
    open: FloatArray
    slack: FloatArray
    dual: FloatArray

    @staticmethod
    def start(bargain: Bargain, weight: FloatArray) -> "_Point":
        """Return even shares of every type, and prices at which they are about right."""
        (m, k), b = bargain.rates.shape, len(weight)
        usable = (bargain.rates > 0) & (bargain.workers > 0)[:, None] & (weight > 0)[:, None, :]
        asked = np.maximum((usable * bargain.scale).sum(axis=2), 1e-300)
        share = np.minimum(0.9 / m, 0.9 * bargain.workers / asked)[:, :, None]
        mu = np.maximum(0.5 * weight, 0.05 / k)
        p = np.tile(0.5 / (m * np.maximum(bargain.workers, 1e-3)), (b, 1))
        d = np.where(usable, mu[:, None] + bargain.scale * p[:, :, None], 1.0)
        x = np.where(usable, share, 1.0)
        used = usable * x
        u, r = 1.0 - used.sum(axis=1), np.maximum(bargain.workers - used @ bargain.scale, 0.1)
        opened = np.concatenate([usable.reshape(b, -1), np.ones((b, k + m))], axis=1)
        slack = np.concatenate([x.reshape(b, -1), u, r], axis=1)
        return _Point(bargain, weight, opened, slack, np.concatenate([d.reshape(b, -1), mu, p], axis=1))

    def split(self, flat: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the parts of `flat`: entries (b, m, k), times (b, k) and types (b, m)."""
        m, k = self.bargain.rates.shape
        return flat[:, : m * k].reshape(-1, m, k), flat[:, m * k : m * k + k], flat[:, m * k + k :]

    @cached_property
    def held(self) -> FloatArray:
        """The time of each entry, (b, m, k), 0 where it cannot be used."""
        held: FloatArray = self.split(self.open * self.slack)[0]
        return held

    @cached_property
    def rate(self) -> FloatArray:
        """What each job has, (b, k); 1 for those that take no part."""
        rate: FloatArray = (self.bargain.rates * self.held).sum(axis=1) + (self.weight <= 0)
        return rate

    @cached_property
    def residuals(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What is missing in the conditions of stationarity (b, m, k), of time (b, k) and of workers (b, m)."""
        bargain, usable = self.bargain, self.split(self.open)[0]
        (_, u, r), (d, mu, p) = self.split(self.slack), self.split(self.dual)
        paid = mu[:, None] + bargain.scale * p[:, :, None]
        wrong = usable * (paid - d - (self.weight / self.rate)[:, None] * bargain.rates)
        return wrong, 1.0 - self.held.sum(axis=1) - u, bargain.workers - self.held @ bargain.scale - r

    @cached_property
    def gap(self) -> FloatArray:
        """Slack times dual, over all inequalities, (b,)."""
        gap: FloatArray = (self.open * self.slack * self.dual).sum(axis=1)
        return gap

    @cached_property
    def error(self) -> FloatArray:
        """The largest violation of an optimality condition, (b,)."""
        largest = self.gap
        for each in self.residuals:
            largest = np.maximum(largest, np.abs(each).reshape(len(each), -1).max(axis=1))
        return largest

    def of(self, chosen: BoolArray) -> "_Point":
        """Return the point of the `chosen` questions (b,) alone."""
        if chosen.all():
            return self
        return _Point(self.bargain, *(each[chosen] for each in (self.weight, self.open, self.slack, self.dual)))

    def moved(self) -> "_Point":
        """Return the point after one predictor and corrector step (Mehrotra)."""
        system, products = _System(self), self.open * self.slack * self.dual
        slack, dual = system.direction(-products)
        after = self.slack + _step(self.slack, slack) * slack, self.dual + _step(self.dual, dual) * dual
        left = (self.open * after[0] * after[1]).sum(axis=1) / self.gap
        centre = np.maximum(left, 0.0) ** 3 * self.gap / self.open.sum(axis=1)
        slack, dual = system.direction(self.open * (centre[:, None] - slack * dual) - products)
        primal, other = TO_THE_BORDER * _step(self.slack, slack), TO_THE_BORDER * _step(self.dual, dual)
        step = np.minimum(primal, other)  # one for both: the objective is not linear
        return _Point(self.bargain, self.weight, self.open, self.slack + step * slack, self.dual + step * dual)

    def agreed(self) -> tuple[FloatArray, FloatArray]:
        """Return fractions (b, m, k) within all limits, and their distance (b,) to the bound at these prices."""
        bargain, weight = self.bargain, self.weight
        held = np.where(self.held < NEGLIGIBLE * self.held.max(axis=1, keepdims=True), 0.0, self.held)
        held = held / np.maximum(1.0, held.sum(axis=1, keepdims=True))
        full = held @ bargain.scale / np.where(bargain.workers > 0, bargain.workers, 1.0)
        held = held / np.maximum(1.0, full.max(axis=1))[:, None, None]
        _, mu, p = self.split(self.dual)
        rho = (bargain.rates * self.split(self.open)[0] / (mu[:, None] + bargain.scale * p[:, :, None])).max(axis=1)
        there = weight > 0
        most = np.where(there, weight * np.log(np.where(there, weight * rho, 1.0)), 0.0).sum(axis=1)
        got = np.where(there, (bargain.rates * held).sum(axis=1), 1.0)
        bound = most + np.log(p @ bargain.workers + (mu * there).sum(axis=1))
        return held, np.maximum(0.0, bound - (weight * np.log(got)).sum(axis=1))


class _System:
    """The Newton system at a point: two rows a job, then the Schur complement over the types.

    The rows of a job are its rates less their mean (weighted as its entries may move), and ones: with the rates as they
    are, the determinant of the two would be a difference of nearly equal numbers.
    """

    def __init__(self, point: _Point) -> None:
        rates, scale = point.bargain.rates, point.bargain.scale
        self.point = point
        self.ratio = point.open * point.slack / point.dual
        self.w, times, types = point.split(self.ratio)
        moves = self.w.sum(axis=1)
        self.mean = (rates * self.w).sum(axis=1) / np.where(moves > 0, moves, 1.0)
        self.rates = rates - self.mean[:, None]
        rated = self.rates * self.w
        curved = (self.rates * rated).sum(axis=1) + point.rate**2 / np.where(point.weight > 0, point.weight, 1.0)
        leaned = times * self.mean
        det = curved * (moves + times) + leaned * self.mean * moves
        self.inverse = (moves + times) / det, leaned / det, (curved + leaned * self.mean) / det
        self.f1, self.f2 = scale * rated, scale * self.w
        g1, g2 = self._per_job(self.f1, self.f2)
        schur = -(self.f1 @ g1.swapaxes(1, 2)) - self.f2 @ g2.swapaxes(1, 2)
        every = np.arange(len(point.bargain.workers))
        schur[:, every, every] += (1 + REGULAR) * (self.w @ (scale * scale)) + types
        self.solution = np.linalg.inv(schur)

    def _per_job(self, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        i11, i12, i22 = self.inverse if first.ndim == 2 else (each[:, None] for each in self.inverse)
        return i11 * first + i12 * second, i12 * first + i22 * second

    def direction(self, products: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the changes of slacks and duals with which slack times dual changes by `products`, to first order."""
        point, scale = self.point, self.point.bargain.scale
        wrong, late, over = point.residuals
        _, times, types = point.split(products / point.dual)
        aimed = point.split(products / point.slack)[0]
        pull = aimed - wrong
        pulled, spare = self.w * pull, times - late
        h1, h2 = (self.rates * pulled).sum(axis=1) - self.mean * spare, pulled.sum(axis=1) + spare
        e1, e2 = self._per_job(h1, h2)
        paid = (self.f1 @ e1[:, :, None] + self.f2 @ e2[:, :, None])[:, :, 0]
        dp = self.solution @ (pulled @ scale - paid - over + types)[:, :, None]
        y, nu = self._per_job(h1 - (dp * self.f1).sum(axis=1), h2 - (dp * self.f2).sum(axis=1))
        move = pull - self.rates * y[:, None] - nu[:, None] - scale * dp
        b, entries = len(dp), aimed[0].size
        dual = np.concatenate([(aimed - move).reshape(b, -1), nu - self.mean * y, dp[:, :, 0]], axis=1) * point.open
        slack = products / point.dual - self.ratio * dual
        slack[:, :entries] = (self.w * move).reshape(b, -1)
        return slack, dual


def _step(value: FloatArray, change: FloatArray) -> FloatArray:
    """Return the longest step (b, 1), at most 1, along `change` that keeps `value` above zero."""
    steps: FloatArray = 1.0 / np.maximum(1.0, (-change / value).max(axis=1, keepdims=True))
    return steps
