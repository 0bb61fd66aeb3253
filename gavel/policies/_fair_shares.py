"""Shares of a resource made as equal as they can be: the common part of the policies that count cores and memory."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.max_min import evenly
from gavel.policies.fast.progressive_filling import filled
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program
from gavel.policies.programs.validate import check_one_size, check_problem
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray

Among = Literal["jobs", "users"]


@dataclass(frozen=True)
class FairShares(ABC):
    """lexicographically maximise the sorted D_i / w_i, D_i = (a_i / e_i) times what a running gang of job i holds.

    a_i / e_i is the job's progress in equal-share gangs. CPU cores and memory are held while the job runs, and their
    sums are limits of the program in addition to the workers. `among=users` divides a job's weight by the number of
    jobs that its user has: jobs of one user that need alike then hold together what another user's jobs do, however
    many they are. So a set of tasks is one claimant if each set has its own user.
    """

    among: Among = "jobs"
    time_limit_s: float = 60.0

    name: ClassVar[str]
    order_matters: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset({"sharing_incentive", "pareto"})

    @abstractmethod
    def held_by_a_gang(self, problem: AllocationProblem) -> FloatArray:
        """Return the part of the cluster that counts as held by each running gang, (n,), positive."""

    @property
    def reads(self) -> frozenset[str]:
        """Return the fields read: weights, cores and memory; among users also who they are."""
        counted = {"weight", "cpu_cores", "memory_bytes", "cluster_cpu_cores", "cluster_memory_bytes"}
        return frozenset(counted | {"users"} if self.among == "users" else counted)

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, without the program where that is certified. Raises SolveFailed, InvalidProblem.

        Notes name the jobs that no cluster of this size can hold.
        """
        check_problem(problem)
        check_one_size(problem)
        notes = tuple(
            (problem.job_ids[job], "needs more CPU cores or memory than the cluster has")
            for job in np.flatnonzero(_is_too_large(problem))
        )
        answer = self._within_workers(problem) or self._on_one_type(problem) or self.program(problem)
        return replace(answer, notes=notes)

    def _on_one_type(self, problem: AllocationProblem) -> Allocation | None:
        """The allocation where all workers are of one type, and jobs run alone. Else None."""
        shared = measures.cpu_and_memory_share(problem)
        return filled(_without_too_large(problem), self.name, self._claims(problem), shared)

    def _within_workers(self, problem: AllocationProblem) -> Allocation | None:
        """The allocation with no limits but the workers if it keeps the others, too: it is optimal then. Else None."""
        claims = self._claims(problem)
        answer = evenly(_without_too_large(problem), self.name, claims / claims.max(initial=1e-300), whole=True)
        if answer is None:
            return None
        used = measures.cpu_and_memory_share(problem) @ measures.time_of_jobs(problem, answer.time_fraction)
        return answer if used.max() <= 1.0 else None

    def program(self, problem: AllocationProblem) -> Allocation:
        """Return the same allocation by the cvxpy program that defines the policy: water filling of D_i / w_i."""
        shared = measures.cpu_and_memory_share(problem)
        program = Program(_without_too_large(problem), solver="highs", time_limit_s=self.time_limit_s, shared=shared)
        if program.is_idle:
            return program.allocation(self.name)
        jobs = np.flatnonzero(program.runnable)
        claims = self._claims(problem)[jobs]
        filling = Filling(Stated(program))
        filling.fill(Share([One(int(job)) for job in jobs], (claims / claims.max()).tolist()), workers=program.limits)
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return share over weight of the jobs that can run, least first."""
        service = measures.service(problem, allocation.time_fraction)
        return np.sort((service / self._claims(problem))[measures.runnable(_without_too_large(problem))])

    def _claims(self, problem: AllocationProblem) -> FloatArray:
        """The service that brings each job to one share over weight, (n,)."""
        gangs: FloatArray = self._weight(problem) / self.held_by_a_gang(problem)
        return gangs * problem.scale_factor

    def _weight(self, problem: AllocationProblem) -> FloatArray:
        if self.among == "jobs":
            return problem.weight
        able = measures.runnable(_without_too_large(problem))
        _, user = np.unique(np.array(problem.users, dtype=np.str_), return_inverse=True)
        jobs_of_user = np.bincount(user, weights=able)
        return problem.weight / np.maximum(1.0, jobs_of_user[user])


def share_of_workers(problem: AllocationProblem) -> FloatArray:
    """Return the part of all workers that each running gang holds, (n,), positive."""
    return problem.scale_factor / max(1.0, float(problem.capacity_workers.sum()))


def share_of(problem: AllocationProblem, resource: int) -> FloatArray:
    """Return the part of the cores (0) or of the memory (1) that each running gang holds, (n,), positive.

    The part of the workers where a job states no need, or the cluster does not say how much it has.
    """
    stated = measures.cpu_and_memory_share(problem)[resource]
    return np.where(stated > 0, stated, share_of_workers(problem))


def _is_too_large(problem: AllocationProblem) -> BoolArray:
    return np.asarray((measures.cpu_and_memory_share(problem) > 1).any(axis=0))


def _without_too_large(problem: AllocationProblem) -> AllocationProblem:
    """The problem in which a job that cannot be held at once runs nowhere, alone or packed."""
    members = measures.member_of(problem)
    fits = ~np.append(_is_too_large(problem), False)  # the last one is for the absent member, -1
    both_fit = np.asarray(fits[members].all(axis=1))
    return replace(problem, throughput_steps_per_s=problem.throughput_steps_per_s * both_fit[:, None, None])
