"""Many jobs rearranged from classes of jobs that are nearly alike.

The jobs of a class have the same service on each type, and nearly the same gain. A linear program places each class as
one job. Among its members those that gain most go first, so only few have a choice that is not clear: those near a
place in that order at which the choice changes. These are placed by themselves in the next program, in which the others
of their class before and after them are classes of their own. Its answer is the greatest for the jobs, too, once all
members of each such class have the same; its prices prove how far it is from that.
"""

import numpy as np

from gavel.policies.fast.job_classes import Classes, classes
from gavel.policies.fast.rearranged_places import NOISE, clear, placed, placed_beside
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.types import BoolArray, FloatArray, IntArray

NEARLY = 0.03  # relative: gains of one class are that near to each other
MOST_ROUNDS = 8
NEAREST, WIDER = 2, 2  # places on either side of a change of choice at which jobs are by themselves; times, each round
ALIKE = -2  # the choice of jobs that all have the same
ROUNDING = 1e-9  # relative, of what a job keeps
MOST_PARTS = 15_000  # with more the linear program takes long
EXACT = 1e-8  # relative distance to the bound: less than one job's place in the order of a class counts

Answer = tuple[FloatArray, float, Prices]
"""Fractions (k, m), their relative distance to the bound, and prices."""


def by_classes(asked: Asked, kinds: Classes) -> Answer | None:
    """Return the best fractions (k, m), their relative distance to the bound, and prices; None if they are not valid.

    `kinds`: the classes of all jobs, of `alike`.
    """
    parts, nearest, answer, prices = kinds, NEAREST, None, None
    for _ in range(MOST_ROUNDS):
        answered = _answered(asked, parts, prices)
        if answered is None:
            return answer
        answer, prices = answered, answered[2]
        if answer[1] <= EXACT or len(parts.first) > MOST_PARTS:
            break
        parts, nearest = _parts(asked, kinds, answer[0], nearest), WIDER * nearest
    return answer


def _answered(asked: Asked, parts: Classes, prices: Prices | None) -> Answer | None:
    """Return the answer in which the parts are placed; at first only those whose choice is not clear at `prices`.

    These are of the round before, in which what jobs gain was known up to NEARLY.
    """
    question = of_classes(asked, parts)
    fractions, unclear = clear(question, prices, NEARLY)
    if len(unclear) < len(parts.first):
        answered = _expanded(asked, parts, placed_beside(question, fractions, unclear))
        if answered is not None and answered[1] <= EXACT:
            return answered
    return _expanded(asked, parts, placed(question))


def _expanded(asked: Asked, parts: Classes, placed_parts: tuple[FloatArray, Prices] | None) -> Answer | None:
    if placed_parts is None:
        return None
    of_part, prices = placed_parts
    fractions = expanded(asked, parts, of_part)
    return fractions, max(0.0, asked.apart(fractions, prices)), prices


def alike(asked: Asked) -> Classes:
    """Return the classes of jobs with equal service, and nearly equal gain: an equal one where they share alike."""
    gain, keeps = asked.gain.max(axis=1), _shares_alike(asked)
    sizes = np.where(keeps, gain, np.round(np.log(np.maximum(gain, NOISE)) / NEARLY))
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
        asked.columns,
        *numbers,
        asked.group[kinds.first],
        summed(asked.least),
        asked.workers,
        asked.together,
        asked.among[:, kinds.first],
        asked.capped,
    )


def expanded(asked: Asked, kinds: Classes, of_class: FloatArray) -> FloatArray:
    """Return the fractions (k, m) of the members: of those that keep some what they keep, else the most gain first.

    `of_class` (c, m) are parts of the whole class's time.
    """
    shared = _kept_alike(asked, kinds, of_class * kinds.count[:, None])
    fastest_first = kinds.in_turn(of_class, asked.service[kinds.first], asked.gain.max(axis=1))
    parts: FloatArray = np.where((asked.least > 0)[:, None], shared, fastest_first)
    return parts


def _kept_alike(asked: Asked, kinds: Classes, whole: FloatArray) -> FloatArray:
    """Return what jobs that keep some have of their class's time on the types, (k, m): all have the same mix of them.

    Each has the time in which the mix gives it what it keeps; what is left over goes to those that gain most.
    """
    time, service = whole.sum(axis=1), (whole * asked.service[kinds.first]).sum(axis=1)
    mix = whole / np.where(time > 0, time, 1.0)[:, None]
    needed = asked.least * (time / np.where(service > 0, service, 1.0))[kinds.of_job]
    free = np.maximum(0.0, 1.0 - needed)
    left = np.maximum(0.0, time - np.bincount(kinds.of_job, needed, len(time)))[kinds.of_job]
    own: FloatArray = (needed + np.clip(left - _before(asked, kinds, free), 0.0, free))[:, None] * mix[kinds.of_job]
    return own


def _before(asked: Asked, kinds: Classes, amount: FloatArray) -> FloatArray:
    """Return what those of a job's class that gain more have of an `amount` (k,) together, (k,)."""
    order = np.lexsort((-asked.gain.max(axis=1), kinds.of_job))
    until = np.cumsum(amount[order])
    begins = np.repeat(np.append(0.0, until)[np.cumsum(kinds.count) - kinds.count], kinds.count)
    before = np.empty_like(amount)
    before[order] = until - amount[order] - begins
    return before


def _shares_alike(asked: Asked) -> BoolArray:
    """Return which jobs are in no group and keep no more than any of their types gives them, (k,).

    So whatever mix of types a class of them has, there is a part of the time in which it gives each what it keeps.
    """
    slowest = np.where(asked.service > 0, asked.service, np.inf).min(axis=1)
    alike: BoolArray = (asked.group < 0) & (asked.least > 0) & (asked.least <= slowest)
    return alike


def _parts(asked: Asked, kinds: Classes, fractions: FloatArray, nearest: int) -> Classes:
    """Return the classes in parts: jobs near a change of choice by themselves, those between them together.

    Jobs that keep some and gain the same share alike: their class stays whole.
    """
    gain = asked.gain.max(axis=1)
    order = np.lexsort((-gain, kinds.of_job))
    of_class, ends = kinds.of_job[order], np.cumsum(kinds.count)
    is_same = gain[order[ends - kinds.count]] == gain[order[ends - 1]]
    keeps = is_same[of_class] & (asked.least[order] > 0)
    chosen, divided = _choices(asked, fractions)
    chosen, divided = np.where(keeps, ALIKE, chosen[order]), divided[order] & ~keeps
    changes = np.ones(len(order) + 1, dtype=bool)  # before each job, and after the last one
    changes[1:-1] = (of_class[1:] != of_class[:-1]) | (chosen[1:] != chosen[:-1]) | divided[1:] | divided[:-1]
    alone = _within(changes, nearest) & ~keeps
    begins = changes[:-1] | alone
    begins[1:] |= alone[:-1]
    of_job = np.empty(len(order), dtype=np.int64)
    of_job[order] = np.cumsum(begins) - 1
    return Classes(order[begins], np.bincount(of_job), of_job)


def _choices(asked: Asked, fractions: FloatArray) -> tuple[IntArray, BoolArray]:
    """Return each job's choice, (k,), and whether it is between two, (k,).

    A job that keeps some chooses between just that and all of its time, in whatever mix of the types its class has.
    """
    keeps, got = asked.least > 0, (asked.service * fractions).sum(axis=1)
    is_all = fractions.sum(axis=1) >= 1 - NOISE
    has_least = got <= asked.least * (1 + ROUNDING)
    chosen = np.where(fractions.any(axis=1), fractions.argmax(axis=1), -1)
    divided = ((fractions > NOISE) & (fractions < 1 - NOISE)).any(axis=1)
    return np.where(keeps, is_all, chosen), np.where(keeps, ~(is_all | has_least), divided)


def _within(changes: BoolArray, nearest: int) -> BoolArray:
    """Return which jobs (k,) are so near to one of the `changes` (k + 1,), which lie before and after them."""
    count, every = np.append(0, np.cumsum(changes)), np.arange(len(changes) - 1)
    last, first = np.minimum(every + nearest, len(every)) + 1, np.maximum(every - nearest + 1, 0)
    near: BoolArray = count[last] > count[first]
    return near
