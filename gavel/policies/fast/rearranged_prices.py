"""Prices at which the bound of a rearrangement is lowest: of few jobs by a program, then of all by cutting planes."""

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear.part_cuts import Planes, lowest_of_parts
from gavel.policies.fast.rearranged_places import placed
from gavel.policies.fast.rearranged_question import Asked, Prices
from gavel.policies.fast.vertices import best
from gavel.types import FloatArray

SAMPLE = 500  # jobs
ABOVE = 2.0  # times the dearest price of the sample: the most that is looked at
LEAST_MOST = 1e-3


def prices_of_all(asked: Asked, start: FloatArray) -> Prices | None:
    """Return prices at which the bound is about lowest; None if a sample of the jobs cannot be placed.

    `start` (k, q) is an allocation that leaves all what is kept: the sample has what its jobs hold there.
    """
    order = np.lexsort((asked.gain.max(axis=1), asked.group))
    sample = np.sort(order[:: max(1, len(order) // SAMPLE)])
    held = asked.of(sample, asked.left(np.zeros_like(start))).used(start[sample])
    answer = placed(asked.of(sample, held))
    if answer is None:
        return None
    try:
        return _improved(asked, answer[1])
    except SolveFailed:
        return answer[1]  # with which more jobs are left to the program


def _improved(asked: Asked, prices: Prices) -> Prices:
    """Return better prices than those of a sample.

    A part of the bound is the jobs of one group that are under the same caps.
    """
    shape, m = asked.capped.shape, len(asked.workers)
    under = np.column_stack([asked.group, asked.among.T])
    kinds, part = np.unique(under, axis=0, return_inverse=True)
    parts, part = len(kinds), part.ravel()
    capped = kinds[:, 1:].astype(float)

    def of(shared: FloatArray, own: FloatArray) -> Prices:
        return Prices(shared[:m], own, shared[m:].reshape(shape))

    def evaluate(shared: FloatArray, own: FloatArray) -> Planes:
        x, gain, _ = best(asked.worth(of(shared, own)), asked.vertices)
        held = np.column_stack([gain, (asked.service * x).sum(axis=1), asked.held(x)])
        value, served, *used = (np.bincount(part, each, parts).astype(float) for each in held.T)
        under_caps = (capped[:, :, None] * np.column_stack(used)[:, None, :]).reshape(parts, -1)
        return Planes(value, -np.column_stack([*used, under_caps]), served)

    linear = np.append(asked.workers, asked.capped.ravel()), -asked.together
    start = np.append(prices.workers, prices.caps.ravel()), prices.together
    most = [ABOVE * max(float(each.max(initial=0.0)), LEAST_MOST) for each in start]
    return of(*lowest_of_parts(evaluate, kinds[:, 0].astype(np.int64), linear, start, (most[0], most[1])))
