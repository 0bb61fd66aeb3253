"""Dominant resource fairness over accelerators, CPUs and memory, and the naive shares by one of these."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from gavel.policies import measures
from gavel.policies.fast.max_min import evenly
from gavel.policies.programs.filling import Filling, Stated
from gavel.policies.programs.program import Program
from gavel.policies.programs.validate import check_problem
from gavel.policies.tiers.curves import One, Share
from gavel.types import Allocation, AllocationProblem, BoolArray, FloatArray

Counted = Literal["dominant", "accelerators", "memory"]


@dataclass(frozen=True)
class DominantResourceFairness:
    """lexicographically maximise the sorted D_i / w_i, D_i = (a_i / e_i) max(s_i / N, cpu_i / CPU, mem_i / MEM).

    a_i / e_i is the job's progress in equal-share gangs, the rest what such a gang holds of the resource it needs most.
    cpu_i and mem_i are held while the job runs, and their sums are limits of the program beside the workers. Where
    accelerators are dominant for everybody this is max-min fairness. `share=accelerators` and `share=memory` are the
    naive forms that look at one resource only; a job that states no memory counts with its part of the workers.
    """

    share: Counted = "dominant"
    time_limit_s: float = 60.0

    name: ClassVar[str] = "dominant_resource_fairness"
    formula: ClassVar[str] = (
        "lexicographically maximise the sorted (a_i / e_i) max(s_i / N, cpu_i / CPU, mem_i / MEM) / w_i"
    )
    source: ClassVar[str] = "Ghodsi et al. (NSDI '11), section 4, over the effective throughput of Gavel (OSDI '20)"
    choose_when: ClassVar[str] = (
        "Choose this when jobs differ much in the CPU cores and memory that they need, and shares should count them."
    )
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset(
        {"weight", "cpu_cores", "memory_bytes", "cluster_cpu_cores", "cluster_memory_bytes"}
    )
    promises: ClassVar[frozenset[str]] = frozenset({"sharing_incentive", "pareto"})

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation, by prices where that is certified. Raises SolveFailed or InvalidProblem.

        Notes name the jobs that no cluster of this size can hold.
        """
        check_problem(problem)
        notes = tuple(
            (problem.job_ids[job], "needs more CPU cores or memory than the cluster has")
            for job in np.flatnonzero(_is_too_large(problem))
        )
        answer = self._within_workers(problem) or self.program(problem)
        return replace(answer, notes=notes)

    def _within_workers(self, problem: AllocationProblem) -> Allocation | None:
        """The allocation with no limits but the workers if it keeps the others, too: it is optimal then. Else None."""
        held = problem.weight * problem.scale_factor / self._held_by_a_gang(problem)
        answer = evenly(_without_too_large(problem), self.name, held / held.max(initial=1e-300), whole=True)
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
        held = (problem.weight * problem.scale_factor / self._held_by_a_gang(problem))[jobs]
        filling = Filling(Stated(program))
        filling.fill(Share([One(int(job)) for job in jobs], (held / held.max()).tolist()), workers=program.limits)
        return program.allocation(self.name, dual_gap=filling.dual_gap)

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return share over weight of the jobs that can run, least first."""
        gangs = measures.service(problem, allocation.time_fraction) / problem.scale_factor
        able = measures.runnable(_without_too_large(problem))
        return np.sort((gangs * self._held_by_a_gang(problem) / problem.weight)[able])

    def _held_by_a_gang(self, problem: AllocationProblem) -> FloatArray:
        """The part of the cluster that counts as held by each running gang, (n,), positive."""
        workers: FloatArray = problem.scale_factor / max(1.0, float(problem.capacity_workers.sum()))
        cores_and_memory = measures.cpu_and_memory_share(problem)
        if self.share == "accelerators":
            return workers
        if self.share == "memory":
            return np.where(cores_and_memory[1] > 0, cores_and_memory[1], workers)
        dominant: FloatArray = np.maximum(workers, cores_and_memory.max(axis=0))
        return dominant


def _is_too_large(problem: AllocationProblem) -> BoolArray:
    return np.asarray((measures.cpu_and_memory_share(problem) > 1).any(axis=0))


def _without_too_large(problem: AllocationProblem) -> AllocationProblem:
    """The problem in which a job that cannot be held at once runs nowhere, alone or packed."""
    members = measures.member_of(problem)
    fits = ~np.append(_is_too_large(problem), False)  # the last one is for the absent member, -1
    both_fit = np.asarray(fits[members].all(axis=1))
    return replace(problem, throughput_steps_per_s=problem.throughput_steps_per_s * both_fit[:, None, None])


POLICY = DominantResourceFairness
