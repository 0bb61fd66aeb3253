"""What jobs keep when they are rearranged to end soonest: each user what its jobs have together (docs/tiers.md)."""

from dataclasses import dataclass

import numpy as np

from gavel.policies import measures
from gavel.policies.tiers.objectives import rearranged_of
from gavel.policies.tiers.ranks import claim, even_part, is_late
from gavel.policies.tiers.tree import Node
from gavel.types import AllocationProblem, FloatArray, IntArray

SLACK = 1e-7  # relative: so much less is as good, or rounding would leave no room
EARLIER = 1e-4  # relative: so much more an earlier one of two jobs of one length counts
LEAST_CLAIM = 1e-3  # of a job that takes only what no other can use


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What each of n jobs and each of g groups of them has at least, in service, and what a job's speed counts.

    `groups`: rows of the jobs that have `together` (g,). `least` (n,) is what a job has itself: all that it has, where
    it is in no group. `claim` (n,), over 0, is what its relative speed counts.
    """

    groups: tuple[IntArray, ...]
    together: FloatArray
    least: FloatArray
    claim: FloatArray


def is_rearranged(problem: AllocationProblem, root: Node) -> bool:
    """Return whether jobs are to be rearranged: some user, or tier, has several of such, or they may be packed.

    Without packing, what a group of one job has together is all that it could have.
    """
    groups = _groups(problem, root)
    return any(len(own) > 1 for own in groups) or (bool(groups) and not measures.is_alone(problem))


def kept(problem: AllocationProblem, root: Node, service: FloatArray) -> Kept:
    """Return what is kept of the `service` (n,) that jobs have where jobs are rearranged."""
    groups = _groups(problem, root)
    least, claim = service.copy(), np.full(len(service), LEAST_CLAIM)
    remaining_s, even = measures.remaining_time_s(problem), even_part(problem)
    for own in groups:
        claim[own] = _claim(problem, remaining_s, even, own)
    rearranged = np.concatenate(groups)
    least[rearranged] = np.minimum(service, _of_late_jobs(problem))[rearranged]
    together = np.asarray([service[own].sum() for own in groups])
    return Kept(groups, together * (1 - SLACK), least * (1 - SLACK), claim)


def _groups(problem: AllocationProblem, root: Node) -> tuple[IntArray, ...]:
    able = measures.runnable(problem)
    leaves = [node for node in root.from_below() if not node.below]
    parts = [rearranged_of(problem, leaf.tier, leaf.jobs[able[leaf.jobs]]) for leaf in leaves]
    return tuple(group for part in parts for group in part if len(group))


def _claim(problem: AllocationProblem, remaining_s: FloatArray, even: float, own: IntArray) -> FloatArray:
    """As `rank_weighted_speed`, but by rank and by weight among the group's `own` jobs: nothing is raised by more."""
    weight = problem.weight[own] / problem.weight[own].mean()
    error = problem.length_error[own] if len(problem.length_error) else problem.length_error
    by_rank = claim(measures.expected_length(remaining_s[own], error), problem.scale_factor[own], even)
    counted: FloatArray = np.maximum(LEAST_CLAIM, weight * by_rank * np.linspace(1.0, 1.0 - EARLIER, len(own)))
    return counted


def _of_late_jobs(problem: AllocationProblem) -> FloatArray:
    """The service of late jobs at their isolated rates, (n,), 0 for the others."""
    rate = measures.isolated_rate(problem, measures.even_share(problem))
    return np.where(is_late(problem), measures.service_per_step(problem) * rate, 0.0)
