"""Answers found in other ways: one linear program per question (scipy), blind bisection, none of our own code."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, linprog

from gavel.types import AllocationProblem, Tier

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Oracle:
    """The valid allocations of a problem of single jobs, as inequalities over X flattened row by row."""

    def __init__(self, problem: AllocationProblem) -> None:
        rates = problem.throughput_steps_per_s[:, 0]
        self.jobs, self.types = rates.shape
        self.scale = problem.scale_factor.astype(float)
        self.workers = problem.capacity_workers.astype(float)
        self.rates = np.where(self.scale[:, None] <= self.workers[None, :], rates, 0.0)
        self.equal = self.rates @ self.workers / self.workers.sum()
        self.unit = np.where(self.equal > 0, self.scale / np.where(self.equal > 0, self.equal, 1), 0.0)
        self.cap = self.unit * self.rates.max(axis=1)
        self.time = np.kron(np.eye(self.jobs), np.ones(self.types))
        self.held = np.kron(self.scale, np.eye(self.types)).reshape(self.types, -1)
        self.service = np.zeros((self.jobs, self.jobs * self.types))
        for job in range(self.jobs):
            self.service[job, job * self.types : (job + 1) * self.types] = self.unit[job] * self.rates[job]
        capped = [tier for tier in problem.tiers if tier.cap < 1]
        rows = [np.kron(self.scale * _is_in(problem, tier), np.eye(self.types)) for tier in capped]
        self.capped = np.vstack([self.held[:0], *(each.reshape(self.types, -1) for each in rows)])
        self.most = np.concatenate([[], *(tier.cap * self.workers for tier in capped)])

    def best(self, gain: np.ndarray, least: np.ndarray, workers: np.ndarray | None = None) -> float | None:
        """Most of `gain` . X where every job has at least `least` service; None if that cannot be."""
        answer = linprog(
            -gain,
            A_ub=np.vstack([self.time, self.held, self.capped, -self.service]),
            b_ub=np.concatenate([np.ones(self.jobs), self.workers if workers is None else workers, self.most, -least]),
            bounds=(0, None),
            method="highs",
            options=EXACT,
        )
        return -answer.fun if answer.status == 0 else None

    def fits(self, least: np.ndarray, workers: np.ndarray | None = None) -> bool:
        return self.best(np.zeros(self.service.shape[1]), least, workers) is not None

    def worst_served(self, weight: np.ndarray) -> float:
        """max over X of min_i service_i / weight_i over the jobs that can run: one program with one more variable."""
        able = self.equal > 0
        size = self.service.shape[1]
        lifted = np.hstack([-self.service[able] / weight[able, None], np.ones((int(able.sum()), 1))])
        limits = np.hstack([np.vstack([self.time, self.held]), np.zeros((self.jobs + self.types, 1))])
        answer = linprog(
            np.append(np.zeros(size), -1.0),
            A_ub=np.vstack([limits, lifted]),
            b_ub=np.concatenate([np.ones(self.jobs), self.workers, np.zeros(int(able.sum()))]),
            bounds=(0, None),
            method="highs",
            options=EXACT,
        )
        return float(-answer.fun)


def served_in_order(problem: AllocationProblem, order: np.ndarray) -> np.ndarray:
    """Service when each job in turn takes the most it can without slowing those before it."""
    oracle = Oracle(problem)
    service = np.zeros(oracle.jobs)
    for job in order:
        most = oracle.best(oracle.service[job], service * (1 - 1e-8))
        assert most is not None, "what was reached cannot be reached"
        service[job] = most
    return service


def least_rho(problem: AllocationProblem, isolated_s: np.ndarray) -> float:
    """Smallest rho, by bisection, such that every job can end by rho * isolated_s / weight after its submission."""
    oracle = Oracle(problem)
    able = oracle.equal > 0

    def fits(rho: float) -> bool:
        left_s = rho * isolated_s / problem.weight - problem.age_s
        if (left_s[able] <= 0).any():
            return False
        rate = np.where(able, problem.steps_remaining / np.where(able, left_s, 1.0), 0.0)
        return oracle.fits(rate * oracle.unit)

    low, high = 0.0, 1e6
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Branch:
    """A tier, or the jobs of its own beside tiers below it: who is in it and how it is spread."""

    weight: float
    jobs: np.ndarray
    guarantee: float = 0.0
    spread: "Callable[..., np.ndarray] | None" = None
    below: "tuple[Branch, ...]" = ()

    def targets(self, wanted: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """`service` (n,) with the branch raised to `wanted` together."""
        targets, wanted = service.copy(), min(max(wanted, service[self.jobs].sum()), cap[self.jobs].sum())
        if self.spread is not None:
            own = self.jobs
            targets[own] = self.spread(wanted, service[own], cap[own], weight[own])
            return targets
        most = max((cap[each.jobs].sum() / each.weight for each in self.below), default=0.0)

        def over(level: float) -> float:
            return float(self._at(level, service, cap, weight)[self.jobs].sum() - wanted)

        return self._at(_root(over, most), service, cap, weight)

    def _at(self, level: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
        targets = service.copy()
        for each in self.below:
            targets[each.jobs] = each.targets(each.weight * level, service, cap, weight)[each.jobs]
        return targets


def _is_in(problem: AllocationProblem, tier: Tier) -> np.ndarray:
    """Which jobs are in the tier or below it, (n,)."""
    of = {each.name: each for each in problem.tiers}

    def is_below(each: Tier) -> bool:
        return each.name == tier.name or (each.parent is not None and is_below(of[each.parent]))

    return np.asarray([is_below(problem.tiers[index]) for index in problem.tier_of_job], dtype=float)


def _branches(problem: AllocationProblem, parent: str | None) -> tuple[Branch, ...]:
    branches = []
    for index, tier in enumerate(problem.tiers):
        jobs = np.flatnonzero(_is_in(problem, tier))
        if tier.parent != parent or not len(jobs):
            continue
        own, below = np.flatnonzero(problem.tier_of_job == index), _branches(problem, tier.name)
        spread = _in_order if tier.objective == "fifo" else _evenly
        if below:
            colocated = (Branch(1.0, own, spread=spread),) if len(own) else ()
            branches.append(Branch(tier.weight, jobs, tier.guarantee, None, below + colocated))
        else:
            branches.append(Branch(tier.weight, jobs, tier.guarantee, spread))
    return tuple(branches)


def filled_by_tiers(problem: AllocationProblem) -> np.ndarray:
    """Service by the rules of docs/tiers.md for tiers of objective fairness (one user each) or fifo, step by step."""
    oracle = Oracle(problem)
    every = np.arange(oracle.jobs)
    cluster = Branch(1.0, every, 1.0, None, _branches(problem, None))
    return _reached(oracle, problem, cluster)


def _reached(oracle: Oracle, problem: AllocationProblem, branch: Branch) -> np.ndarray:
    """What the branch reaches alone on its guarantee, with what those below it reach on theirs; 0 for all others."""
    start = np.zeros(oracle.jobs)
    for each in branch.below:
        start += _reached(oracle, problem, each)
    if branch.guarantee == 0:
        return start
    slack = 1e-8 if branch.guarantee == 1 else 1e-9
    return _raised(oracle, problem, branch, start, branch.guarantee * oracle.workers, slack)


def _raised(
    oracle: Oracle, problem: AllocationProblem, branch: Branch, start: np.ndarray, workers: np.ndarray, slack: float
) -> np.ndarray:
    """Raise the branch from `start`.

    What is reached within `slack` stays reachable within a little more, so each level has more than the one before.
    """
    service, cap = start, np.zeros(oracle.jobs)
    cap[branch.jobs] = oracle.cap[branch.jobs]
    cap = np.maximum(cap, service)
    while (cap > service + 1e-7).any():
        low, high = service.sum(), cap.sum()
        for _ in range(40):
            middle = (low + high) / 2
            fits = oracle.fits(branch.targets(middle, service, cap, problem.weight) * (1 - slack), workers)
            low, high = (middle, high) if fits else (low, middle)
        service = branch.targets(low, service, cap, problem.weight)
        room = np.full(oracle.jobs, np.inf)
        for job in np.flatnonzero(cap > service):
            most = oracle.best(oracle.service[job], service * (1 - 2 * slack), workers)
            assert most is not None, "what was reached cannot be reached"
            room[job] = most - service[job]
        cap = np.where(room <= max(1e-5, room.min()), service, cap)  # at the highest level somebody is stuck
        slack += 1e-9
    return service


def _in_order(wanted: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
    targets = service.copy()
    for job in range(len(targets)):
        targets[job] += min(cap[job] - service[job], max(0.0, wanted - targets.sum()))
    return targets


def _evenly(wanted: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
    def over(level: float) -> float:
        return float(np.clip(weight * level, service, cap).sum() - wanted)

    return np.clip(weight * _root(over, float((cap / weight).max(initial=0.0))), service, cap)


def _root(over: Callable[[float], float], high: float) -> float:
    """Where a rising function passes zero within [0, high]; the end that is nearer if it does not."""
    if over(0.0) >= 0 or over(high) <= 0:
        return 0.0 if over(0.0) >= 0 else high
    return float(brentq(over, 0.0, high, xtol=1e-14, rtol=1e-14))


class Undecided(Exception):
    """Bisection over linear programs did not end: rounding hides who can rise no further."""


def equally_late_tier(problem: AllocationProblem, share: float = 1.0) -> np.ndarray:
    """Service of each job where one tier has finish-time fairness, exactly: by bisection over linear programs.

    In each step all users that can still rise do so to one rho, and their jobs as `_late_targets` says; then whoever
    could not have more while the others keep theirs is frozen. Raises Undecided.
    """
    oracle = Oracle(problem)
    cap, service = oracle.cap.copy(), np.zeros(oracle.jobs)
    for _ in range(4 * oracle.jobs):
        if (cap <= service + 1e-7).all():
            return service
        service = _most_equal(problem, oracle, service, cap, share)
        stuck, room = _stuck(oracle, service, cap), 1e-5
        while not (stuck & (cap > service + 1e-7)).any() and room < 1e-3:  # rounding may hide who is stuck
            stuck, room = _stuck(oracle, service, cap, room), 3 * room
        cap = np.where(stuck, service, cap)
    raise Undecided


def _most_equal(
    problem: AllocationProblem, oracle: Oracle, service: np.ndarray, cap: np.ndarray, share: float
) -> np.ndarray:
    """The targets of the largest sum of services that a valid allocation reaches, by bisection."""
    low, high = float(service.sum()), float(cap.sum())
    for _ in range(45):
        middle = (low + high) / 2
        fits = oracle.fits(_late_targets(problem, oracle, service, cap, share, middle) * (1 - 1e-9))
        low, high = (middle, high) if fits else (low, middle)
    return _late_targets(problem, oracle, service, cap, share, low)


def _stuck(oracle: Oracle, service: np.ndarray, cap: np.ndarray, room: float = 1e-5) -> np.ndarray:
    """Jobs that are at their cap, or could not have more while all keep what they have."""
    stuck = cap <= service + 1e-7
    for job in np.flatnonzero(~stuck):
        most = oracle.best(oracle.service[job], service * (1 - 1e-8))
        stuck[job] = most is None or most <= service[job] + room
    return stuck


def _late_targets(
    problem: AllocationProblem, oracle: Oracle, start: np.ndarray, cap: np.ndarray, share: float, together: float
) -> np.ndarray:
    """Targets (n,) that sum to `together`: users at one rho, each within what it has and can have, then their jobs."""
    able = oracle.equal > 0
    users = [np.flatnonzero([who == user for who in problem.users] & able) for user in dict.fromkeys(problem.users)]
    users = [own for own in users if len(own)]
    work, slice_service = oracle.unit * problem.steps_remaining, share / len(users) * oracle.workers.sum()
    targets = start.copy()

    def of_user(own: np.ndarray, level: float) -> float:
        mass = work[own] / work[own].sum()
        done_s = mass @ problem.isolated_time_s[own] + work[own].sum() / slice_service
        wanted = _late(work[own].sum(), mass @ problem.age_s[own], done_s, level)
        return float(np.clip(wanted, start[own].sum(), np.maximum(start, cap)[own].sum()))

    level = _level(lambda level: sum(of_user(own, level) for own in users) - together)
    for own in users:
        _spread_of_user(problem, oracle, own, share / len(users), targets, cap, of_user(own, level))
    return targets


def _spread_of_user(
    problem: AllocationProblem,
    oracle: Oracle,
    own: np.ndarray,
    share: float,
    targets: np.ndarray,
    cap: np.ndarray,
    wanted: float,
) -> None:
    """Jobs of a user at one w rho, against a slice of `share` / jobs of every type that they can use."""
    slices = (oracle.rates[own] > 0) * oracle.workers * (share / len(own) / oracle.scale[own])[:, None]
    slices /= np.maximum(1.0, slices.sum(axis=1, keepdims=True))
    alone_s = problem.isolated_time_s[own] + problem.steps_remaining[own] / (oracle.rates[own] * slices).sum(axis=1)
    work, start, most = oracle.unit[own] * problem.steps_remaining[own], targets[own], np.maximum(targets, cap)[own]

    def at(level: float) -> np.ndarray:
        return np.clip(_late(work, problem.age_s[own], alone_s / problem.weight[own], level), start, most)

    targets[own] = at(_level(lambda level: float(at(level).sum()) - wanted))


def _late(work: np.ndarray, age_s: np.ndarray, isolated_s: np.ndarray, level: float) -> np.ndarray:
    """Service at which (age + work / service) / isolated = 1 / level; infinite where none is enough."""
    left = isolated_s - age_s * level
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > 0, work * level / left, np.inf)


def _level(missing: Callable[[float], float]) -> float:
    """Where a function that never falls reaches zero; its end if it does not."""
    low, high = 0.0, 1.0
    while missing(high) < 0 and high < 1e12:
        low, high = high, 2 * high
    if missing(low) >= 0 or missing(high) <= 0:
        return low if missing(low) >= 0 else high
    return float(brentq(missing, low, high, xtol=1e-15, rtol=1e-14))
