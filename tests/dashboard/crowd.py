"""A store with thousands of unfinished jobs on hundreds of workers, after some rounds."""

from dataclasses import replace

import numpy as np

from gavel.ports import Changes
from gavel.store.sql import SqlStore
from gavel.types import (
    Allocation,
    Certificate,
    Cluster,
    Job,
    JobState,
    Lease,
    Node,
    Reason,
    RoundPlan,
    RoundRecord,
    Worker,
)
from tests.builders import a_problem, a_spec
from tests.dashboard.scene import KINDS, ROUND_S, TIERS, TYPES

JOBS_A_SUBMIT = 1000
WORKERS_A_NODE = 8


def gather(store: SqlStore, now_s: float, *, jobs: int, workers: int, rounds: int = 5) -> None:
    """Fill the store. `workers` of all types together; each round gives every worker to another job."""
    start_s = now_s - rounds * ROUND_S + ROUND_S / 2
    for tier in TIERS:
        store.put_tier(tier, expected_version=None, by="test", now_s=start_s)
    there = [each for start in range(0, jobs, JOBS_A_SUBMIT) for each in _submit(store, start, jobs, start_s)]
    cluster = _cluster(workers)
    _commit(store, Changes(cluster=cluster))
    for index in range(1, rounds + 1):
        record = _round(there, cluster, index, start_s)
        running = {lease.job_id: lease for lease in record.plan.leases}
        changed = tuple(_moved(job, running.get(job.id)) for job in there if job.id in running)
        _commit(store, Changes(round=record, jobs=changed if index == rounds else ()))


def _submit(store: SqlStore, start: int, jobs: int, now_s: float) -> list[Job]:
    specs = [
        a_spec(kind=KINDS[i % len(KINDS)], name=f"job-{i}", tier=TIERS[i % 3 == 2].name, total_steps=20_000)
        for i in range(start, min(jobs, start + JOBS_A_SUBMIT))
    ]
    return [each.job for each in store.submit_many(specs, key=None, body_hash="", now_s=now_s)]


def _commit(store: SqlStore, changes: Changes) -> None:
    store.commit(store.snapshot().version, changes)


def _cluster(workers: int) -> Cluster:
    nodes = tuple(
        Node(name=f"node-{i}", cpu_cores=64, memory_bytes=1 << 38) for i in range(-(-workers // WORKERS_A_NODE))
    )
    return Cluster(
        nodes=nodes,
        workers=tuple(
            Worker(
                id=f"{TYPES[i % len(TYPES)]}-{i}",
                node=f"node-{i // WORKERS_A_NODE}",
                accelerator_type=TYPES[i % len(TYPES)],
            )
            for i in range(workers)
        ),
    )


def _round(jobs: list[Job], cluster: Cluster, index: int, start_s: float) -> RoundRecord:
    starts_at_s = start_s + (index - 1) * ROUND_S
    leases = tuple(
        Lease(
            job_id=job.id,
            generation=index,
            combination=(job.id,),
            accelerator_type=worker.accelerator_type,
            worker_ids=(worker.id,),
            round_index=index,
            expires_at_s=starts_at_s + ROUND_S,
        )
        for i, worker in enumerate(cluster.workers)
        for job in (jobs[(index * len(cluster.workers) + i) % len(jobs)],)
    )
    plan = RoundPlan(
        round_index=index,
        parent_round_index=index - 1,
        starts_at_s=starts_at_s,
        duration_s=ROUND_S,
        leases=leases,
        policy="hierarchical",
        allocation_digest="0" * 8,
    )
    ids, capacity = tuple(job.id for job in jobs), cluster.capacity_workers()
    workers = [capacity[name] for name in TYPES]
    share = np.tile(np.array(workers) / len(jobs), (len(jobs), 1))
    allocation = Allocation(
        combinations=tuple((job_id,) for job_id in ids),
        accelerator_types=TYPES,
        time_fraction=share,
        certificate=Certificate(primal_violation=1e-9, dual_gap=3e-8),
        policy="hierarchical",
        solver="prices",
        solve_time_s=0.21,
    )
    problem = a_problem([[1.0] * len(TYPES)] * len(jobs), workers, job_ids=ids, accelerator_types=TYPES)
    return RoundRecord(plan=plan, problem=problem, allocation=allocation)


def _moved(job: Job, lease: Lease | None) -> Job:
    if lease is None:
        return job
    return replace(
        job, state=JobState.LEASED, generation=lease.generation, attempt=1, steps_done=150, reason=Reason.RUNNING
    )
