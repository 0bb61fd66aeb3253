"""Chooses how many replicas of a service there are on each accelerator type, at the least loss to training. Pure.

The program, for counts n of m types:

    minimise    sum_t loss_t n_t
    subject to  sum_t rate_t n_t >= needed
                least_t <= n_t <= most_t,   count_min <= sum_t n_t <= count_max,   n whole

It is small: one row for the rates and one for the count. Depth first search solves it, types in the order of loss per
request, with the fractional optimum of the types that are left as the bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

NODES_MAX = 2_000  # of the search; beyond them the best mix so far is taken
KEPT = 256  # answers: the same is asked at every tick until something changes
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class MixProblem:
    """The program of a service, its m types in a fixed order; `loss` above 0, `rate` in requests per second, above 0.

    `count_min` and `count_max` bound the sum of all; `needed`: requests per second that they are to answer.
    """

    rate: tuple[float, ...]
    loss: tuple[float, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]
    count_min: int
    count_max: int
    needed: float

    def covers(self, mix: Sequence[int]) -> bool:
        """Return True if so many replicas of each type answer what is needed."""
        return answered(self.rate, mix) >= self.needed * (1 - TOLERANCE)

    def loss_of(self, mix: Sequence[int]) -> float:
        """Return what training loses by so many replicas of each type."""
        return sum(each * count for each, count in zip(self.loss, mix, strict=True))


def answered(rate: Sequence[float], mix: Sequence[int]) -> float:
    """Return the requests per second that so many replicas of each type answer."""
    return sum(each * count for each, count in zip(rate, mix, strict=True))


@lru_cache(maxsize=KEPT)
def least_loss(problem: MixProblem) -> tuple[int, ...] | None:
    """Return the mix of least loss that answers what is needed; None if none does."""
    order = sorted(range(len(problem.rate)), key=lambda t: (problem.loss[t] / problem.rate[t], -problem.rate[t]))
    search = _Search(_beyond_least(problem, order))
    best = search.best()
    if best is None:
        return None
    mix = list(problem.least)
    for place, count in zip(order, best, strict=True):
        mix[place] += count
    return tuple(mix)


def most_answered(problem: MixProblem) -> tuple[int, ...]:
    """Return the mix that answers most within the bounds, of equal ones that of less loss."""
    mix, left = list(problem.least), problem.count_max - sum(problem.least)
    for t in sorted(range(len(mix)), key=lambda t: (-problem.rate[t], problem.loss[t])):
        more = max(0, min(left, problem.most[t] - mix[t]))
        mix[t], left = mix[t] + more, left - more
    return tuple(mix)


def _beyond_least(problem: MixProblem, order: Sequence[int]) -> MixProblem:
    """The program of what comes on top of `least`, its types in this order."""
    held = sum(problem.least)
    return replace(
        problem,
        rate=tuple(problem.rate[t] for t in order),
        loss=tuple(problem.loss[t] for t in order),
        least=(0,) * len(order),
        most=tuple(max(0, problem.most[t] - problem.least[t]) for t in order),
        count_min=max(0, problem.count_min - held),
        count_max=problem.count_max - held,
        needed=max(0.0, problem.needed * (1 - TOLERANCE) - answered(problem.rate, problem.least)),
    )


class _Search:
    """Depth first over the types; `least` is 0 everywhere, and the types are in the order of loss per request."""

    def __init__(self, problem: MixProblem) -> None:
        self._problem = problem
        types = range(len(problem.rate))
        self._fastest_from = [sorted(types[at:], key=lambda t: -problem.rate[t]) for at in (*types, len(types))]
        self._nodes = 0
        self._best: tuple[float, tuple[int, ...]] | None = None

    def best(self) -> tuple[int, ...] | None:
        if self._problem.count_max >= 0:
            self._go_on((), 0.0, self._problem.needed)
        return self._best[1] if self._best else None

    def _go_on(self, mix: tuple[int, ...], loss: float, needed: float) -> None:
        if len(mix) == len(self._problem.rate):
            is_enough = needed <= 0 and sum(mix) >= self._problem.count_min
            if is_enough and (self._best is None or loss < self._best[0] * (1 - TOLERANCE)):
                self._best = loss, mix
            return
        for count in self._counts(mix, needed):
            self._nodes += 1
            if self._nodes > NODES_MAX and self._best is not None:
                return
            after = (*mix, count)
            cost, left = loss + count * self._problem.loss[len(mix)], needed - count * self._problem.rate[len(mix)]
            if self._may_be_best(after, cost, left):
                self._go_on(after, cost, left)

    def _counts(self, mix: tuple[int, ...], needed: float) -> Iterator[int]:
        """The counts of the next type that may be of use, the largest first: it loses least per request."""
        place, held = len(mix), sum(mix)
        useful = max(ceil(max(0.0, needed) / self._problem.rate[place]), self._problem.count_min - held)
        most = min(useful, self._problem.most[place], self._problem.count_max - held)
        yield from range(most, -1, -1)

    def _may_be_best(self, mix: tuple[int, ...], loss: float, needed: float) -> bool:
        """False if no counts of the types that are left make this mix feasible, and better than the best so far."""
        places, bound, left = range(len(mix), len(self._problem.rate)), loss, needed
        slots, missing = self._problem.count_max - sum(mix), self._problem.count_min - sum(mix)
        for t in places:
            taken = min(max(0.0, left) / self._problem.rate[t], self._problem.most[t])
            bound, left = bound + taken * self._problem.loss[t], left - taken * self._problem.rate[t]
        if needed > self._within(slots, len(mix)) or missing > sum(self._problem.most[t] for t in places):
            return False
        if missing > 0:
            bound = max(bound, loss + missing * min(self._problem.loss[t] for t in places))
        return self._best is None or bound < self._best[0]

    def _within(self, slots: int, place: int) -> float:
        """The requests per second that so many replicas of the types from this place on answer at the most."""
        most = 0.0
        for t in self._fastest_from[place]:
            count = min(slots, self._problem.most[t])
            most, slots = most + count * self._problem.rate[t], slots - count
        return most * (1 + TOLERANCE)
