"""Caps of tiers, over whatever policy: a tier's time on each accelerator type is cut to the fraction it may have.

What is cut goes to jobs of other tiers as what is left of a round does, not through the policy's objective. A policy
that keeps to caps by itself is not cut.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray, Tier, chain_of

ROUNDING = 1e-6  # a solver's; so much above a cap is not cut, and so much below it is at it


def capped(allocation: Allocation, problem: AllocationProblem) -> Allocation:
    """The allocation with sum_m s_m X_mj <= cap_k N_j for each tier k, those below included, and type j.

    Cut in proportion; a packed pair counts whole for the tiers of both its jobs. Jobs of a tier at its cap have a note.
    """
    factor = np.ones_like(allocation.time_fraction)
    notes = list(allocation.notes)
    for index, tier in enumerate(problem.tiers):
        if tier.cap >= 1:
            continue
        members = np.isin(problem.tier_of_job, _below(problem, index))
        rows = np.array([members[list(each)].any() for each in problem.combinations], dtype=bool)
        workers = (allocation.time_fraction[rows] * _sizes(problem)[rows, None]).sum(axis=0)
        most = tier.cap * problem.capacity_workers.astype(np.float64)
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


def uncapped(problem: AllocationProblem) -> BoolArray:
    """Jobs that may also have what nobody was promised, (n,)."""
    tiers = {tier.name: tier for tier in problem.tiers}
    return np.array([not is_capped(name, tiers) for name in tiers], dtype=bool)[problem.tier_of_job]


def is_capped(name: str, tiers: Mapping[str, Tier]) -> bool:
    """True if the tier, or one above it, has a cap."""
    return any(tiers[each].cap < 1 for each in chain_of(name, tiers))


def _below(problem: AllocationProblem, index: int) -> list[int]:
    """The tier and those below it."""
    tiers = {tier.name: tier for tier in problem.tiers}
    above = problem.tiers[index].name
    return [row for row, tier in enumerate(problem.tiers) if above in chain_of(tier.name, tiers)]


def _sizes(problem: AllocationProblem) -> FloatArray:
    return np.array([problem.scale_factor[each[0]] for each in problem.combinations], dtype=np.float64)
