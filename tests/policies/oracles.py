"""Answers found in other ways: one linear program per question (scipy), blind bisection, none of our own code."""

import numpy as np
from scipy.optimize import linprog

from gavel.types import AllocationProblem

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

    def best(self, gain: np.ndarray, least: np.ndarray, workers: np.ndarray | None = None) -> float | None:
        """Most of `gain` . X where every job has at least `least` service; None if that cannot be."""
        answer = linprog(
            -gain,
            A_ub=np.vstack([self.time, self.held, -self.service]),
            b_ub=np.concatenate([np.ones(self.jobs), self.workers if workers is None else workers, -least]),
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


def filled_by_tiers(problem: AllocationProblem) -> np.ndarray:
    """Service by the rules of docs/tiers.md for tiers of objective fairness (one user each) or fifo, step by step."""
    oracle = Oracle(problem)
    start = np.zeros(oracle.jobs)
    for index, tier in enumerate(problem.tiers):
        own = problem.tier_of_job == index
        if tier.guarantee > 0 and own.any():
            start += _raised(oracle, problem, np.where(own, 0.0, np.nan), tier.guarantee * oracle.workers, slack=1e-9)
    return _raised(oracle, problem, start, oracle.workers, slack=1e-8)


def _raised(
    oracle: Oracle, problem: AllocationProblem, start: np.ndarray, workers: np.ndarray, slack: float
) -> np.ndarray:
    """Raise all tiers from `start`; jobs that start at NaN take no part and end at 0.

    What is reached within `slack` stays reachable within a little more, so each level has more than the one before.
    """
    apart = np.isnan(start)
    service, cap = np.where(apart, 0.0, start), np.where(apart, 0.0, oracle.cap)
    cap = np.maximum(cap, service)
    while (cap > service + 1e-7).any():
        low, high = 0.0, max(cap[problem.tier_of_job == k].sum() / tier.weight for k, tier in enumerate(problem.tiers))
        for _ in range(34):
            middle = (low + high) / 2
            fits = oracle.fits(_targets(problem, middle, service, cap) * (1 - slack), workers)
            low, high = (middle, high) if fits else (low, middle)
        service = _targets(problem, low, service, cap)
        room = np.full(oracle.jobs, np.inf)
        for job in np.flatnonzero(cap > service):
            most = oracle.best(oracle.service[job], service * (1 - 2 * slack), workers)
            assert most is not None, "what was reached cannot be reached"
            room[job] = most - service[job]
        cap = np.where(room <= max(1e-5, room.min()), service, cap)  # at the highest level somebody is stuck
        slack += 1e-9
    return service


def _targets(problem: AllocationProblem, level: float, service: np.ndarray, cap: np.ndarray) -> np.ndarray:
    targets = service.copy()
    for index, tier in enumerate(problem.tiers):
        own = np.flatnonzero(problem.tier_of_job == index)
        wanted = min(max(tier.weight * level, service[own].sum()), cap[own].sum())
        spread = _in_order if tier.objective == "fifo" else _evenly
        targets[own] = spread(wanted, service[own], cap[own], problem.weight[own])
    return targets


def _in_order(wanted: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
    targets = service.copy()
    for job in range(len(targets)):
        targets[job] += min(cap[job] - service[job], max(0.0, wanted - targets.sum()))
    return targets


def _evenly(wanted: float, service: np.ndarray, cap: np.ndarray, weight: np.ndarray) -> np.ndarray:
    low, high = 0.0, float((cap / weight).max(initial=0.0))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.clip(weight * middle, service, cap).sum() >= wanted else (middle, high)
    return np.clip(weight * high, service, cap)
