"""The Nash bargaining solution over valid allocations: what proportional fairness and partial allocation share."""

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import Program, cvxpy
from gavel.types import FloatArray, IntArray


def nash(program: Program, jobs: IntArray) -> FloatArray:
    """Relative throughputs (k,) of `jobs` (k,) that maximise sum w_i log of them; the program then holds the answer.

    Others may get nothing. Raises SolveFailed.
    """
    cp = cvxpy()

    speed = cp.multiply(measures.per_best_rate(program.given)[jobs], program.throughput[jobs])
    weight = program.given.weight[jobs]
    program.run(program.over_valid(cp.Maximize((weight / weight.sum()) @ cp.log(speed))))
    answer: FloatArray = speed.value
    return answer


def dual_gap(program: Program, jobs: IntArray, speeds: FloatArray) -> float:
    """At most so much is the weighted mean of log `speeds` (k,), the last answer's, below the best valid one.

    A concave function lies below its tangents, and `Program.bound` limits each of those. Two are tried: at the answer,
    and at what each job would buy at the prices, which is the sharper one where jobs run alone.
    """
    weight = program.given.weight[jobs] / program.given.weight[jobs].sum()
    speed_of = program.rates[jobs].multiply(measures.per_best_rate(program.given)[jobs][:, None]).tocsr()
    bought = weight * speed_of.multiply(1 / program.prices().clip(1e-12)).max(axis=1).toarray().ravel()

    def gap(at: FloatArray) -> float:
        return float(weight @ np.log(at / speeds)) + program.bound(speed_of.T @ (weight / at)) - 1.0

    return max(0.0, min(gap(speeds), gap(bought)))
