"""The plain max-min program solved as the published results were: by an interior-point method, among the optima alike.

The program fixes the worst-served job only; everybody else's share is the solver's choice. A simplex or price method
answers with a corner, where few jobs move and completion times are a little shorter; an interior-point method answers
with the middle. To compare with published figures, the middle it has to be.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies import measures, registry
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem, Certificate, FloatArray

LAS = "max_min_fairness?water_filling=false"
LAS_AGNOSTIC = "max_min_fairness?agnostic=true&water_filling=false"
MOST_VIOLATION = 1e-6


@dataclass(frozen=True, slots=True)
class InteriorMaxMin:
    """maximise min_i s_i a_i / (w_i e_i) over the valid allocations (Gavel, OSDI '20, section 4.1)."""

    name: str = LAS
    is_agnostic: bool = False

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """The analytic centre's neighbour among the optima, checked; raises SolveFailed."""
        stated = _all_alike(problem) if self.is_agnostic else problem
        fractions, solve_time_s = _solve(stated)
        broken_by = measures.violation(stated, fractions)
        if not broken_by <= MOST_VIOLATION:
            raise SolveFailed(f"clarabel's answer breaks a limit by {broken_by:.1e}")
        return Allocation(
            combinations=tuple(tuple(problem.job_ids[job] for job in members) for members in problem.combinations),
            accelerator_types=problem.accelerator_types,
            time_fraction=fractions,
            certificate=Certificate(primal_violation=broken_by),
            policy=self.name,
            solver="clarabel",
            solve_time_s=solve_time_s,
        )


@cache
def load(spec: str) -> Policy:
    """The policy that `spec` means; plain max-min fairness in its interior-point form."""
    name = registry.canonical(spec)
    return InteriorMaxMin(name, name == LAS_AGNOSTIC) if name in (LAS, LAS_AGNOSTIC) else registry.load(spec)


def _all_alike(problem: AllocationProblem) -> AllocationProblem:
    """One step a second everywhere, as published: also where a job cannot run, and is promised time in vain."""
    return replace(problem, throughput_steps_per_s=np.ones_like(problem.throughput_steps_per_s) * [[1.0], [0.0]])


def _solve(problem: AllocationProblem) -> tuple[FloatArray, float]:
    """Fractions (jobs, types), and seconds in the solver. Variables: one per usable entry, and the least service t."""
    import clarabel
    from scipy import sparse

    rates = problem.throughput_steps_per_s[:, 0]
    n, m = rates.shape
    entries = (rates > 0) & (problem.scale_factor[:, None] <= problem.capacity_workers)
    rows, columns = np.nonzero(entries)
    count = len(rows)
    fractions = np.zeros((n, m))
    if not count:
        return fractions, 0.0
    per_step = measures.service_per_step(problem) / problem.weight
    able = np.flatnonzero(entries.any(axis=1))
    index = np.arange(count)
    # rows of A z <= b: x >= 0; each job's time <= 1; each type's workers <= capacity; t <= service of each job
    gain = per_step[rows] * rates[rows, columns]
    sizes = problem.scale_factor[rows].astype(float)
    ones = np.ones(count)
    at = np.stack([index, count + rows, count + n + columns, count + n + m + rows], axis=1).ravel()
    values = np.stack([-ones, ones, sizes, -gain], axis=1).ravel()
    matrix = sparse.csc_array(
        (
            np.concatenate([values, np.ones(len(able))]),
            np.concatenate([at, count + n + m + able]),
            np.concatenate([np.arange(0, 4 * count + 1, 4), [4 * count + len(able)]]),
        ),
        shape=(count + n + m + n, count + 1),
    )
    limits = np.concatenate([np.zeros(count), np.ones(n), problem.capacity_workers.astype(float), np.zeros(n)])
    aim = np.zeros(count + 1)
    aim[-1] = -1.0
    none = sparse.csc_array((count + 1, count + 1))
    answer: Any = clarabel.DefaultSolver(
        none, aim, matrix, limits, [clarabel.NonnegativeConeT(len(limits))], _settings(clarabel)
    ).solve()
    if str(answer.status) != "Solved":
        raise SolveFailed(f"clarabel answered {answer.status}; only solved is used")
    fractions[rows, columns] = np.clip(answer.x[:-1], 0.0, 1.0)
    return fractions, float(answer.solve_time)


def _settings(clarabel: Any) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    return settings
