"""Keeps tiers within their caps under any policy: a tier's time on each accelerator type is cut to its cap.

The time that is cut goes to jobs of other tiers like any time that is left in a round, not by the policy's objective.
A policy that keeps to caps by itself is not cut.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray, IntArray, Tier, chain_of, workers_promised

ROUNDING = 1e-6  # a solver's; so much above a cap is not cut, and so much below it is at it


def capped(allocation: Allocation, problem: AllocationProblem) -> Allocation:
    """Return the allocation in which the jobs of each tier, those below included, hold at most its cap of every type.

    Workers are counted by `workers_promised`, and those that stay with gangs of the tier count, too. What exceeds a cap
    is cut in proportion. Jobs of a tier at its cap get a note.
    """
    if all(tier.cap >= 1 for tier in problem.tiers):
        return allocation
    factor = np.ones_like(allocation.time_fraction)
    notes, jobs_of_row = list(allocation.notes), _jobs_of_row(allocation, problem)
    held = workers_promised(allocation, problem)
    for index, tier in enumerate(problem.tiers):
        if tier.cap >= 1:
            continue
        below = _below(problem, index)
        members = np.isin(problem.tier_of_job, below)
        rows = members[jobs_of_row].any(axis=1)
        workers = held[members].sum(axis=0)
        most = _most(problem, tier.cap, below)
        cut = np.where(workers > most * (1 + ROUNDING), most / np.maximum(workers, ROUNDING), 1.0)
        factor[rows] = np.minimum(factor[rows], cut)
        if (workers >= most * (1 - ROUNDING)).any():
            note = f"tier {tier.name} is held to its cap of {tier.cap:.0%}"
            notes += [(problem.job_ids[job], note) for job in np.flatnonzero(members)]
    allocation = replace(allocation, notes=tuple(notes))
    if factor.min(initial=1.0) == 1.0:
        return allocation
    certificate = replace(allocation.certificate, dual_gap=None)  # no longer the program's optimum
    return replace(allocation, time_fraction=allocation.time_fraction * factor, certificate=certificate)


def _most(problem: AllocationProblem, cap: float, tiers: list[int]) -> FloatArray:
    """The workers of each type, (m,), that a cap leaves to jobs of these tiers beside their gangs that stay."""
    shared, stay = problem.capacity_workers.astype(np.float64), problem.staying_workers
    if not stay.size:
        return cap * shared
    most: FloatArray = np.clip(cap * (shared + stay.sum(axis=0)) - stay[tiers].sum(axis=0), 0.0, None)
    return most


def _jobs_of_row(allocation: Allocation, problem: AllocationProblem) -> IntArray:
    """The jobs of each combination of the allocation, (c, 2); a job alone twice.

    Matched by job ID: a policy may give time to pairs that the problem does not name.
    """
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    rows = [(row_of[members[0]], row_of[members[-1]]) for members in allocation.combinations]
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def uncapped(problem: AllocationProblem) -> BoolArray:
    """Return which jobs may also get time beyond the target fractions, (n,): those of tiers without a cap."""
    tiers = {tier.name: tier for tier in problem.tiers}
    return np.array([not is_capped(name, tiers) for name in tiers], dtype=bool)[problem.tier_of_job]


def is_capped(name: str, tiers: Mapping[str, Tier]) -> bool:
    """Return True if the tier, or one above it, has a cap."""
    return any(tiers[each].cap < 1 for each in chain_of(name, tiers))


def _below(problem: AllocationProblem, index: int) -> list[int]:
    """The tier and those below it."""
    tiers = {tier.name: tier for tier in problem.tiers}
    above = problem.tiers[index].name
    return [row for row, tier in enumerate(problem.tiers) if above in chain_of(tier.name, tiers)]
