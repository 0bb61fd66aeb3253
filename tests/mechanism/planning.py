"""A round to be planned, said by its jobs, for tests that plan many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.mechanism.planning.planner import Ledger, plan_round
from gavel.mechanism.planning.problem import Matrix
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    Job,
    JobId,
    PlanInputs,
    PlannedJobs,
    Planner,
    RoundPlan,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Jobs in order of arrival, what they share, and how a policy shares it."""

    jobs: Sequence[Job]
    cluster: Cluster
    problem: AllocationProblem
    allocation: Allocation
    lag_rounds: Ledger = field(default_factory=dict)
    parent: RoundPlan | None = None
    starts_at_s: float = 0.0
    duration_s: float = 10.0
    to_profile: Sequence[tuple[JobId, AcceleratorType]] = ()
    planner: Planner = "lag"
    switch_cost_s: Mapping[str, float] = field(default_factory=dict)
    minimum_run_s: float = 0.0
    started_at_s: Mapping[JobId, float] = field(default_factory=dict)

    @property
    def inputs(self) -> PlanInputs:
        """What the service would keep of it."""
        return PlanInputs(
            policy=self.allocation.policy,
            cluster=self.cluster,
            jobs=PlannedJobs.of(self.jobs),
            parent=self.parent,
            starts_at_s=self.starts_at_s,
            duration_s=self.duration_s,
            to_profile=tuple(self.to_profile),
            planner=self.planner,
            switch_cost_s=self.switch_cost_s,
            minimum_run_s=self.minimum_run_s,
            started_at_s=self.started_at_s,
        )

    def plan(self) -> tuple[RoundPlan, dict[tuple[JobId, AcceleratorType], float]]:
        """The plan, and the ledger after it."""
        return plan_round(self.inputs, problem=self.problem, allocation=self.allocation, lag_rounds=self.lag_rounds)


def size_inputs(matrix: Matrix, cluster: Cluster, **over: Any) -> SizeInputs:
    """What sizes and plans are chosen from where no gang runs and a restart takes ten seconds."""
    inputs: dict[str, Any] = {
        "feasibility": Feasibility(cluster),
        "matrix": matrix,
        "marks": (),
        "held": {},
        "plan_held": {},
        "staying": (),
        "restart_s": {"": 10.0},
        "round_duration_s": 60.0,
        "of_own_kind": lambda job: job,
        "now_s": 0.0,
    }
    return SizeInputs(**{**inputs, **over})
