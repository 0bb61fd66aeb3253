"""The lowest bound of many parts, against one linear program of all their planes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from gavel.linear.part_cuts import Planes, lowest_of_parts
from gavel.types import FloatArray
from tests.policies.instances import few_examples

MOST = (2.0, 3.0)


@few_examples
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 5), st.integers(1, 6))
def test_the_lowest_bound_is_that_of_the_program_of_all_planes(seed: int, shared: int, own: int, jobs: int) -> None:
    """Each part is a sum over its jobs, each of which is worth the greatest of some planes, at least nothing."""
    draw = np.random.default_rng(seed)
    parts = own + 2
    own_of = np.append(np.arange(own), draw.integers(-1, own, 2))
    level, of_shared = draw.random((parts, jobs, 3)), -draw.random((parts, jobs, 3, shared))
    of_own = draw.random((parts, jobs, 3)) * (own_of >= 0)[:, None, None]
    linear = draw.random(shared) * parts, -draw.random(own)

    def evaluate(common: FloatArray, each: FloatArray) -> Planes:
        worth = level + of_shared @ common + of_own * np.append(each, 0.0)[own_of][:, None, None]
        chosen = worth.argmax(axis=2)[..., None]
        taken = np.take_along_axis(worth, chosen, 2)[..., 0] > 0
        slope = np.take_along_axis(of_shared, chosen[..., None], 2)[..., 0, :] * taken[..., None]
        slope_own = np.take_along_axis(of_own, chosen, 2)[..., 0] * taken
        return Planes(np.maximum(0.0, worth.max(axis=2)).sum(axis=1), slope.sum(axis=1), slope_own.sum(axis=1))

    prices = lowest_of_parts(evaluate, own_of, linear, (np.zeros(shared), np.zeros(own)), MOST)
    value = evaluate(*prices).value.sum() + linear[0] @ prices[0] + linear[1] @ prices[1]
    count = level.size
    matrix = np.zeros((count, shared + own + parts * jobs))
    matrix[:, :shared] = of_shared.reshape(count, shared)
    owner = np.repeat(own_of, jobs * 3)
    has_own = np.flatnonzero(owner >= 0)
    matrix[has_own, shared + owner[has_own]] = of_own.ravel()[has_own]
    matrix[np.arange(count), shared + own + np.arange(count) // 3] = -1.0
    cost = np.concatenate([*linear, np.ones(parts * jobs)])
    bounds = [(0.0, MOST[0])] * shared + [(0.0, MOST[1])] * own + [(0.0, None)] * (parts * jobs)
    exact = linprog(cost, A_ub=matrix, b_ub=-level.ravel(), bounds=bounds)
    assert value == pytest.approx(exact.fun, rel=1e-7, abs=1e-7)
