"""The choice of types and sizes as a program: its definition. `gavel/elastic` answers it by prices."""

from typing import Any

import cvxpy
import numpy as np

from gavel.elastic.problem import SizeProblem
from gavel.types import FloatArray

cp: Any = cvxpy  # its names are typed only in part


def relaxed(problem: SizeProblem) -> tuple[FloatArray, float]:
    """Return the fractions x (n, m k) of the best fractional choice, and what it is worth.

    maximise sum_jc x_jc U_jc subject to sum_c x_jc <= 1, sum_j,c of g n_c x_jc <= N_g, x >= 0. A choice of whole
    gangs is one in which x is 0 or 1, so none is worth more.
    """
    flat = problem.flat
    if not flat.size:
        return np.zeros(flat.shape), 0.0
    x = cp.Variable(flat.shape, nonneg=True)
    of_type = np.eye(len(problem.capacity_workers))[problem.type_of] * problem.workers[:, None]
    limits = [cp.sum(x, axis=1) <= 1, cp.sum(x, axis=0) @ of_type <= problem.capacity_workers]
    program = cp.Problem(cp.Maximize(cp.sum(cp.multiply(x, flat))), limits)
    program.solve(solver=cp.HIGHS, threads=1)
    return np.asarray(x.value), float(program.value)
