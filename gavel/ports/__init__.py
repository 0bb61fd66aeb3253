"""What the rooms ask of each other: one small protocol each.

A port's fake ships beside its real implementation and passes the same conformance suite.
"""

from gavel.ports.cluster import (
    ClusterBackend,
    ExtendLease,
    ForgetGang,
    Instruction,
    KeepCheckpoint,
    LaunchGang,
    SetResources,
    StopGang,
)
from gavel.ports.estimator import ProfilingChoice, ThroughputEstimate, ThroughputEstimator, ThroughputMatrix
from gavel.ports.policy import Policy, PolicyRunner
from gavel.ports.store import AuditEntry, Changes, Feed, JobEdit, JobEvent, JobFilter, Page, Snapshot, Store, Submitted
from gavel.ports.time import Clock

__all__ = [
    "AuditEntry",
    "Changes",
    "Clock",
    "ClusterBackend",
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
    "ProfilingChoice",
    "SetResources",
    "Snapshot",
    "StopGang",
    "Store",
    "Submitted",
    "ThroughputEstimate",
    "ThroughputEstimator",
    "ThroughputMatrix",
]
