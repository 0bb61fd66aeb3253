"""Packing in the style of Gandiva: an equal split, over pairs instead of jobs when there are too few workers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import named
from gavel.policies.programs.validate import check_one_size, check_problem
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray, IntArray


@dataclass(frozen=True)
class Gandiva:
    """X_rj = N_j / (u s_r) over u units: jobs, or where jobs want more workers than there are, pairs that pay.

    A pair pays if its jobs together make more of an equal share than one of them alone: the sum of their packed
    equal-share rates over those alone is above 1. Gandiva finds such pairs by trying some at random; here the best of
    the measured ones are taken first. It does not look at the types otherwise.
    """

    name: ClassVar[str] = "gandiva"
    formula: ClassVar[str] = "X_rj = N_j / (u s_r) over u packed pairs and single jobs, rows scaled to at most 1"
    source: ClassVar[str] = "Gandiva (OSDI '18), section 3 (packing); Gavel (OSDI '20), section 7 (baseline)"
    choose_when: ClassVar[str] = "Choose this when you compare with packing that knows no speeds; it is a baseline."
    order_matters: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset()
    promises: ClassVar[frozenset[str]] = frozenset()

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return a checked allocation. Raises InvalidProblem, never SolveFailed."""
        check_problem(problem)
        check_one_size(problem)
        units = _units(problem)
        usable = np.zeros((len(problem.combinations), len(problem.accelerator_types)))
        usable[units] = measures.can_run(problem)[units]
        slices = problem.capacity_workers[None, :] / (max(1, len(units)) * measures.gang_size(problem)[:, None])
        fractions = usable * slices
        fractions /= np.maximum(1.0, fractions.sum(axis=1, keepdims=True))
        certificate = Certificate(primal_violation=measures.violation(problem, fractions))
        return named(problem, fractions, certificate, self.name, solver="closed form")

    def objective(self, problem: AllocationProblem, allocation: Allocation) -> FloatArray:
        """Return the service of the jobs that can run, least first."""
        return np.sort(measures.service(problem, allocation.time_fraction)[measures.runnable(problem)])


def _units(problem: AllocationProblem) -> IntArray:
    """Rows of the combinations that share the cluster equally; each job that can run is in one of them."""
    members, able = measures.member_of(problem), measures.runnable(problem)
    alone = np.flatnonzero(able[members[:, 0]] & (members[:, 1] < 0)) if len(members) else np.zeros(0, dtype=np.int64)
    if problem.scale_factor[able].sum() <= problem.capacity_workers.sum():
        return alone
    gain = _gain(problem)
    free = able.copy()
    chosen = []
    for row in np.argsort(-gain, kind="stable"):
        if gain[row] > 1 and free[members[row]].all():
            free[members[row]] = False
            chosen.append(row)
    return np.asarray(sorted([*chosen, *(row for row in alone if free[members[row, 0]])]), dtype=np.int64)


def _gain(problem: AllocationProblem) -> FloatArray:
    """Sum of a pair's packed equal-share rates over those alone, (c,); 0 for a job alone."""
    members = measures.member_of(problem)
    workers = problem.capacity_workers / max(1.0, float(problem.capacity_workers.sum()))
    packed = (problem.throughput_steps_per_s * measures.can_run(problem)[:, None, :]) @ workers
    alone = measures.equal_share_rate(problem)[members]
    parts: FloatArray = np.divide(packed, alone, out=np.zeros_like(packed), where=alone > 0)
    return np.where(members[:, 1] >= 0, parts.sum(axis=1), 0.0)


POLICY = Gandiva
