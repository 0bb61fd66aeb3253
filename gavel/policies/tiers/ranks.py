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


def rate_of_late(problem: AllocationProblem, rho_limit: float = finish_time.LATE_RHO) -> FloatArray:
    """Return the steps per second that late jobs are to have, (n,), 0 for the others; valid allocations give them.

    That is T_iso. The slices in which rigid jobs have it fit together, and so do the configurations of elastic ones. An
    elastic job that comes in one size has what its slice gives in that size, and more, up to its T_iso over all sizes,
    as far as there is room: who is furthest beyond its bound first. Sizes are chosen for that (docs/elastic.md).
    """
    rate = np.where(is_late(problem, rho_limit), measures.isolated_rate(problem, measures.even_share(problem)), 0.0)
    if problem.configurations is None or measures.is_over_sizes(problem):
        return rate
    rows = problem.configurations.jobs
    rows = rows[rate[rows] > 0]
    isolated_s = measures.isolated_finish_s(problem, measures.even_share(problem))[rows]
    beyond_s = problem.age_s[rows] - problem.isolated_time_s[rows] - (rho_limit - 1) * isolated_s
    return _with_room(problem, rate, rows[np.argsort(-beyond_s, kind="stable")])


def _with_room(problem: AllocationProblem, wanted: FloatArray, order: IntArray) -> FloatArray:
    """The part of the rates `wanted` (n,) that jobs can have, those in `order` one by one beside the others."""
    rates, scale = measures.rate_alone(problem), problem.scale_factor
    share = measures.even_share(problem) * (wanted > 0)
    time = finish_time.slice_of_each_type(rates > 0, problem.capacity_workers, scale, share)
    free = problem.capacity_workers - scale @ time
    had = wanted.copy()
    had[order] = (rates[order] * time[order]).sum(axis=1)
    for job in order.tolist():
        around = free + scale[job] * time[job]
        own = _filled(rates[job], around / scale[job], float(wanted[job]))
        if rates[job] @ own > had[job]:
            had[job], free = rates[job] @ own, np.maximum(0.0, around - scale[job] * own)
    return np.minimum(had, wanted)


def _filled(rates: FloatArray, room: FloatArray, wanted: float) -> FloatArray:
    """Time on each type, (m,), at most `room` (m,), for the rate `wanted`: on one type, if one will do."""
    time, left, short = np.zeros(len(rates)), 1.0, wanted
    enough = (rates >= wanted) & (room >= 1.0)
    for index in np.lexsort((np.where(enough, -room, -rates), ~enough)).tolist():
        if rates[index] > 0:
            time[index] = max(0.0, min(left, room[index], short / rates[index]))
            left, short = left - time[index], short - time[index] * rates[index]
    return time


def is_late(problem: AllocationProblem, rho_limit: float = finish_time.LATE_RHO) -> BoolArray:
    """Return which jobs reach a rho of `rho_limit` even at their isolated rates from now on, (n,).

    The isolated rate is that of 1/n of every type; a job that can run nowhere is not late.
    """
    isolated_s = measures.isolated_finish_s(problem, measures.even_share(problem))
    return finish_time.is_late(problem.age_s - problem.isolated_time_s, isolated_s, rho_limit)
