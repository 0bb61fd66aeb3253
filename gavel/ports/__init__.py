"""The protocols by which the rooms use each other: one small protocol for each purpose.

A port's fake ships beside its real implementation and passes the same conformance suite. Of the stores' ports the fake
keeps those that a simulation needs: the scheduler's, requests and records.
"""

from gavel.ports.autopilot import AutopilotStore
from gavel.ports.cluster import (
    ClusterBackend,
    CordonNode,
    ExtendLease,
    ForgetGang,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    PrepareGang,
    SaveCheckpoint,
    SetResources,
    StopGang,
)
from gavel.ports.estimator import (
    ColocatedEstimate,
    ProfilingChoice,
    ThroughputEstimate,
    ThroughputEstimator,
    ThroughputMatrix,
    ThroughputSource,
)
from gavel.ports.job_queries import JobEdit, JobFilter, Page
from gavel.ports.policy import Policy, PolicyRunner
from gavel.ports.reservations import Commitments, ReservationRule
from gavel.ports.store import (
    ApiStore,
    AuditEntry,
    Changes,
    Feed,
    JobEvent,
    RecordStore,
    RequestStore,
    RetentionStore,
    SchedulerStore,
    Snapshot,
    Submitted,
)
from gavel.ports.time import Clock

__all__ = [
    "ApiStore",
    "AuditEntry",
    "AutopilotStore",
    "Changes",
    "Clock",
    "ClusterBackend",
    "ColocatedEstimate",
    "Commitments",
    "CordonNode",
    "ExtendLease",
    "Feed",
    "ForgetGang",
    "Instruction",
    "JobEdit",
    "JobEvent",
    "JobFilter",
    "KeepCheckpoint",
    "LaunchGang",
    "Page",
    "Policy",
    "PolicyRunner",
    "PrepareGang",
    "ProfilingChoice",
    "RecordStore",
    "RequestStore",
    "ReservationRule",
    "RetentionStore",
    "SaveCheckpoint",
    "SchedulerStore",
    "SetResources",
    "Snapshot",
    "StopGang",
    "Submitted",
    "ThroughputEstimate",
    "ThroughputEstimator",
    "ThroughputMatrix",
    "ThroughputSource",
]
