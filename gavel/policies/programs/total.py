"""The greatest total worth: what maximum throughput, relative speed and cost share."""

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import Program, cvxpy
from gavel.types import Allocation, FloatArray


def most(program: Program, worth: FloatArray, *, policy: str, least_speed: FloatArray | None = None) -> Allocation:
    """The valid allocation X of the greatest sum of `worth` (combinations, types) times X; raises SolveFailed.

    `least_speed` (n,) is the relative throughput that each job has to have.
    """
    cp = cvxpy()

    if program.is_idle:
        return program.allocation(policy)
    gain = worth[program.entries] / worth[program.entries].max()
    least = np.zeros(len(program.given.job_ids)) if least_speed is None else least_speed
    asked = np.flatnonzero(least)
    speeds = program.rates.multiply(measures.per_best_rate(program.given)[:, None]).tocsr()[asked]
    fast_enough = [speeds @ program.x >= least[asked]] if len(asked) else []
    program.run(program.over_valid(cp.Maximize(gain @ program.x), fast_enough))
    price = np.maximum(0.0, fast_enough[0].dual_value) if fast_enough else np.zeros(0)
    bound = program.bound(gain + speeds.T @ price) - float(price @ least[asked])
    reached = float(gain @ program.x.value)
    return program.allocation(policy, dual_gap=max(0.0, bound - reached) / max(1.0, reached))


def total(worth: FloatArray, allocation: Allocation) -> FloatArray:
    """The sum of `worth` (combinations, types) times the time fractions, (1,)."""
    return np.asarray([float((worth * allocation.time_fraction).sum())])
