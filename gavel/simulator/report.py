"""Figures of a real or simulated run: completion times, fairness, use of the cluster. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.finish_time import finish_time_fairness
from gavel.types import SECONDS_PER_HOUR, AcceleratorType, Cluster, Job, JobId, JobState, worker_s_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job's line. `jct_s`: seconds from submission to completion. `rho`: that over its time on a 1/n share.

    Both are None until the job has completed; rho also if the time on its share is not known (Themis, NSDI '20, section
    3).
    """

    id: JobId
    name: str
    user: str
    tier: str
    kind: str
    state: JobState
    jct_s: float | None
    rho: float | None
    rounds: Mapping[AcceleratorType, int]
    preemptions: int
    scale_factor: int = 1
    submitted_at_s: float = 0.0
    finished_at_s: float | None = None
    fastest_s: float | None = None  # alone on its fastest type, from the first step to the last
    lost_s: float = 0.0  # to switches: checkpoints, restores, relaunches
    packed_s: float = 0.0  # on workers shared with another job, each of which pays for half of them
    cost_usd: float = 0.0
    deadline_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of the completed jobs among `jobs`; None where there are none. Makespan: first submission to last end."""

    jobs: int
    completed: int
    preemptions: int
    mean_jct_s: float | None
    median_jct_s: float | None
    p90_jct_s: float | None
    makespan_s: float | None
    mean_rho: float | None
    max_rho: float | None


def row_of(job: Job) -> JobResult:
    """Return the job's line of the report."""
    return JobResult(
        id=job.id,
        name=job.spec.name,
        user=job.spec.user,
        tier=job.spec.tier,
        kind=job.spec.kind,
        state=job.state,
        jct_s=completion_time_s(job),
        rho=completed_rho(job),
        rounds=dict(job.rounds_received),
        preemptions=job.preemptions,
    )


def cost_usd(job: Job, price_usd_per_hour: Mapping[AcceleratorType, float]) -> float:
    """Return what the workers that the job has held cost, at the prices of their types; a type without one is free."""
    held = worker_s_of(job).items()
    return sum(price_usd_per_hour.get(name, 0.0) * seconds for name, seconds in held) / SECONDS_PER_HOUR


def completion_time_s(job: Job) -> float | None:
    """Return the seconds from submission to completion; None unless the job has completed."""
    if job.state is not JobState.COMPLETED or job.finished_at_s is None:
        return None
    return job.finished_at_s - job.submitted_at_s


def completed_rho(job: Job) -> float | None:
    """Return rho of a completed job; None for others. Below 1: sharing served it better than 1/n of the cluster."""
    jct_s = completion_time_s(job)
    return None if jct_s is None else finish_time_fairness(jct_s, job.isolated_time_s)


def metrics(jobs: Sequence[Job]) -> Metrics:
    """Return the figures of a whole run."""
    times = [time_s for job in jobs if (time_s := completion_time_s(job)) is not None]
    rhos = [rho for job in jobs if (rho := completed_rho(job)) is not None]
    return Metrics(
        jobs=len(jobs),
        completed=len(times),
        preemptions=sum(job.preemptions for job in jobs),
        mean_jct_s=float(np.mean(times)) if times else None,
        median_jct_s=float(np.median(times)) if times else None,
        p90_jct_s=float(np.quantile(times, 0.9)) if times else None,
        makespan_s=span_s(jobs) if times else None,
        mean_rho=float(np.mean(rhos)) if rhos else None,
        max_rho=max(rhos) if rhos else None,
    )


def metrics_by_tier(jobs: Sequence[Job]) -> dict[str, Metrics]:
    """Return the figures of the jobs of each tier, sorted by tier."""
    tiers = sorted({job.spec.tier for job in jobs})
    return {tier: metrics([job for job in jobs if job.spec.tier == tier]) for tier in tiers}


def utilisation(jobs: Sequence[Job], cluster: Cluster) -> float:
    """Return the part of all worker seconds, from first submission to last end, that gangs held; in [0, 1]."""
    held_s = sum(sum(worker_s_of(job).values()) for job in jobs)
    offered_s = span_s(jobs) * len(cluster.workers)
    return held_s / offered_s if offered_s > 0 else 0.0


def span_s(jobs: Sequence[Job]) -> float:
    """Return the seconds from the first submission to the last end; 0 when no job has ended."""
    ends = [job.finished_at_s for job in jobs if job.finished_at_s is not None]
    return max(ends) - min(job.submitted_at_s for job in jobs) if ends else 0.0
