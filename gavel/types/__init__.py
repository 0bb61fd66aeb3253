"""The nouns of Gavel: frozen, keyword-only, each quantity with its unit last in its name.

Instants end in `_at_s` (seconds since the Unix epoch; simulated time starts at 0), durations in `_s`.
"""

from gavel.types.allocation import (
    Allocation,
    AllocationProblem,
    Certificate,
    Combination,
    FloatArray,
    IntArray,
    PairRates,
)
from gavel.types.cluster import AcceleratorType, Cluster, Node, NodeState, NodeStatus, Worker, WorkerId
from gavel.types.gangs import GangExit, GangOutcome, GangSeen, GangState, Measurement, Observation, Report, ReportKind
from gavel.types.jobs import Job, JobId, JobMode, JobSpec, JobState
from gavel.types.operations import Operation, OperationId, OperationState
from gavel.types.people import Identity, Scope, Tier, Usage, User, month_of
from gavel.types.resources import ApplicationResource
from gavel.types.rounds import EphemeralResource, Lease, RoundPlan, RoundRecord

__all__ = [
    "AcceleratorType",
    "Allocation",
    "AllocationProblem",
    "ApplicationResource",
    "Certificate",
    "Cluster",
    "Combination",
    "EphemeralResource",
    "FloatArray",
    "GangExit",
    "GangOutcome",
    "GangSeen",
    "GangState",
    "Identity",
    "IntArray",
    "Job",
    "JobId",
    "JobMode",
    "JobSpec",
    "JobState",
    "Lease",
    "Measurement",
    "Node",
    "NodeState",
    "NodeStatus",
    "Observation",
    "Operation",
    "OperationId",
    "OperationState",
    "PairRates",
    "Report",
    "ReportKind",
    "RoundPlan",
    "RoundRecord",
    "Scope",
    "Tier",
    "Usage",
    "User",
    "Worker",
    "WorkerId",
    "month_of",
]
