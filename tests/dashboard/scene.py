"""A store with a small history: tiers, jobs, rounds, an allocation, throughputs, committed as the scheduler does."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gavel.ports import Changes, JobEvent, ThroughputEstimate, ThroughputSource
from gavel.store.sql import SqlStore
from gavel.types import (
    Allocation,
    AllocationProblem,
    Certificate,
    Cluster,
    Job,
    JobState,
    Lease,
    Node,
    Reason,
    RoundPlan,
    RoundRecord,
    Tier,
    Worker,
)
from tests.builders import a_problem, a_spec

TYPES = ("avx2", "avx512", "lowblas", "scalar")
KINDS = ("attention-b8", "cnn-b32", "mlp-b64", "recsys-b512", "rnn-b16")
TIERS = (Tier(name="gold", weight=2.0, guarantee=0.25), Tier(name="silver", objective="finish_time_fairness"))
WORKERS_PER_TYPE = 2
ROUND_S = 10.0
SOURCES = [ThroughputSource(each) for each in ("measured", "measured", "measured", "stated", "inferred")]


def tell(store: SqlStore, now_s: float, *, jobs: int = 18, rounds: int = 40) -> list[Job]:
    """Fill the store; return the jobs, oldest first. The newest round is in force at `now_s`."""
    start_s = now_s - rounds * ROUND_S + ROUND_S / 2
    for tier in TIERS:
        store.put_tier(tier, expected_version=None, by="test", now_s=start_s)
    submitted = [_submit(store, i, start_s) for i in range(jobs)]
    _commit(store, Changes(cluster=_cluster(), throughputs=_throughputs()))
    held = dict.fromkeys((job.id for job in submitted), 0)
    for index in range(1, rounds + 1):
        record = _round(submitted, index, start_s)
        for lease in record.plan.leases:
            held[lease.job_id] += 1
        _commit(store, Changes(round=record))
    last = {lease.job_id: lease for lease in record.plan.leases}
    moved = tuple(_moved(job, i, last.get(job.id), held[job.id], now_s) for i, job in enumerate(submitted))
    _commit(store, Changes(jobs=moved, events=tuple(_history(job, now_s) for job in moved)))
    return list(moved)


def _submit(store: SqlStore, index: int, start_s: float) -> Job:
    kind = KINDS[index % len(KINDS)]
    spec = a_spec(
        kind=kind,
        name=f"{kind.partition('-')[0]}-{index}",
        tier=TIERS[index % 3 == 2].name,
        argv=("python", "-m", "workloads.training", kind),
        total_steps=20_000,
        scale_factor=2 if index % 7 == 3 else 1,
    )
    return store.submit(spec, key=None, body_hash="", now_s=start_s + index).job


def _commit(store: SqlStore, changes: Changes) -> None:
    store.commit(store.snapshot().version, changes)


def _cluster() -> Cluster:
    workers = tuple(
        Worker(id=f"{name}-{i}", node="node-0", accelerator_type=name)
        for name in TYPES
        for i in range(WORKERS_PER_TYPE)
    )
    return Cluster(nodes=(Node(name="node-0", cpu_cores=8, memory_bytes=8 << 30),), workers=workers)


def _throughputs() -> tuple[ThroughputEstimate, ...]:
    random = np.random.default_rng(7)
    return tuple(
        ThroughputEstimate(
            kind=kind,
            scale_factor=1,
            accelerator_type=name,
            steps_per_s=float(random.uniform(0.1, 1) * 10 ** random.uniform(0.5, 2.5)),
            relative_error=float(random.uniform(0.01, 0.2)),
            source=ThroughputSource(random.choice(SOURCES)),
            measurements=int(random.integers(1, 40)),
        )
        for kind in KINDS
        for name in TYPES
    )


def _round(jobs: Sequence[Job], index: int, start_s: float) -> RoundRecord:
    starts_at_s = start_s + (index - 1) * ROUND_S
    plan = RoundPlan(
        round_index=index,
        parent_round_index=index - 1,
        starts_at_s=starts_at_s,
        duration_s=ROUND_S,
        leases=tuple(_leases(jobs, index, starts_at_s)),
        policy="hierarchical",
        allocation_digest="0" * 8,
    )
    return RoundRecord(plan=plan, problem=_problem(jobs), allocation=_allocation(jobs))


def _leases(jobs: Sequence[Job], index: int, starts_at_s: float) -> list[Lease]:
    """Each type's workers go round among the jobs, at another pace for each type; some leases are renewed."""
    leases = []
    taken: set[str] = set()
    for j, name in enumerate(TYPES):
        turn = index // (1 + j % 3)
        free = [f"{name}-{i}" for i in range(WORKERS_PER_TYPE)]
        for job in (jobs[(turn * 5 + 3 * j + k) % len(jobs)] for k in range(len(jobs))):
            wants = job.spec.scale_factor
            if job.id in taken or len(free) < wants:
                continue
            taken.add(job.id)
            leases.append(
                Lease(
                    job_id=job.id,
                    generation=turn * len(TYPES) + j + 1,
                    combination=(job.id,),
                    accelerator_type=name,
                    worker_ids=tuple(free[:wants]),
                    round_index=index,
                    expires_at_s=starts_at_s + ROUND_S,
                    is_profiling=index < 5 or (index % 9 == 0 and j == 1),
                )
            )
            free = free[wants:]
    return leases


def _allocation(jobs: Sequence[Job]) -> Allocation:
    random = np.random.default_rng(11)
    wish = random.uniform(0, 1, (len(jobs), len(TYPES))) ** 3
    share = wish / np.maximum(wish.sum(axis=1, keepdims=True), 1) / np.maximum(wish.sum(axis=0) / 2, 1)
    share[share < 0.02] = 0.0
    return Allocation(
        combinations=tuple((job.id,) for job in jobs),
        accelerator_types=TYPES,
        time_fraction=share,
        certificate=Certificate(primal_violation=1e-9, dual_gap=3e-8),
        policy="hierarchical",
        solver="clarabel",
        solve_time_s=0.011,
    )


def _problem(jobs: Sequence[Job]) -> AllocationProblem:
    ids = tuple(job.id for job in jobs)
    return a_problem(
        [[1.0] * len(TYPES)] * len(jobs), [WORKERS_PER_TYPE] * len(TYPES), job_ids=ids, accelerator_types=TYPES
    )


def _moved(job: Job, index: int, lease: Lease | None, rounds_held: int, now_s: float) -> Job:
    steps = 150 * rounds_held + 37 * index
    job = replace(
        job,
        attempt=min(1, rounds_held),
        steps_done=steps,
        steps_reported=steps + 12,
        received_s={TYPES[index % 4]: 6.0 * rounds_held, TYPES[(index + 1) % 4]: 4.0 * rounds_held},
        isolated_time_s=rounds_held * 14.0,
        started_at_s=job.submitted_at_s + 9,
        accounted_until_s=now_s,
        preemptions=index % 3,
        reason=Reason.BEHIND_FAIR_SHARE,
        message=f"{TYPES[index % 4]} 2/2 leased; behind by 0.0{index % 9}; {index % 5} jobs ahead in tier",
    )
    if index in (4, 9):
        ended = JobState.FAILED if index == 9 else JobState.COMPLETED
        return replace(
            job,
            state=ended,
            finished_at_s=now_s - 30,
            exit_code=int(index == 9),
            steps_done=20_000 if index == 4 else steps,
            reason=Reason.PROGRAM_FAILED if index == 9 else Reason.COMPLETED,
            message="exit code 1" if index == 9 else "",
        )
    if lease is None:
        return job
    return replace(
        job,
        state=JobState.LEASED,
        generation=lease.generation,
        reason=Reason.RUNNING,
        message="",
        metrics={"loss": 0.31},
    )


def _history(job: Job, now_s: float) -> JobEvent:
    return JobEvent(job_id=job.id, at_s=now_s - 20, kind="lease.granted", message="on avx512-0", round_index=38)
