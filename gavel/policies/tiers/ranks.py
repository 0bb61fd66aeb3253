"""What the speed of a job counts by the rank of its length and by its gang, and which jobs are late."""

import numpy as np

from gavel import finish_time
from gavel.policies import measures
from gavel.rank_weights import EVEN_PART, rank_weight
from gavel.types import AllocationProblem, BoolArray, FloatArray, IntArray

EVEN_WITH_ROOM = 0.9  # the same where nobody waits: ranks then decide between jobs for which a type is worth the same
ROOM, CROWD = 0.9, 1.5  # workers wanted per worker that there is: nobody waits, many wait
GANG_POWER = 0.75  # g: at 1 a gang waits no longer than a job of one worker, at 0 the mean counts alone


def even_part(problem: AllocationProblem) -> float:
    """Return which part of each job's weight is alike for all, by how crowded the cluster is.

    Who is short goes first where jobs wait for each other. Where all run at once, who is fast where decides how soon
    jobs end, so that the total speed counts.
    """
    wanted = problem.scale_factor[measures.runnable(problem)].sum()
    per_worker = wanted / max(1, problem.capacity_workers.sum())
    return float(np.interp(per_worker, (ROOM, CROWD), (EVEN_WITH_ROOM, EVEN_PART)))


def claim(length: FloatArray, scale_factor: IntArray, even: float) -> FloatArray:
    """Return what the relative speeds of n jobs count by these lengths and gangs, v_i s_i^g, (n,).

    A worker of a gang counts s^(g-1) of what that of a job of one worker counts: large gangs use the most worker hours
    for one completion, so they go later, but not by so much that they wait for many jobs as long as themselves.
    """
    counted: FloatArray = rank_weight(length, even) * scale_factor.astype(np.float64) ** GANG_POWER
    return counted


def is_late(problem: AllocationProblem, rho_limit: float = finish_time.LATE_RHO) -> BoolArray:
    """Return which jobs reach a rho of `rho_limit` even at their isolated rates from now on, (n,).

    The isolated rate is that of 1/n of every type; a job that can run nowhere is not late.
    """
    isolated_s = measures.isolated_finish_s(problem, measures.even_share(problem))
    return finish_time.is_late(problem.age_s - problem.isolated_time_s, isolated_s, rho_limit)
