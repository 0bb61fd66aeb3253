"""Which jobs go first in a round, since they are far behind their isolated share: docs/elastic.md."""

from collections.abc import Sequence

import numpy as np

from gavel import finish_time
from gavel.elastic.late import Behind, behind
from gavel.elastic.utility import ElasticJobs
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.mechanism.planning.planner import time_per_job
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Configurations,
    FloatArray,
    Job,
    JobId,
)

ENOUGH = 1 - 1e-6  # of T_iso: the policy gives a late job its isolated rate, but for rounding


def jobs_behind(
    jobs: Sequence[Job],
    speed: FloatArray,
    configurations: Configurations | None,
    asked: ElasticJobs,
    inputs: SizeInputs,
) -> Behind:
    """Return who of n jobs is behind its isolated share, and by how much, from what is `asked` of their sizes.

    `speed` (n, m, k): steps per second in each configuration that a job may have; a rigid job has one size. Without an
    elastic job nobody has to go first: what rounds owe to each follows from their lags alone.
    """
    if configurations is None:
        return Behind(order=np.zeros(0, dtype=np.int64), least=np.zeros(len(jobs)), urgency=np.ones(len(jobs)))
    able = np.asarray(speed.any(axis=(1, 2)))
    share: FloatArray = able.astype(np.float64) / max(1, int(able.sum()))
    workers = np.array([inputs.feasibility.workers[name] for name in inputs.feasibility.types], dtype=np.int64)
    sizes = np.array([job.spec.scale_factor for job in jobs], dtype=np.int64)
    least = finish_time.isolated_rate(speed.max(axis=2, initial=0.0), workers, sizes, share, configurations)
    done_s = np.array([job.isolated_time_s for job in jobs])
    left_s = np.divide(asked.steps_left, least, out=np.full(len(jobs), np.inf), where=least > 0)
    age_s = inputs.now_s - np.array([job.submitted_at_s for job in jobs])
    has_claim = np.array([_has_progress(job) for job in jobs], dtype=np.bool_)
    whole_s = np.where(has_claim, done_s + left_s, np.inf)
    return behind(age_s - done_s, whole_s, asked.restart_s + inputs.round_duration_s, least)


def _has_progress(job: Job) -> bool:
    """Whether the deficit says how the job was served: not of replicas and sessions, nor of who ran without a step."""
    trains = job.spec.replica is None and not job.spec.is_interactive
    return trains and (job.steps_reported > 0 or not any(job.received_s.values()))


def served_first(
    late: Sequence[tuple[JobId, AcceleratorType]], problem: AllocationProblem, allocation: Allocation
) -> tuple[tuple[JobId, AcceleratorType], ...]:
    """Return those of the late jobs, each with its type, to which the policy gives its isolated rate.

    They have a place before all others. To the others the policy in force owes less: it may serve jobs in an order, or
    share by users.
    """
    if not late:
        return ()
    rates, share = problem.throughput_steps_per_s[: len(problem.job_ids), 0], np.zeros(len(problem.job_ids))
    able = rates.any(axis=1)
    share[able] = 1 / max(1, int(able.sum()))
    workers, scale = problem.capacity_workers, problem.scale_factor
    least = finish_time.isolated_rate(rates, workers, scale, share, problem.configurations)
    given = (rates * time_per_job(allocation, problem)).sum(axis=1)
    enough = dict(zip(problem.job_ids, (given >= least * ENOUGH).tolist(), strict=True))
    return tuple(each for each in late if enough[each[0]])
