"""The Nash bargaining solution over valid allocations: what proportional fairness and partial allocation share."""

from gavel.policies import measures
from gavel.policies._program import Program, cvxpy
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
