"""Caps of tiers, over whatever policy: a tier's time on each accelerator type is cut to the fraction it may have.

What is cut goes to jobs of other tiers as what is left of a round does, not through the policy's objective.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gavel.types import Allocation, AllocationProblem, FloatArray


def capped(allocation: Allocation, problem: AllocationProblem) -> Allocation:
    """The allocation with sum_m s_m X_mj <= cap_k N_j for each tier k and type j; the same one if it holds already.

    Cut in proportion; a packed pair counts whole for the tiers of both its jobs.
    """
    factor = np.ones_like(allocation.time_fraction)
    notes = list(allocation.notes)
    for index, tier in enumerate(problem.tiers):
        if tier.cap >= 1:
            continue
        rows = _rows_of_tier(problem, index)
        cut = _cut(
            allocation.time_fraction[rows] * _sizes(problem)[rows, None],
            tier.cap * problem.capacity_workers.astype(np.float64),
        )
        factor[rows] = np.minimum(factor[rows], cut)
        if cut.min() < 1:
            members = np.flatnonzero(problem.tier_of_job == index)
            notes += [
                (problem.job_ids[job], f"tier {tier.name} is held to its cap of {tier.cap:.0%}") for job in members
            ]
    if len(notes) == len(allocation.notes):
        return allocation
    certificate = replace(allocation.certificate, dual_gap=None)  # no longer the program's optimum
    fractions = allocation.time_fraction * factor
    return replace(allocation, time_fraction=fractions, certificate=certificate, notes=tuple(notes))


def uncapped(problem: AllocationProblem) -> npt.NDArray[np.bool_]:
    """Jobs that may also have what nobody was promised, (n,)."""
    return np.array([tier.cap >= 1 for tier in problem.tiers], dtype=bool)[problem.tier_of_job]


def _rows_of_tier(problem: AllocationProblem, index: int) -> npt.NDArray[np.bool_]:
    return np.array([any(problem.tier_of_job[job] == index for job in each) for each in problem.combinations], bool)


def _sizes(problem: AllocationProblem) -> FloatArray:
    return np.array([problem.scale_factor[each[0]] for each in problem.combinations], dtype=np.float64)


def _cut(workers: FloatArray, most: FloatArray) -> FloatArray:
    """Factor of each type's column, (m,), that brings the sum of `workers` down to `most`."""
    total = workers.sum(axis=0)
    return np.where(total > most, most / np.maximum(total, 1e-300), 1.0)
