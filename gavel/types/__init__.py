"""The records of Gavel: frozen, keyword-only, each quantity with its unit at the end of its name.

Instants end in `_at_s` (seconds since the Unix epoch; simulated time starts at 0), durations in `_s`.
"""

from gavel.types.allocation import (
    Allocation,
    AllocationProblem,
    BoolArray,
    Certificate,
    Combination,
    Fallback,
    FloatArray,
    IntArray,
    PairRates,
)
from gavel.types.cluster import AcceleratorType, Cluster, Node, NodeState, NodeStatus, Worker, WorkerId
from gavel.types.disk import DiskState
from gavel.types.gangs import GangExit, GangOutcome, GangSeen, GangState, Measurement, Observation, Report, ReportKind
from gavel.types.infeasible import InfeasibleType
from gavel.types.jobs import TOTAL_STEPS_MAX, CodeVersion, Job, JobId, JobSpec, JobState, WorkDone, in_size
from gavel.types.metrics import MetricPoint
from gavel.types.needs import EXCLUDED, NO_NEEDS, Needs, Used
from gavel.types.occupancy import (
    mean_workers_held,
    mean_workers_received,
    parts_held,
    total_by,
    worker_s,
    worker_s_of,
    workers_held,
    workers_promised,
)
from gavel.types.operations import Operation, OperationId, OperationState
from gavel.types.people import (
    SECONDS_PER_HOUR,
    BearerToken,
    Identity,
    Scope,
    StoredSecret,
    Tier,
    Usage,
    User,
    chain_of,
    month_of,
    shares_by_weight,
)
from gavel.types.predictions import Expected, Prediction
from gavel.types.reasons import EXPLAINED, Reason
from gavel.types.resources import ApplicationResource
from gavel.types.rounds import (
    EphemeralResource,
    Lease,
    PlanInputs,
    PlannedJobs,
    Planner,
    RoundPlan,
    RoundRecord,
    largest_lag,
)
from gavel.types.services import Check, ReplicaSpec, ServiceSpec, ServiceStatus, Serving
from gavel.types.startup import StartupTimes, times_of, typical_s
from gavel.types.terms import Term

__all__ = [
    "EXCLUDED",
    "EXPLAINED",
    "NO_NEEDS",
    "SECONDS_PER_HOUR",
    "TOTAL_STEPS_MAX",
    "AcceleratorType",
    "Allocation",
    "AllocationProblem",
    "ApplicationResource",
    "BearerToken",
    "BoolArray",
    "Certificate",
    "Check",
    "Cluster",
    "CodeVersion",
    "Combination",
    "DiskState",
    "EphemeralResource",
    "Expected",
    "Fallback",
    "FloatArray",
    "GangExit",
    "GangOutcome",
    "GangSeen",
    "GangState",
    "Identity",
    "InfeasibleType",
    "IntArray",
    "Job",
    "JobId",
    "JobSpec",
    "JobState",
    "Lease",
    "Measurement",
    "MetricPoint",
    "Needs",
    "Node",
    "NodeState",
    "NodeStatus",
    "Observation",
    "Operation",
    "OperationId",
    "OperationState",
    "PairRates",
    "PlanInputs",
    "PlannedJobs",
    "Planner",
    "Prediction",
    "Reason",
    "ReplicaSpec",
    "Report",
    "ReportKind",
    "RoundPlan",
    "RoundRecord",
    "Scope",
    "ServiceSpec",
    "ServiceStatus",
    "Serving",
    "StartupTimes",
    "StoredSecret",
    "Term",
    "Tier",
    "Usage",
    "Used",
    "User",
    "WorkDone",
    "Worker",
    "WorkerId",
    "chain_of",
    "in_size",
    "largest_lag",
    "mean_workers_held",
    "mean_workers_received",
    "month_of",
    "parts_held",
    "shares_by_weight",
    "times_of",
    "total_by",
    "typical_s",
    "worker_s",
    "worker_s_of",
    "workers_held",
    "workers_promised",
]
