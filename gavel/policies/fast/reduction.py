"""From an allocation problem to the price method and back: jobs to classes, rates to service, prices to warm start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast.envelope import Market, SizeColumns
from gavel.policies.fast.job_classes import Classes, classes
from gavel.policies.fast.price_search import Guess
from gavel.policies.fast.water_filling import Filled
from gavel.policies.programs.program import MOST_VIOLATION, named
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray

SOLVER = "prices"


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The market of a problem in service: one row for each class of the jobs that can run.

    `types` (m',): the types that have workers. `job_classes`: the classes of all jobs; `runnable` (k,): those of them
    that can run, and `first` (k,) a job of each.
    """

    market: Market
    types: IntArray
    job_classes: Classes
    runnable: IntArray

    @property
    def first(self) -> IntArray:
        """Return a job of each class that can run, (k,)."""
        first: IntArray = self.job_classes.first[self.runnable]
        return first

    @property
    def count(self) -> IntArray:
        """Return how many jobs each class that can run has, (k,)."""
        count: IntArray = self.job_classes.count[self.runnable]
        return count

    def expanded(self, fractions: FloatArray, problem: AllocationProblem) -> FloatArray:
        """Return fractions (m', k) of the classes as those of the problem's combinations on all types, (c, types)."""
        columns = self.types if self.market.sizes is None else np.arange(len(fractions))
        of_class = np.zeros((len(self.job_classes.first), max(len(fractions), len(problem.accelerator_types))))
        of_class[self.runnable[:, None], columns] = np.clip(fractions, 0.0, 1.0).T
        of_job = self.job_classes.expand(of_class)
        if self.market.sizes is None:
            return of_job
        answer = np.zeros((len(problem.combinations), len(problem.accelerator_types)))
        answer[:, self.types] = of_combinations(problem, self.types, of_job)
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns:
    """The jobs of a problem, alone, in a column for each type, or for each type and size where sizes are shared out.

    `rates` (n, q) are steps/s, 0 where a job cannot run; `scale` (n,) the workers that a job counts in a column of size
    1; `sizes` says which columns there are, None: one for each type.
    """

    rates: FloatArray
    scale: IntArray
    sizes: SizeColumns | None

    @classmethod
    def of(cls, problem: AllocationProblem) -> "JobColumns":
        """Return the columns of all types of the problem."""
        if not measures.is_over_sizes(problem):
            return cls(measures.rate_alone(problem), problem.scale_factor, None)
        types = np.arange(len(problem.accelerator_types))
        rates = problem.throughput_steps_per_s[:, 0] * measures.can_run(problem)
        scale = np.ones(len(problem.job_ids), dtype=np.int64)
        return cls(by_columns(problem, types, rates), scale, size_columns(problem, types))

    def of_jobs(self, problem: AllocationProblem, numbers: FloatArray) -> FloatArray:
        """Return `numbers` of combinations, (c, types), as those of jobs by column, (n, q)."""
        if self.sizes is None:
            return numbers
        return by_columns(problem, np.arange(len(problem.accelerator_types)), numbers)

    def of_combinations(self, problem: AllocationProblem, numbers: FloatArray) -> FloatArray:
        """Return `numbers` of jobs by column, (n, q), as those of the combinations, (c, types)."""
        if self.sizes is None:
            return numbers
        return of_combinations(problem, np.arange(len(problem.accelerator_types)), numbers)


def answered(
    problem: AllocationProblem,
    policy: str,
    solve: Callable[[Reduced, Sequence[Guess]], Filled],
    keys: Sequence[FloatArray | IntArray],
) -> Allocation | None:
    """Return the checked allocation of `solve` by prices; None where the program has to answer.

    That is: for packed pairs, where nobody can run, and where the method does not settle or its certificate is over
    1e-6. Jobs are identical if their rates, scale factors and `keys` are equal; `problem` is checked already.
    `solve` gets guesses of each level's prices from the problem's warm start.
    """
    is_plain = measures.is_unpacked(problem) or measures.is_over_sizes(problem)
    if not is_plain or not problem.capacity_workers.any():
        return None
    reduced = _reduced(problem, keys)
    if not len(reduced.runnable):
        return None
    try:
        filled = solve(reduced, _guesses(problem, reduced.types))
    except SolveFailed:
        return None
    fractions = reduced.expanded(filled.fractions, problem)
    certificate = Certificate(
        primal_violation=measures.violation(problem, fractions), dual_gap=filled.gap(reduced.market)
    )
    if not (certificate.primal_violation <= MOST_VIOLATION and (certificate.dual_gap or 0.0) <= MOST_VIOLATION):
        return None
    allocation = named(problem, fractions, certificate, policy, SOLVER)
    return replace(allocation, warm_start=_warm_start(problem, reduced.types, filled))


def _reduced(problem: AllocationProblem, keys: Sequence[FloatArray | IntArray]) -> Reduced:
    types = np.flatnonzero(problem.capacity_workers > 0)
    workers = problem.capacity_workers[types].astype(float)
    if measures.is_over_sizes(problem):
        sizes = size_columns(problem, types)
        scale, rates = np.ones(len(problem.job_ids), dtype=np.int64), _rates_of_columns(problem, types)
    else:
        sizes, scale = None, problem.scale_factor
        rates = np.ascontiguousarray(problem.throughput_steps_per_s[:, 0, types].T) * (scale <= workers[:, None])
    is_rigid = problem.configurations is None and sizes is None
    elastic = () if is_rigid else (measures.service_per_step(problem),)
    job_classes = classes([*rates, scale, *keys, *elastic])
    runnable = np.flatnonzero(rates[:, job_classes.first].any(axis=0))
    first, count = job_classes.first[runnable], job_classes.count[runnable]
    usable = rates[:, first]
    per_step = elastic[0][first] if elastic else scale[first] * workers.sum() / (workers @ usable)
    market = Market(usable * per_step, (scale[first] * count).astype(float), workers, sizes)
    return Reduced(market, types, job_classes, runnable)


def size_columns(problem: AllocationProblem, types: IntArray) -> SizeColumns:
    """Return a column for each of the `types` and each size that a combination has, by type, then by size."""
    sizes = np.unique(problem.combination_workers)
    type_index, size = np.repeat(np.arange(len(types)), len(sizes)), np.tile(sizes, len(types))
    return SizeColumns(type_index, size.astype(float), len(types))


def columns_of(problem: AllocationProblem, types: IntArray) -> IntArray:
    """Return the column of each combination on each of the `types`, (c, types)."""
    sizes = np.unique(problem.combination_workers)
    places: IntArray = np.searchsorted(sizes, problem.combination_workers)[:, None]
    return places + len(sizes) * np.arange(len(types))


def by_columns(problem: AllocationProblem, types: IntArray, numbers: FloatArray) -> FloatArray:
    """Return `numbers` of combinations (c, types) as those of jobs by column, (n, columns); 0 where there is none."""
    values = np.zeros((len(problem.job_ids), len(np.unique(problem.combination_workers)) * len(types)))
    values[measures.member_of(problem)[:, :1], columns_of(problem, types)] = numbers
    return values


def of_combinations(problem: AllocationProblem, types: IntArray, of_columns: FloatArray) -> FloatArray:
    """Return numbers of jobs by column, (n, columns), as those of the combinations, (c, types)."""
    numbers: FloatArray = of_columns[measures.member_of(problem)[:, :1], columns_of(problem, types)]
    return numbers


def _rates_of_columns(problem: AllocationProblem, types: IntArray) -> FloatArray:
    """Steps per second of each job in each type and size, (columns, n); 0 where it has no such combination."""
    alone = (problem.throughput_steps_per_s[:, 0] * measures.can_run(problem))[:, types]
    return np.ascontiguousarray(by_columns(problem, types, alone).T)


def _guesses(problem: AllocationProblem, types: IntArray) -> list[Guess]:
    """The last round's prices, for the types of now, and its levels; none for a type that is new."""
    last: Mapping[str, Any] = problem.warm_start.get(SOLVER, {})
    stored_types = list(last.get("types", ()))
    names = [problem.accelerator_types[index] for index in types]
    if not stored_types or not set(names) <= set(stored_types):
        return []
    places = [stored_types.index(name) for name in names]
    prices = [np.asarray(level, dtype=float)[places] for level in last.get("levels", ())]
    reached = [*map(float, last.get("reached", ())), *[np.inf] * len(prices)]
    return [
        Guess(*pair)
        for pair in zip(prices, reached, strict=False)
        if (pair[0] >= 0).all() and 0 < pair[0].sum() < np.inf
    ]


def _warm_start(problem: AllocationProblem, types: IntArray, filled: Filled) -> dict[str, Any]:
    proofs = [proof for proof in filled.proofs if len(proof.prices) == len(types)]  # not those of segments of types
    levels = [proof.prices.tolist() for proof in proofs]
    reached = [proof.level for proof in proofs]
    return {
        SOLVER: {"types": [problem.accelerator_types[index] for index in types], "levels": levels, "reached": reached}
    }
