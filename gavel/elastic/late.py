"""Jobs that are behind their isolated share count more, and those that are far behind have workers before all others.

n jobs, m types, k sizes; a configuration is numbered as in `problem`. D_j: how far a job is behind; T_j: how long the
whole job would take at its isolated rate; S_j: what a start costs. rho_j = (D_j + T_j) / (T_j + S_j): how late it ends
at its isolated rate from now on, where a job alone has one start, too.
"""

from dataclasses import dataclass

import numpy as np

from gavel import finish_time
from gavel.elastic.decision import choose
from gavel.elastic.problem import NOTHING, SizeChoice, SizeProblem
from gavel.elastic.screening import SizeQuestion
from gavel.elastic.utility import ElasticJobs
from gavel.types import BoolArray, FloatArray, IntArray

SLACK = 1e-9  # relative: a speed that is less by so little is enough
STARTS = 5  # a round and a restart each: who is behind by these alone waits for starts, and going first costs more
POWER, MOST_RHO = 2.0, 2.0  # of rho, in what a job counts: beyond it going first is what helps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Behind:
    """Who goes first, the furthest beyond its bound first (rows); T_iso, (n,); what each job counts more, (n,)."""

    order: IntArray
    least: FloatArray
    urgency: FloatArray


def behind(deficit_s: FloatArray, isolated_s: FloatArray, start_s: FloatArray, least: FloatArray) -> Behind:
    """Return who goes first, and what each job counts more: rho^2, 1 to 4, 1 if it does not end late.

    `deficit_s`, `isolated_s` (n,): D and T, infinite for a job that can run nowhere; `start_s` (n,): S, a round and a
    restart. A job goes first if D reaches (1.25 - 1) T and STARTS starts.
    """
    beyond_s = deficit_s - STARTS * start_s
    rows = np.flatnonzero(finish_time.is_late(beyond_s, isolated_s))
    beyond_s = (beyond_s - (finish_time.LATE_RHO - 1) * isolated_s)[rows]
    able = np.isfinite(isolated_s)
    rho = np.ones(len(able))
    rho[able] = (deficit_s[able] + isolated_s[able]) / (isolated_s[able] + start_s[able])
    return Behind(
        order=rows[np.argsort(-beyond_s, kind="stable")], least=least, urgency=np.clip(rho, 1.0, MOST_RHO) ** POWER
    )


def with_late_first(question: SizeQuestion, choice: SizeChoice, speed: FloatArray, late: Behind) -> IntArray:
    """Return the configuration of each job, (n,): those of the best `choice`, where jobs far behind are served first.

    If all of these are as fast as their isolated share in the best choice, that is taken. Else each of them has a
    configuration in which it is, as far as there is room, and the others share what is left. `speed` (n, m, k): 0 where
    a job cannot have the configuration.
    """
    asked = question.jobs
    free_choice = np.where(asked.is_fixed, asked.configuration, choice.configuration)
    order = late.order[~asked.is_fixed[late.order]]
    if not (_speed_in(speed, free_choice)[order] < late.least[order] * (1 - SLACK)).any():
        return free_choice
    problem = question.problem()
    fixed = np.where(asked.is_fixed, asked.configuration, NOTHING)
    free = np.maximum(0, problem.capacity_workers - problem.held(fixed))
    pays = np.where(_pays(speed, asked), speed, 0.0)
    first = first_served(pays, problem.sizes, free, least=late.least, order=order, wanted=free_choice)
    others = (first == NOTHING) & ~asked.is_fixed
    rest = SizeProblem(
        utility=problem.utility * others[:, None, None],
        sizes=problem.sizes,
        capacity_workers=np.maximum(0, free - problem.held(first)),
    )
    return np.where(asked.is_fixed, fixed, np.where(others, choose(rest).configuration, first))


def _pays(speed: FloatArray, asked: ElasticJobs) -> BoolArray:
    """Where a job is at its end sooner than in its own configuration, the restart included, (n, m, k)."""
    steps_left, restart_s = asked.steps_left[:, None, None], asked.restart_s[:, None, None]
    own = _speed_in(speed, asked.configuration)[:, None, None]
    is_own = np.arange(speed[0].size).reshape(speed.shape[1:]) == asked.configuration[:, None, None]
    pays: BoolArray = (own * (steps_left + restart_s * speed) < steps_left * speed) | is_own
    return pays


def _speed_in(speed: FloatArray, configuration: IntArray) -> FloatArray:
    """The speed of each job in its configuration, (n,); 0 for one that has none."""
    flat = speed.reshape(len(speed), -1)
    rows = np.flatnonzero(configuration != NOTHING)
    there = np.zeros(len(flat))
    there[rows] = flat[rows, configuration[rows]]
    return there


def first_served(
    speed: FloatArray, sizes: IntArray, free: IntArray, *, least: FloatArray, order: IntArray, wanted: IntArray
) -> IntArray:
    """Return a configuration for each job in `order` for which there is room, (n,); NOTHING for all others.

    `speed` (n, m, k), `sizes` (k,), `free` (m,) workers. Each is one in which the job makes at least `least` (n,) steps
    per second: the one `wanted` (n,) if that does, else the one that takes the smallest part of a type's workers, the
    fastest of equal ones.
    """
    types, flat = np.repeat(np.arange(len(free)), len(sizes)), speed.reshape(len(speed), -1)
    workers, left = np.tile(sizes, len(free)), free.copy()
    part = workers / np.maximum(1, free)[types]
    configuration = np.full(len(speed), NOTHING, dtype=np.int64)
    for row in order.tolist():
        fits = (flat[row] > 0) & (flat[row] >= least[row] * (1 - SLACK)) & (workers <= left[types])
        if not fits.any():
            continue
        own = int(wanted[row])
        best = own if own != NOTHING and fits[own] else int(np.lexsort((-flat[row], np.where(fits, part, np.inf)))[0])
        configuration[row] = best
        left[types[best]] -= workers[best]
    return configuration
