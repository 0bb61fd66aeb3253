"""Helpers of the conformance suite: combined ports, a job specification, and a round that needs an exact encoding."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

import numpy as np

from gavel.errors import GavelError
from gavel.ports import ApiStore, RecordStore, RequestStore, SchedulerStore
from gavel.types import (
    Allocation,
    AllocationProblem,
    Certificate,
    Configurations,
    JobSpec,
    Lease,
    RoundPlan,
    RoundRecord,
    Tier,
)


class SimulationStore(SchedulerStore, RequestStore, RecordStore, Protocol):
    """The ports of a store that a simulation needs: scheduler, requests and records."""


class WholeStore(SchedulerStore, ApiStore, Protocol):
    """The ports of a store that the service needs: the scheduler's and the API's."""


@contextmanager
def refused(error: type[GavelError]) -> Iterator[None]:
    """Return a context whose block must raise `error`."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def spec(**over: Any) -> JobSpec:
    """Return a job specification of 100 steps with a value of every kind of field."""
    base = JobSpec(
        kind="mlp",
        user="ann",
        tier="default",
        argv=("python", "train.py", "--rate=0.1", "ünïcode\n"),
        total_steps=100,
        env={"SEED": "7"},
        labels={"team": "vision"},
        throughput_steps_per_s={"v100": 1 / 3},
    )
    return replace(base, **over)


def round_record(round_index: int, job_id: str = "j", *, parent: int | None = None) -> RoundRecord:
    """Return a round with floats that only an exact encoding brings back."""
    lease = Lease(
        job_id=job_id,
        generation=1,
        combination=(job_id,),
        accelerator_type="v100",
        worker_ids=("w0",),
        round_index=round_index,
        expires_at_s=10.1,
    )
    plan = RoundPlan(
        round_index=round_index,
        parent_round_index=round_index - 1 if parent is None else parent,
        starts_at_s=0.1 + 0.2,
        duration_s=10.0,
        leases=(lease,),
        policy="max_min_fairness",
        allocation_digest="d",
    )
    allocation = Allocation(
        combinations=((job_id,),),
        accelerator_types=("v100",),
        time_fraction=np.array([[1 / 3]]),
        certificate=Certificate(primal_violation=1e-17),
        policy="max_min_fairness",
        solver="HIGHS",
        notes=((job_id, "its deadline cannot be met"),),
        warm_start={"prices": np.array([5e-324, -0.0]), "round": 1, "names": ["a"]},
    )
    lag = {(job_id, "v100"): -1 / 7}
    costs = {"mlp": 1 / 3, "": 0.1}
    return RoundRecord(plan=plan, problem=_problem(job_id), allocation=allocation, lag_rounds=lag, switch_cost_s=costs)


def _problem(job_id: str) -> AllocationProblem:
    return AllocationProblem(
        now_s=1e9 + 0.1,
        round_duration_s=10.0,
        job_ids=(job_id,),
        combinations=((0,),),
        accelerator_types=("v100",),
        throughput_steps_per_s=np.array([[[0.1], [0.0]]]),
        capacity_workers=np.array([4], dtype=np.int64),
        price_usd_per_hour=np.array([2.48]),
        scale_factor=np.array([1], dtype=np.int64),
        weight=np.array([1.0]),
        steps_remaining=np.array([1e12]),
        age_s=np.array([np.nextafter(1.0, 2.0)]),
        attained_service_s=np.array([0.0]),
        isolated_time_s=np.array([0.3]),
        deadline_at_s=np.array([np.inf]),
        tiers=(Tier(name="default"),),
        tier_of_job=np.array([0], dtype=np.int64),
        users=("ann",),
        cpu_cores=np.array([1 / 3]),
        memory_bytes=np.array([2.0**40]),
        cluster_cpu_cores=64.0,
        configurations=Configurations(
            jobs=np.array([0], dtype=np.int64),
            sizes=np.array([1, 2], dtype=np.int64),
            steps_per_s=np.array([[[0.1, 1 / 7]]]),
        ),
    )


def same(left: Any, right: Any) -> bool:
    """Return True if both are equal bit for bit, with arrays, their types and nested dataclasses."""
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, each.name), getattr(right, each.name)) for each in fields(left)
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return type(left) is type(right) and bool(left == right)
