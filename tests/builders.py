"""Builders of the nouns with defaults that a test may override by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gavel.types import AllocationProblem, Cluster, Job, JobSpec, Node, Tier, Worker


def a_spec(**over: Any) -> JobSpec:
    """A job specification of kind `mlp` that wants 100 steps."""
    return JobSpec(
        **{"kind": "mlp", "user": "ann", "tier": "gold", "argv": ("python", "train.py"), "total_steps": 100} | over
    )


def a_job(job_id: str = "j1", *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    """A queued job."""
    return Job(**{"id": job_id, "spec": a_spec(**(spec or {}))} | over)


def a_cluster(**workers_of_type: int) -> Cluster:
    """One node; `a_cluster(fast=2, slow=2)` has workers fast-0, fast-1, slow-0, slow-1."""
    workers = tuple(
        Worker(id=f"{name}-{index}", node="node-0", accelerator_type=name)
        for name, count in workers_of_type.items()
        for index in range(count)
    )
    return Cluster(nodes=(Node(name="node-0", cpu_cores=len(workers)),), workers=workers)


def a_problem(throughput: Sequence[Sequence[float]], capacity: Sequence[int], **over: Any) -> AllocationProblem:
    """One combination per job: row i of `throughput` (steps/s) is job i on each type; types are t0, t1, ..

    Every array of the problem may be given as a plain list.
    """
    rates = np.asarray(throughput, dtype=float).reshape(len(throughput), len(capacity))
    n, m = rates.shape
    members = np.zeros((n, 2, m))
    members[:, 0, :] = rates
    fields: dict[str, Any] = {
        "now_s": 0.0,
        "round_duration_s": 10.0,
        "job_ids": tuple(f"j{i}" for i in range(n)),
        "combinations": tuple((i,) for i in range(n)),
        "accelerator_types": tuple(f"t{j}" for j in range(m)),
        "throughput_steps_per_s": members,
        "capacity_workers": np.asarray(capacity, dtype=np.int64),
        "price_usd_per_hour": np.ones(m),
        "scale_factor": np.ones(n, dtype=np.int64),
        "weight": np.ones(n),
        "steps_remaining": np.full(n, 1000.0),
        "age_s": np.arange(n, 0, -1, dtype=float),
        "attained_service_s": np.zeros(n),
        "isolated_time_s": np.zeros(n),
        "deadline_at_s": np.full(n, np.inf),
        "tiers": (Tier(name="default"),),
        "tier_of_job": np.zeros(n, dtype=np.int64),
        "users": ("ann",) * n,
        "cpu_cores": np.zeros(n),
        "memory_bytes": np.zeros(n),
    }
    for name, value in over.items():
        given = fields.get(name)
        fields[name] = np.asarray(value, dtype=given.dtype) if isinstance(given, np.ndarray) else value
    return AllocationProblem(**fields)
