"""A fixed numpy workload, to state a time as a ratio beside its seconds: machines differ, the ratio hardly does.

The workload has the three kinds of work that Gavel's own computations consist of, about a third of the time each:
products of small matrices, sorts and cumulative sums of long arrays, and many numpy calls on short arrays, in which the
interpreter is what takes the time. It is the same on every machine: the numbers are drawn from a fixed seed. Its
matrices are so small that BLAS uses one thread for them. It takes about 50 ms of CPU on a machine of 2023.
"""

import statistics
import time
from functools import cache

import numpy as np

REPETITIONS = 7
SIDE, STACK, PRODUCTS = 64, 64, 16
LENGTH, SORTS = 65_536, 3
SHORT, CALLS = 32, 3_000


@cache
def reference_cpu_s() -> float:
    """Return the median CPU seconds of one run of the workload, measured once in this process, after one to warm up."""
    workload()
    return statistics.median(_timed() for _ in range(REPETITIONS))


def workload() -> float:
    """Return a number that depends on every part of the workload, so that nothing can be left out."""
    draw = np.random.default_rng(20_201_104)
    return _products(draw) + _sorts(draw) + _short_calls(draw)


def _timed() -> float:
    began = time.thread_time()
    workload()
    return time.thread_time() - began


def _products(draw: np.random.Generator) -> float:
    stack = draw.random((STACK, SIDE, SIDE)) / SIDE
    turn = draw.random((SIDE, SIDE))
    for _ in range(PRODUCTS):
        stack = stack @ turn / SIDE
    return float(stack.sum())


def _sorts(draw: np.random.Generator) -> float:
    total = 0.0
    for _ in range(SORTS):
        values = draw.random(LENGTH)
        order = np.argsort(values, kind="stable")
        total += float(np.cumsum(values[order])[LENGTH // 2])
    return total


def _short_calls(draw: np.random.Generator) -> float:
    values, total = draw.random(SHORT), 0.0
    for _ in range(CALLS):
        rising = np.maximum(values, 0.5)
        total += float(np.where(rising > values, rising, values).sum())
    return total
