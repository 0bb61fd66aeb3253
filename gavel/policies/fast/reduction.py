"""From an allocation problem to the price method and back: jobs to classes, rates to service, prices to warm start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast.envelope import Market
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

    def expanded(self, fractions: FloatArray, types: int) -> FloatArray:
        """Return fractions (m', k) of the classes as those of the jobs on all `types`, (n, types)."""
        of_class = np.zeros((len(self.job_classes.first), types))
        of_class[self.runnable[:, None], self.types] = np.clip(fractions, 0.0, 1.0).T
        return self.job_classes.expand(of_class)


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
    if not measures.is_unpacked(problem) or not problem.capacity_workers.any():
        return None
    reduced = _reduced(problem, keys)
    if not len(reduced.runnable):
        return None
    try:
        filled = solve(reduced, _guesses(problem, reduced.types))
    except SolveFailed:
        return None
    fractions = reduced.expanded(filled.fractions, len(problem.accelerator_types))
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
    scale = problem.scale_factor
    rates = np.ascontiguousarray(problem.throughput_steps_per_s[:, 0, types].T) * (scale <= workers[:, None])
    job_classes = classes([*rates, scale, *keys])
    runnable = np.flatnonzero(rates[:, job_classes.first].any(axis=0))
    first, count = job_classes.first[runnable], job_classes.count[runnable]
    usable = rates[:, first]
    service = usable * (scale[first] * workers.sum() / (workers @ usable))
    return Reduced(Market(service, (scale[first] * count).astype(float), workers), types, job_classes, runnable)


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
