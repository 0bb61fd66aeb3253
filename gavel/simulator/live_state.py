"""The live state of the service as the state of a lean simulation: progress, what was held, placement and lags.

Instants of the simulation count from now. Two gangs that share their workers are simulated as one that holds them and
one that waits, since a lean simulation from here lets no gangs share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.simulator.active import Active
from gavel.simulator.world_state import WorldState
from gavel.types import AllocationProblem, Cluster, Job, JobId, RoundRecord, WorkerId
from workloads.traces.job import TraceJob


def world_state(
    jobs: Sequence[Job],
    problem: AllocationProblem,
    rows: Sequence[int],
    *,
    cluster: Cluster,
    last: RoundRecord | None,
    now_s: float,
) -> WorldState:
    """Return the state of those `rows` of the problem, and of its `jobs`, of which each ends where it is said to.

    Each job's name is its id. `last`: the round in force, whose leases on workers of `cluster` are held.
    """
    active = Active(len(problem.accelerator_types))
    for index, row in enumerate(rows):
        rates, tier = problem.throughput_steps_per_s[row, 0], int(problem.tier_of_job[row])
        job = _trace_job(jobs[row], int(problem.steps_remaining[row]), now_s)
        active.add(job, index, rates=rates, capacity_workers=problem.capacity_workers, tier=tier)
    _set_progress(active, [jobs[row] for row in rows], problem, rows)
    if last:
        _set_lags(active, last, problem)
        _set_leases(active, last, problem, {worker.id for worker in cluster.workers})
    return WorldState(at_s=0.0, active=active.state(), jobs_seen=len(rows), rounds=0)


def _trace_job(job: Job, steps_left: int, now_s: float) -> TraceJob:
    """Return the job as one of a trace that begins now, as long as what it has done and has left."""
    deadline_at_s = None if job.spec.deadline_at_s is None else job.spec.deadline_at_s - now_s
    total_steps = job.steps_reported + steps_left
    spec = replace(job.spec, name=job.id, total_steps=total_steps, deadline_at_s=deadline_at_s)
    return TraceJob(submitted_at_s=job.submitted_at_s - now_s, spec=spec)


def _set_progress(active: Active, jobs: Sequence[Job], problem: AllocationProblem, rows: Sequence[int]) -> None:
    """Set what the jobs have done and held until now. What nobody has accounted yet was held on the fastest type."""
    done = np.array([job.steps_reported for job in jobs], dtype=float)
    active.steps_done[:] = active.base_steps[:] = active.begun_steps[:] = done
    active.has_trained[:] = done > 0
    active.isolated_steps[:] = problem.isolated_time_s[list(rows)] * active.whole_rate
    for row, job in enumerate(jobs):
        for column, name in enumerate(problem.accelerator_types):
            active.received_s[row, column] = job.received_s.get(name, 0.0)
    held_s = problem.attained_service_s[list(rows)] / active.scale_factor - active.received_s.sum(axis=1)
    active.received_s[np.arange(len(jobs)), active.rates.argmax(axis=1)] += np.maximum(0.0, held_s)


def _set_lags(active: Active, last: RoundRecord, problem: AllocationProblem) -> None:
    for row, job in enumerate(active.jobs):
        for column, name in enumerate(problem.accelerator_types):
            active.ledger[row, column] = last.lag_rounds.get((job.spec.name, name), 0.0)


def _set_leases(active: Active, last: RoundRecord, problem: AllocationProblem, workers: set[WorkerId]) -> None:
    """Let the gangs that hold workers of the cluster go on there, as if they trained."""
    row_of: Mapping[JobId, int] = {job.spec.name: row for row, job in enumerate(active.jobs)}
    free = set(workers)
    for lease in last.plan.leases:
        row = row_of.get(lease.job_id)
        if (
            row is None
            or lease.accelerator_type not in problem.accelerator_types
            or not free.issuperset(lease.worker_ids)
        ):
            continue
        free -= set(lease.worker_ids)
        column = problem.accelerator_types.index(lease.accelerator_type)
        active.workers[row], active.column[row] = lease.worker_ids, column
        active.running_rate[row] = active.alone_rate[row] = active.rates[row, column]
        active.has_trained[row] = 1.0
