"""What a job that asks for speed is best given at prices, against a linear program of each job."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from gavel.policies.fast.vertices import Vertices
from tests.policies.instances import few_examples


@few_examples
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
def test_the_best_vertex_is_the_optimum_of_the_job_s_own_program(seed: int, jobs: int, columns: int) -> None:
    """Whether or not all of its speed is asked of a job, and whatever it may not use."""
    draw = np.random.default_rng(seed)
    usable = draw.random((jobs, columns)) < 0.8
    usable[:, 0] = True
    speed = draw.choice([0.25, 0.5, 1.0, 1.0], (jobs, columns)) * usable
    reached = speed.max(axis=1)
    least = reached * draw.choice([0.0, 0.3, 0.5, 1.0], jobs)
    surplus = draw.normal(0.0, 1.0, (jobs, columns))
    vertices = Vertices.listed(speed, usable, least)
    assert vertices.rows.tolist() == np.flatnonzero(least > 0).tolist()
    if not len(vertices.rows):
        return
    best, second, x = vertices.most(surplus[vertices.rows])
    for place, job in enumerate(vertices.rows):
        bounds = [(0.0, 1.0 if each else 0.0) for each in usable[job]]
        limits, most = np.vstack([np.ones(columns), -speed[job]]), [1.0, -least[job]]
        theirs = linprog(-surplus[job], A_ub=limits, b_ub=most, bounds=bounds)
        assert best[place] == pytest.approx(-theirs.fun, abs=1e-9)
        assert x[place] @ surplus[job] == pytest.approx(best[place], abs=1e-9)
        assert x[place] @ speed[job] >= least[job] - 1e-12 and x[place].sum() <= 1 + 1e-12 and (x[place] >= 0).all()
        assert not x[place][~usable[job]].any()
        assert second[place] <= best[place]


def test_of_two_that_are_as_good_neither_is_ahead() -> None:
    vertices = Vertices.listed(np.ones((1, 2)), np.ones((1, 2), dtype=bool), np.array([0.5]))
    best, second, x = vertices.most(np.array([[3.0, 3.0]]))
    assert (float(best[0]), float(second[0])) == (3.0, 3.0)
    assert x.tolist() == [[0.5, 0.5]]
