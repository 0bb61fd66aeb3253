"""Chooses among very many jobs: only those that can win are looked at closely, and prices prove that no other one does.

A job is worth no more for each worker of a type g than

    b_jg = w_j max_(c of g) (s_jc f_j / s_j,slowest)^q / n_c

f_j is what a restart leaves in its slowest configuration, where it has the longest time to pay; 1 in its own. The jobs
with the largest bounds are asked alone. At their prices lambda every other job with b_jg <= lambda_g for all g wants
nothing, and adds nothing to the dual (`prices.py`): the bound that these prices prove holds for all jobs. Jobs with
more than that are asked, too, until none is left.
"""

from dataclasses import dataclass, replace

import numpy as np

from gavel.elastic.decision import by_prices, choose
from gavel.elastic.prices import balanced
from gavel.elastic.problem import NOTHING, SizeChoice, SizeProblem
from gavel.elastic.utility import ElasticJobs, after_restart, slowest_speed, utility, weights_of
from gavel.rank_weights import CONCAVITY
from gavel.types import BoolArray, FloatArray, IntArray

FEW = 200_000  # jobs times configurations, which are all looked at closely
MANY = 16  # jobs for each worker
SAMPLED, NEARLY = 32, 0.9998  # one of so many of these jobs shows the prices, nearly
LESS = 0.999  # times the prices that are looked down to, where they were too high; its square the next time
CHUNK = 4096  # jobs whose speeds fit a cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SizeQuestion:
    """n jobs for which configurations are to be chosen; `possible` (n, m, k): which ones each job can have."""

    jobs: ElasticJobs
    possible: BoolArray
    sizes: IntArray  # (k,) workers, ascending
    capacity_workers: IntArray  # (m,)

    def problem(self) -> SizeProblem:
        """Return the problem of all jobs, each looked at closely."""
        return self._stated(utility(self.jobs) * self.possible)

    def problem_of(self, rows: IntArray, weights: FloatArray) -> SizeProblem:
        """Return the problem of some jobs; `weights` (n,): w of all jobs."""
        return self._stated(utility(self.jobs.at(rows), weights[rows]) * self.possible[rows])

    def _stated(self, worth: FloatArray) -> SizeProblem:
        return SizeProblem(utility=worth, sizes=self.sizes, capacity_workers=self.capacity_workers)


def choose_among(question: SizeQuestion) -> SizeChoice:
    """Return what `choose` does for all jobs, within the same bounds; `value` and `bound` are of all jobs, too."""
    jobs, types, sizes = question.jobs.speed.shape
    few = max(MANY * int(question.capacity_workers.sum()), FEW // max(1, types * sizes))
    if jobs <= few:
        return choose(question.problem())
    weights, most = _most_worth(question)
    down_to = NEARLY * _sampled(question, weights, most, few)
    asked, less = _beyond(most, down_to), LESS
    while True:
        problem = question.problem_of(np.flatnonzero(asked), weights)
        demands = balanced(problem)
        if not (_beyond(most, demands[0].prices) & ~asked).any():
            return _of_all(by_prices(problem, demands), asked)
        down_to, less = less * down_to, less**2
        asked |= _beyond(most, np.maximum(down_to, demands[0].prices))


def _beyond(most: FloatArray, prices: FloatArray) -> BoolArray:
    """The jobs (n,) that may be worth more than the prices (m,), by the bounds `most` (m, n)."""
    wins: BoolArray = np.logical_or.reduce(most > prices[:, None], axis=0)
    return wins


def _of_all(choice: SizeChoice, asked: BoolArray) -> SizeChoice:
    configuration = np.full(len(asked), NOTHING, dtype=np.int64)
    configuration[asked] = choice.configuration
    return SizeChoice(configuration=configuration, value=choice.value, bound=choice.bound)


def _sampled(question: SizeQuestion, weights: FloatArray, most: FloatArray, few: int) -> FloatArray:
    """Prices (m,) about the best: of a part of the workers, for as small a part of the jobs with the largest bounds."""
    largest = most.max(axis=0)
    top = np.argpartition(-largest, few)[:few]
    part = top[np.argsort(-largest[top])][SAMPLED // 2 :: SAMPLED]
    problem = question.problem_of(part, weights)
    capacity = np.maximum(1, question.capacity_workers // SAMPLED)
    prices: FloatArray = balanced(replace(problem, capacity_workers=capacity))[0].prices
    return prices


def _most_worth(question: SizeQuestion) -> tuple[FloatArray, FloatArray]:
    """w (n,), and the bounds b on what a job is worth for a worker of each type, (m, n)."""
    jobs, (count, types, sizes) = question.jobs, question.jobs.speed.shape
    slowest, fastest = np.empty(count), np.empty((types, count))
    a_worker = question.sizes[:, None].astype(np.float64) ** (-1 / CONCAVITY)
    for begin in range(0, count, CHUNK):
        rows = slice(begin, begin + CHUNK)
        speed, possible = _by_column(jobs.speed[rows]), question.possible[rows]
        slowest[rows] = slowest_speed(speed, axis=0)
        able = speed if possible.all() else speed * _by_column(possible)
        fastest[:, rows] = _fastest(able.reshape(types, sizes, -1), a_worker, slowest[rows], jobs, rows)
    _keep_own(fastest, jobs, a_worker[:, 0])
    weights = weights_of(jobs, slowest)
    return weights, weights * (fastest / slowest) ** CONCAVITY


def _by_column(values: FloatArray | BoolArray) -> FloatArray:
    """Some rows, each configuration in one row of memory, (m k, rows)."""
    return np.ascontiguousarray(values.reshape(len(values), -1).T)


def _fastest(
    speed: FloatArray, a_worker: FloatArray, slowest: FloatArray, jobs: ElasticJobs, rows: slice
) -> FloatArray:
    """max_c of s_jc f_j / n_c^(1/q) on each type, (m, rows), of speeds (m, k, rows); f_jc itself at the least size."""
    left, restart_s = jobs.steps_left[rows], jobs.restart_s[rows]
    least, larger = speed[:, 0] * a_worker[0], (speed[:, 1:] * a_worker[1:]).max(axis=1, initial=0.0)
    least *= after_restart(speed[:, 0], left, restart_s)
    larger *= after_restart(slowest, left, restart_s)
    most: FloatArray = np.maximum(least, larger)
    return most


def _keep_own(fastest: FloatArray, jobs: ElasticJobs, a_worker: FloatArray) -> None:
    """Raise the bounds of jobs that would go on in their own configurations, without a restart."""
    rows = np.flatnonzero(jobs.configuration != NOTHING)
    own, place = np.divmod(jobs.configuration[rows], len(a_worker))
    fastest[own, rows] = np.maximum(fastest[own, rows], jobs.speed[rows, own, place] * a_worker[place])
