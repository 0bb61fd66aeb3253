"""Many jobs rearranged from classes of jobs that are nearly alike.

The jobs of a class have the same service on each type, and nearly the same gain. So the answer for the classes, each
as one job, is a valid one for the jobs, and its prices are nearly right. Then the jobs whose choice is not the best at
the prices, or nearly not, are placed anew in what the others leave: the total only rises, and the prices of each such
program prove how far it is from the greatest.
"""

import numpy as np

from gavel.policies.fast.job_classes import Classes, classes
from gavel.policies.fast.rearranged_places import NOISE, placed
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.types import BoolArray, FloatArray, IntArray

NEARLY = 0.03  # relative: gains of one class are that near to each other
MOST_ROUNDS = 20
MOST_PLACED = 8_000  # jobs a round; with more the linear program takes seconds
NEAREST, WIDER = (
    6,
    2,
)  # jobs of each group whose choice is nearest to another one, in the first round; times, each round
EXACT = 1e-8  # relative distance to the bound: less than one job's place in the order of a class counts
TIGHT = 0.5  # of a job's best service: a job that keeps more is in a class with those alone that keep as much


def alike(asked: Asked) -> Classes:
    """Return the classes of jobs with equal service, and nearly equal gain where they may have nothing."""
    gain = asked.gain.max(axis=1)
    sizes = np.round(np.log(np.maximum(gain, NOISE)) / NEARLY)
    keeps = _shares_alike(asked)
    sizes[keeps] = np.inf
    least = np.where(keeps, np.inf, asked.least)
    return classes([asked.service, asked.scale, asked.group, sizes, least, asked.among.T.astype(float)])


def of_classes(asked: Asked, kinds: Classes) -> Asked:
    """Return the question with each class as one job, of all its members' workers, service and gain."""

    def summed(values: FloatArray) -> FloatArray:
        total = np.zeros((len(kinds.first), *values.shape[1:]))
        np.add.at(total, kinds.of_job, values)
        return total

    numbers = (summed(asked.gain), summed(asked.service), summed(asked.scale))
    return Asked(
        *numbers,
        asked.group[kinds.first],
        summed(asked.least),
        asked.workers,
        asked.together,
        asked.among[:, kinds.first],
        asked.capped,
    )


def expanded(asked: Asked, kinds: Classes, of_class: FloatArray) -> FloatArray:
    """Return the fractions (k, m) of the members: of those that keep some by what they keep, else the most gain first.

    `of_class` (c, m) are parts of the whole class's time.
    """
    whole = of_class * kinds.count[:, None]
    kept = np.bincount(kinds.of_job, asked.least, len(kinds.first))
    by_least = asked.least / np.where(kept > 0, kept, 1.0)[kinds.of_job]
    place = _place_in_group(kinds.of_job, -asked.gain.max(axis=1))
    ends = whole.cumsum(axis=1)[kinds.of_job]
    begins = ends - whole[kinds.of_job]
    in_order = np.minimum(ends, place[:, None] + 1) - np.maximum(begins, place[:, None])
    parts = np.where((asked.least > 0)[:, None], by_least[:, None] * whole[kinds.of_job], np.maximum(0.0, in_order))
    return parts


def improved(asked: Asked, fractions: FloatArray, prices: Prices) -> tuple[FloatArray, float, Prices] | None:
    """Return the best fractions (k, m), their relative distance to the bound, and prices; None if they do not settle.

    `fractions` (k, m) are valid, and `prices` nearly right.
    """
    nearest = NEAREST
    for _ in range(MOST_ROUNDS):
        again = _to_place(asked, fractions, prices, nearest)
        rest = fractions.copy()
        rest[again] = 0.0
        answer = placed(asked.of(again, asked.left(rest)))
        if answer is None:
            return None
        rest[again], prices, of_placed = answer
        fractions, demand = rest, asked.demand(prices)
        demand[again] = of_placed
        apart = asked.apart(fractions, prices, demand)
        if apart <= EXACT:
            return fractions, max(0.0, apart), prices
        nearest *= WIDER
    return None


def _shares_alike(asked: Asked) -> BoolArray:
    """Return which jobs are in no group and keep little: a class of them may share by what each keeps, (k,)."""
    alike: BoolArray = (asked.group < 0) & (asked.least > 0) & (asked.least < TIGHT * asked.service.max(axis=1))
    return alike


def _to_place(asked: Asked, fractions: FloatArray, prices: Prices, nearest: int) -> IntArray:
    """Return the rows of the jobs to be placed anew: those that lose by their place, and those near another choice."""
    demand = asked.demand(prices)
    worth = np.column_stack([asked.worth(prices, demand), np.where(asked.least > 0, -np.inf, 0.0)])
    ordered = np.sort(worth, axis=1)
    has = np.where(fractions > 0, fractions * np.where(fractions > 0, worth[:, :-1], 0.0), 0.0).sum(axis=1)
    most = np.maximum(0.0, ordered[:, -1])
    unit = np.where(demand > 0, demand * asked.service.max(axis=1), asked.gain.max(axis=1))
    loss, lead = (most - has) / unit, (ordered[:, -1] - ordered[:, -2]) / unit
    loses = loss > NOISE
    near = _place_in_group(asked.group, np.where(loses, -loss, lead)) < nearest
    again = np.flatnonzero(loses | near)
    if len(again) > MOST_PLACED:
        urgent = np.argsort(np.where(near, np.inf, loss)[again])[-MOST_PLACED:]
        again = np.sort(again[urgent])
    return again


def _place_in_group(group: IntArray, number: FloatArray) -> IntArray:
    """Return each job's place among those of its group, the least number first, (k,)."""
    order = np.lexsort((number, group))
    place = np.empty(len(group), dtype=np.int64)
    place[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return place
