"""The objectives a tier may have: what each means, and the target curve it gives the tier's jobs (docs/tiers.md)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gavel.policies import measures
from gavel.policies._curves import Curve, EqualRho, InOrder, One, Share, Then
from gavel.types import AllocationProblem, IntArray


@dataclass(frozen=True, slots=True)
class TierObjective:
    """`meaning` is one line for users; `curve(problem, jobs, share)` spreads a tier's service over `jobs` (rows).

    `share` is the tier's weight over that of all tiers with jobs.
    """

    meaning: str
    curve: Callable[[AllocationProblem, IntArray, float], Curve]


def _fairness(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    """Users equally, within a user jobs by weight: more or heavier jobs never take from another user."""
    jobs_of_user: dict[str, list[int]] = {}
    for job in jobs.tolist():
        jobs_of_user.setdefault(problem.users[job], []).append(job)
    users = [Share([One(job) for job in own], problem.weight[own].tolist()) for own in jobs_of_user.values()]
    return Share(users, [1.0] * len(users))


def _fifo(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    return InOrder([One(job) for job in jobs.tolist()])


def _shortest_job_first(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    order = np.argsort(measures.remaining_time_s(problem)[jobs], kind="stable")
    return InOrder([One(job) for job in jobs[order].tolist()])


def _throughput(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    equal = measures.equal_share_rate(problem)[jobs]
    best = measures.rate_alone(problem)[jobs].max(axis=1, initial=0.0)
    gain = np.divide(best, equal, out=np.zeros_like(best), where=equal > 0)
    return InOrder([One(job) for job in jobs[np.argsort(-gain, kind="stable")].tolist()])


def _finish_time_fairness(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    runnable = jobs[measures.runnable(problem)[jobs]]
    if not len(runnable):
        return InOrder([One(job) for job in jobs.tolist()])
    slice_of_tier = np.zeros(len(problem.job_ids))
    slice_of_tier[runnable] = share / len(runnable)
    isolated_s = measures.isolated_finish_s(problem, slice_of_tier)[runnable] / problem.weight[runnable]
    work = measures.service_per_step(problem)[runnable] * np.maximum(1.0, problem.steps_remaining[runnable])
    return EqualRho(jobs=runnable, work=work, age_s=problem.age_s[runnable], isolated_s=isolated_s)


def _deadline(problem: AllocationProblem, jobs: IntArray, share: float) -> Curve:
    """First what each job needs to end in time, the earliest deadline first; a missed one needs all it can get."""
    left_s = np.maximum(problem.deadline_at_s - problem.now_s, 0.0)
    needed = np.divide(problem.steps_remaining, left_s, out=np.full_like(left_s, np.inf), where=left_s > 0)
    worth = measures.service_per_step(problem)
    enough = np.multiply(needed, worth, out=np.zeros_like(worth), where=worth > 0)
    order = np.argsort(problem.deadline_at_s[jobs], kind="stable")
    in_order = InOrder([One(job) for job in jobs[order].tolist()])
    return Then(in_order, enough, _fairness(problem, jobs, share))


OBJECTIVES: Mapping[str, TierObjective] = {
    "fairness": TierObjective("users equally, each user's jobs by their weights", _fairness),
    "fifo": TierObjective("one job after the other, earliest first", _fifo),
    "shortest_job_first": TierObjective("one job after the other, least remaining time first", _shortest_job_first),
    "throughput": TierObjective("one job after the other, greatest gain from its best type first", _throughput),
    "deadline": TierObjective(
        "what each job needs to end in time, earliest deadline first; the rest by fairness", _deadline
    ),
    "finish_time_fairness": TierObjective(
        "all jobs equally late compared with a fixed slice of the tier's share", _finish_time_fairness
    ),
}
