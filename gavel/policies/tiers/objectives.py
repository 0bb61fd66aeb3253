"""The objectives a tier may have: what each means, and the target curve it gives the tier's jobs (docs/tiers.md).

Where users rise together equally, `within_user` of the tier says how the jobs of one share what the user has.

What a user sets (weight, priority, deadline) moves service among the user's own jobs only, and so does splitting a job
where users share equally. What is between users is either equal or the objective itself, such as the order of arrival.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gavel.policies import measures
from gavel.policies.tiers.curves import Curve, EqualRho, GroupsByRho, InOrder, Lateness, One, Share, Then
from gavel.policies.tiers.deadlines import that_fit
from gavel.types import AllocationProblem, FloatArray, IntArray, Tier


@dataclass(frozen=True, slots=True)
class TierObjective:
    """`meaning` is one line for users; `curve(problem, tier, jobs, share)` spreads a tier's service over `jobs` (rows).

    `choose_when` says in a sentence for whom the objective is. `share` is the tier's weight over that of all tiers with
    jobs. `reads`: the fields of the problem that the curve depends on, beside who there is and how fast
    (`_reads.ALWAYS`).
    """

    meaning: str
    choose_when: str
    curve: Callable[[AllocationProblem, Tier, IntArray, float], Curve]
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class WithinUser:
    """`meaning` is one line for users; `curve(problem, jobs)` spreads a user's service over the user's `jobs` (rows).

    `reads`: the fields of the problem that it depends on.
    """

    meaning: str
    curve: Callable[[AllocationProblem, IntArray], Curve]
    reads: frozenset[str]


def rearranged_of(problem: AllocationProblem, tier: Tier, jobs: IntArray) -> list[IntArray]:
    """Return the parts of `jobs` that are rearranged to end soonest, each within what it has (`rearranging.py`)."""
    if tier.objective == SPEED:
        return [jobs]
    return of_users(problem, jobs) if tier.objective == FAIRNESS and tier.within_user == FAST else []


def reads_of(tier: Tier) -> frozenset[str]:
    """Return the fields of the problem that a tier's answer depends on, beside who there is and how fast."""
    within = WITHIN_USER[tier.within_user].reads if tier.objective == FAIRNESS else frozenset()
    return OBJECTIVES[tier.objective].reads | within


def _fairness(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    """Users equally, within a user as the tier says: more or heavier jobs never take from another user."""
    return _equally([WITHIN_USER[tier.within_user].curve(problem, own) for own in of_users(problem, jobs)])


def _speed(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    return _alike(problem, jobs)


def _fifo(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    return _in_order(problem, jobs, -problem.age_s[jobs], within=np.zeros(len(jobs)))


def _shortest_job_first(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    remaining_s = measures.remaining_time_s(problem)[jobs]
    return _in_order(problem, jobs, remaining_s, within=remaining_s)


def _throughput(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    equal = measures.equal_share_rate(problem)[jobs]
    best = measures.rate_alone(problem)[jobs].max(axis=1, initial=0.0)
    gain = np.divide(best, equal, out=np.zeros_like(best), where=equal > 0)
    return _in_order(problem, jobs, -gain, within=-gain)


def _finish_time_fairness(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    """Users to an equal rho, the jobs of each to an equal w rho; a user has an equal slice, and a job of it the same.

    A user counts as one job that has the work of all, and the means of their ages and isolated times, by work: however
    a user's work is split, and whatever its weights, its rho is the same.
    """
    runnable = jobs[measures.runnable(problem)[jobs]]
    if not len(runnable):
        return _one_by_one(jobs)
    users = of_users(problem, runnable)
    slices = np.zeros(len(problem.job_ids))
    for own in users:
        slices[own] = share / len(users) / len(own)
    isolated_s = measures.isolated_finish_s(problem, slices) / problem.weight
    work = measures.service_per_step(problem) * np.maximum(1.0, problem.steps_remaining)
    within = [EqualRho(own, work[own], problem.age_s[own], isolated_s[own]) for own in users]
    if len(users) == 1:
        return within[0]
    slice_service = share / len(users) * float(problem.capacity_workers.sum())
    together = np.asarray([work[own].sum() for own in users])
    age_s = [work[own] @ problem.age_s[own] for own in users] / together
    done_s = [work[own] @ problem.isolated_time_s[own] for own in users] / together
    return GroupsByRho(within, Lateness(together, age_s, done_s + together / slice_service))


def _deadline(problem: AllocationProblem, tier: Tier, jobs: IntArray, share: float) -> Curve:
    """Users equally; of a user's part first what its deadlines need, then by weight."""
    users = of_users(problem, jobs)
    workers = share / len(users) * float(problem.capacity_workers.sum())  # a user's slice, in service
    speed = measures.needed_speed(problem)
    reachable = (speed > 0) & (speed <= 1)
    best = measures.service_per_step(problem) * measures.rate_alone(problem).max(axis=1, initial=0.0)
    enough = np.where(reachable, speed, 0.0) * best
    return _equally([_in_time(problem, own, enough, workers) for own in users])


def _in_time(problem: AllocationProblem, jobs: IntArray, enough: FloatArray, workers: float) -> Curve:
    """What each of a user's jobs needs to end in time, earliest deadline first, of those that fit into `workers` first.

    `enough` (n,) is the service needed, 0 for a deadline that is none, past or out of reach, which takes nothing.
    """
    by_weight = _by_weight(problem, jobs)
    is_due = enough[jobs] > 0
    due = jobs[is_due]
    if not len(due):
        return by_weight
    left_s = problem.deadline_at_s[due] - problem.now_s
    fits = that_fit(enough[due] * left_s, left_s, workers)
    first = due[np.lexsort((left_s, ~fits))]
    return Then(_one_by_one(np.concatenate([first, jobs[~is_due]])), enough, by_weight)


# --- building blocks ------------------------------------------------------------------------------------------------


def of_users(problem: AllocationProblem, jobs: IntArray) -> list[IntArray]:
    """Return the rows of `jobs` that each user has, in their order."""
    jobs_of_user: dict[str, list[int]] = {}
    for job in jobs.tolist():
        jobs_of_user.setdefault(problem.users[job], []).append(job)
    return [np.asarray(own, dtype=np.int64) for own in jobs_of_user.values()]


def _equally(users: list[Curve]) -> Curve:
    return users[0] if len(users) == 1 else Share(users, [1.0] * len(users))


def _by_weight(problem: AllocationProblem, jobs: IntArray) -> Curve:
    return Share([One(job) for job in jobs.tolist()], problem.weight[jobs].tolist())


def _alike(problem: AllocationProblem, jobs: IntArray) -> Curve:
    """Whatever their weights: how far users rise is then nothing that a user can set. Weights count in the order."""
    return _equally([One(job) for job in jobs.tolist()])


def _by_priority(problem: AllocationProblem, jobs: IntArray) -> Curve:
    """One after the other: rows are in order of priority, then of arrival."""
    return _one_by_one(jobs)


def _by_remaining_time(problem: AllocationProblem, jobs: IntArray) -> Curve:
    return _one_by_one(jobs[np.argsort(measures.remaining_time_s(problem)[jobs], kind="stable")])


def _one_by_one(jobs: IntArray) -> Curve:
    return InOrder([One(job) for job in jobs.tolist()])


def _in_order(problem: AllocationProblem, jobs: IntArray, key: FloatArray, *, within: FloatArray) -> Curve:
    """One after the other by `key` (jobs,), equals by arrival; a user's neighbours by `within`, equals by priority.

    Rows are in order of priority. It moves nobody before another user's job: only jobs of one user that follow one
    another change places.
    """
    order = np.lexsort((-problem.age_s[jobs], key))
    users = [problem.users[job] for job in jobs[order].tolist()]
    run = np.cumsum([True, *(one != other for one, other in pairwise(users))])
    return _one_by_one(jobs[order][np.lexsort((order, within[order], run))])


AUTO_MEANING = (
    "what the policy in force says for the tier, which the autopilot chooses; fairness where nothing says more. "
    "Choose this when the scheduler should find the objective that suits the tier's jobs."
)
FAIRNESS, SPEED, FAST = "fairness", "speed", "fast"
SHARED_BY_USERS = frozenset({"users", "weight"})
IN_ORDER = frozenset({"users", "age_s"})
ENDS = frozenset({"weight", "steps_remaining", "length_error", "age_s", "isolated_time_s"})

WITHIN_USER: Mapping[str, WithinUser] = {
    FAST: WithinUser("in the order that ends the user's jobs soonest; a job that is late keeps its part", _alike, ENDS),
    "equal": WithinUser("jobs alike, by their weights", _by_weight, frozenset({"weight"})),
    "fifo": WithinUser("one job after the other, by priority, then earliest first", _by_priority, frozenset()),
    "shortest_job_first": WithinUser(
        "one job after the other, least remaining time first", _by_remaining_time, frozenset({"steps_remaining"})
    ),
}
"""How the jobs of a user may share what the user has, in a tier whose objective is fairness."""

OBJECTIVES: Mapping[str, TierObjective] = {
    FAIRNESS: TierObjective(
        "users equally, each user's jobs in the order that the tier sets",
        "Choose this when users compete, and no user should gain by submitting more.",
        _fairness,
        frozenset({"users"}),
    ),
    SPEED: TierObjective(
        "all jobs as one, in the order that ends them soonest; users are not kept apart",
        "Choose this when one team works on a common goal, and the mean completion time counts more than who waits.",
        _speed,
        ENDS,
    ),
    "fifo": TierObjective(
        "one job after the other, earliest first; a user's own jobs by priority",
        "Choose this when jobs should be served strictly in the order in which they came.",
        _fifo,
        IN_ORDER,
    ),
    "shortest_job_first": TierObjective(
        "one job after the other, least remaining time first",
        "Choose this when short experiments should not wait, and long jobs may.",
        _shortest_job_first,
        IN_ORDER | {"steps_remaining"},
    ),
    "throughput": TierObjective(
        "one job after the other, greatest gain from its best type first",
        "Choose this when the fastest accelerators should do the work that gains most from them, whoever waits.",
        _throughput,
        IN_ORDER,
    ),
    "deadline": TierObjective(
        "users equally; of a user's part first what its jobs need to end in time, earliest deadline first",
        "Choose this when jobs have deadlines, and users should still have equal parts.",
        _deadline,
        SHARED_BY_USERS | {"deadline_at_s", "now_s", "steps_remaining"},
    ),
    "finish_time_fairness": TierObjective(
        "all jobs equally late compared with a fixed slice of their user's part",
        "Choose this when nobody should do worse than with accelerators of their own.",
        _finish_time_fairness,
        SHARED_BY_USERS | {"steps_remaining", "age_s", "isolated_time_s"},
    ),
}
