"""A round as the scheduler commits it, on a cluster of two fast and four slow workers."""

from collections.abc import Mapping, Sequence

import numpy as np

from gavel.types import Allocation, Certificate, JobId, Lease, RoundPlan, RoundRecord
from tests.api.conftest import NOW_S
from tests.builders import a_problem


def a_record(leases: Sequence[Lease], target: Mapping[JobId, Sequence[float]], round_index: int = 1) -> RoundRecord:
    """`target`: time fractions of each job on (fast, slow)."""
    plan = RoundPlan(
        round_index=round_index,
        parent_round_index=round_index - 1,
        starts_at_s=NOW_S,
        duration_s=10.0,
        leases=tuple(leases),
        policy="hierarchical",
        allocation_digest="0" * 8,
    )
    allocation = Allocation(
        combinations=tuple((job_id,) for job_id in target),
        accelerator_types=("fast", "slow"),
        time_fraction=np.array(list(target.values()), dtype=float).reshape(len(target), 2),
        certificate=Certificate(primal_violation=0.0, dual_gap=1e-9),
        policy="hierarchical",
        solver="clarabel",
        solve_time_s=0.02,
    )
    problem = a_problem([[2.0, 1.0]] * len(target), [2, 4], job_ids=tuple(target), accelerator_types=("fast", "slow"))
    return RoundRecord(plan=plan, problem=problem, allocation=allocation)
