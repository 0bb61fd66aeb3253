"""The greatest total worth by prices: maximise sum_ij worth_ij x_ij over the valid allocations.

At prices p >= 0 of the types, sum_i max(0, max_j worth_ij - s_i p_j) + p . N bounds the total from above, and the best
prices attain it. At prices near the best nearly every job's choice is clear:

1. with many jobs, prices of a sample of them on its part of the workers, improved over all jobs by cutting planes;
2. a job whose best choice is clearly ahead at the last prices takes it; a linear program places the others in what is
   left, and its multipliers are the next prices;
3. the total and its bound at these prices are the certificate; if they are apart, ask again with fewer clear choices.

A job may have to be at least so fast. What it gains at given prices is then the most of the ways in which it is that
fast, each of which holds one or two types (`vertices`).

Of many optima it is the one in which jobs that are alike have their time one after the other, the earliest first: whole
gangs that stay, instead of turns (docs/decisions/0052-jobs-that-are-alike.md).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.linear.cuts import lowest
from gavel.policies import measures
from gavel.policies.fast.envelope import SizeColumns
from gavel.policies.fast.job_classes import Classes, classes
from gavel.policies.fast.reduction import JobColumns
from gavel.policies.fast.vertices import Vertices, best
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

SOLVER = "prices"
SAMPLE = 300  # jobs
FIRST_BAND = 3e-4  # relative surplus within which a choice is unclear at prices that are nearly the best
MOST_ROUNDS = 10
CLOSE, EXACT = 1e-3, 1e-9  # relative distance to the bound: of a sample, of the answer
MOST_BY_SIMPLEX = 4_000


@dataclass(frozen=True, eq=False)
class _Choice:
    """`worth` (k, m) of each choice, `scale` (k,) workers it holds, and the `workers` (m,) there are.

    Each choice has a `speed` (k, m) on each type, and asks for `least` (k,) of it. With `sizes`, worth and speed are
    (k, columns), each column a type and a size.
    """

    worth: FloatArray
    scale: FloatArray
    workers: FloatArray
    speed: FloatArray
    least: FloatArray
    sizes: SizeColumns | None = None

    def column_prices(self, prices: FloatArray) -> FloatArray:
        """What a choice of scale 1 pays for each column."""
        return prices if self.sizes is None else self.sizes.of_columns(prices)

    def of_types(self, held: FloatArray) -> FloatArray:
        """The workers of each type, (m,), of what is held by column."""
        return held if self.sizes is None else self.sizes.of_types(held)

    def surplus(self, prices: FloatArray) -> FloatArray:
        """What each choice is worth beyond its price, (k, m); minus infinity where it is worth nothing."""
        return np.where(self.worth > 0, self.worth - self.scale[:, None] * self.column_prices(prices), -np.inf)

    @cached_property
    def vertices(self) -> Vertices:
        """The ways in which each choice that asks for speed has it."""
        return Vertices.listed(self.speed, self.worth > 0, self.least)

    @cached_property
    def worth_by_type(self) -> FloatArray:
        """`worth`, type by type, (m, k)."""
        return np.ascontiguousarray(self.worth.T)

    def bound(self, prices: FloatArray) -> float:
        """The bound at `prices`."""
        return self.bound_and_slope(prices)[0]

    def bound_and_slope(self, prices: FloatArray) -> tuple[float, FloatArray]:
        """The bound at `prices`, over which no valid allocation is worth, and how it changes with each of them, (m,).

        That is the workers that nobody chooses.
        """
        columns = self.column_prices(prices)
        most, kind = np.zeros(len(self.scale)), np.full(len(self.scale), len(columns))
        for index, price in enumerate(columns):
            surplus = self.worth_by_type[index] - self.scale * price
            kind[surplus > most] = index
            np.maximum(most, surplus, out=most)
        held = np.zeros(len(columns))
        if len(rows := self.vertices.rows):
            most[rows], _, x = self.vertices.most(self.worth[rows] - self.scale[rows, None] * columns)
            kind[rows], held = len(columns), self.scale[rows] @ x
        used = self.of_types(held + np.bincount(kind, self.scale, len(columns) + 1)[:-1])
        return float(most.sum() + prices @ self.workers), self.workers - used


def greatest(
    problem: AllocationProblem, worth: FloatArray, policy: str, least_speed: FloatArray | None = None
) -> Allocation | None:
    """Return the allocation with the greatest total of `worth` (combinations, types) times time.

    `least_speed` (n,) is the relative throughput that each job has to have. None where a program has to answer: for
    packed pairs, where nothing is worth anything, and where the certificate is over 1e-6. `problem` is checked already.
    """
    worth = np.where(measures.can_run(problem), worth, 0.0)
    is_plain = measures.is_unpacked(problem) or measures.is_over_sizes(problem)
    if not is_plain or not (worth > 0).any():
        return None
    jobs = JobColumns.of(problem)
    worth = jobs.of_jobs(problem, worth)
    rows = np.flatnonzero((worth > 0).any(axis=1))
    least = np.zeros(len(worth)) if least_speed is None else least_speed
    apart = [least[rows]] if least.any() else []
    job_classes = classes([worth[rows], jobs.scale[rows], *apart])
    first = rows[job_classes.first]
    speed = jobs.rates[first] * measures.per_best_rate(problem)[first, None]
    counted = worth[first] * job_classes.count[:, None]
    scale, workers = jobs.scale[first] * job_classes.count.astype(float), problem.capacity_workers.astype(float)
    answer = _solve(_Choice(counted / counted.max(), scale, workers, speed, least[first], jobs.sizes))
    if answer is None:
        return None
    dealt = np.zeros(worth.shape)
    dealt[rows] = _dealt(job_classes, answer[0], worth[first], least[first])
    fractions = jobs.of_combinations(problem, dealt)
    certificate = Certificate(primal_violation=measures.violation(problem, fractions), dual_gap=answer[1])
    if not (certificate.primal_violation <= MOST_VIOLATION and answer[1] <= MOST_VIOLATION):
        return None
    return named(problem, fractions, certificate, policy, SOLVER)


def in_turn(
    problem: AllocationProblem, answer: Allocation, worth: FloatArray, least_speed: FloatArray | None = None
) -> Allocation:
    """Return a program's `answer` with the time of jobs that are alike given to the earliest first, as `greatest` does.

    So both are the same of many optima. Arguments as there; where jobs may be packed, the answer stays as it is.
    """
    if not measures.is_unpacked(problem):
        return answer
    least = np.zeros(len(worth)) if least_speed is None else least_speed
    worth = np.where(measures.can_run(problem), worth, 0.0)
    alike = classes([worth, problem.scale_factor, least])
    together = np.zeros((len(alike.first), worth.shape[1]))
    np.add.at(together, alike.of_job, answer.time_fraction)
    of_class = together / alike.count[:, None]
    return replace(answer, time_fraction=_dealt(alike, of_class, worth[alike.first], least[alike.first]))


def _dealt(alike: Classes, of_class: FloatArray, worth: FloatArray, least: FloatArray) -> FloatArray:
    """Return the time of each job, (n, m): of those that are alike the earliest first, or of all alike if they ask."""
    is_asking = (least > 0).take(alike.of_job)[:, None]
    return np.where(is_asking, alike.expand(of_class), alike.in_turn(of_class, worth))


def _solve(whole: _Choice) -> tuple[FloatArray, float] | None:
    """Step 1: fractions (k, m) and how far, relatively, they are from the bound."""
    jobs, prices, band = len(whole.scale), np.zeros(len(whole.workers)), np.inf
    if jobs > SAMPLE:
        sample = np.linspace(0, jobs - 1, SAMPLE).astype(np.int64)
        scale = whole.scale[sample]
        workers = whole.workers * float(scale.sum() / whole.scale.sum())
        part = _Choice(whole.worth[sample], scale, workers, whole.speed[sample], np.zeros(SAMPLE), whole.sizes)
        rough = _settled(part, prices, band, CLOSE)
        if rough is None:
            return None
        prices, band = lowest(whole.bound_and_slope, rough[2]), FIRST_BAND
    answer = _settled(whole, prices, band, EXACT)
    return None if answer is None else answer[:2]


def _settled(
    choice: _Choice, prices: FloatArray, band: float, tolerance: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """Steps 2 and 3: fractions, distance and prices; None if they do not settle or too many are unclear."""
    for _ in range(MOST_ROUNDS):
        fractions, _, ahead = best(choice.surplus(prices), choice.vertices)
        open_to_all = np.flatnonzero(ahead <= band * choice.worth.max(axis=1))
        if len(open_to_all) > MOST_BY_SIMPLEX:
            return None
        fractions[open_to_all] = 0.0
        placed = _placed(choice, open_to_all, choice.workers - choice.of_types(choice.scale @ fractions))
        if placed is not None:
            fractions[open_to_all], multipliers = placed
            prices = min(prices, multipliers, key=choice.bound)  # of few open choices multipliers say little
            bound = choice.bound(prices)
            apart = (bound - float((choice.worth * fractions).sum())) / max(bound, 1e-300)
            if apart <= tolerance:
                return fractions, max(0.0, apart), prices
        band = 3 * band
    return None


def _placed(choice: _Choice, jobs: IntArray, left: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The best fractions (jobs, m) of `jobs` in the workers `left` (m,), and the prices of these.

    None if what they ask for does not fit.
    """
    if (left < -1e-9 * choice.workers.max()).any():
        return None
    worth, k, m = choice.worth[jobs], len(jobs), len(left)
    rows, kinds = np.nonzero(worth)
    fractions = np.zeros_like(worth)
    if not len(rows):
        return fractions, np.zeros(m)
    unit, asking = float(worth.max()), np.flatnonzero(choice.least[jobs])
    matrix = _constraints(choice, jobs, asking)
    lower = np.concatenate([np.full(k + m, -np.inf), choice.least[jobs][asking]])
    upper = np.concatenate([np.ones(k), np.maximum(0.0, left), np.full(len(asking), np.inf)])
    try:
        x, prices = simplex.least(matrix, -worth[rows, kinds] / unit, np.zeros(len(rows)), (lower, upper))
    except SolveFailed:
        return None
    fractions[rows, kinds] = np.clip(x, 0.0, 1.0)
    return fractions, np.maximum(0.0, -prices[k : k + m]) * unit


def _constraints(choice: _Choice, jobs: IntArray, asking: IntArray) -> simplex.ByColumn:
    """One column for each type on which a job of `jobs` is worth something; rows: their time, workers, demands."""
    rows, kinds = np.nonzero(choice.worth[jobs])
    k, m = len(jobs), len(choice.workers)
    place = np.full(k, -1)
    place[asking] = k + m + np.arange(len(asking))
    held, types = choice.scale[jobs][rows], kinds
    if choice.sizes is not None:
        held, types = held * choice.sizes.size[kinds], choice.sizes.type_index[kinds]
    places = np.column_stack([rows, k + types, place[rows]])
    values = np.column_stack([np.ones(len(rows)), held, choice.speed[jobs][rows, kinds]])
    used = places >= 0
    starts = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return simplex.ByColumn(k + m + len(asking), starts, places[used], values[used])
