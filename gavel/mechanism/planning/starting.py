"""Gangs that stay until they can keep what they do: they start, restore a checkpoint, have saved none for too long, or
have done all their steps and end.

A lease that ends before its gang has trained is lost, and so would be every later one. So such a gang stays for the
next round, too, whatever the allocation gives to others, but for `start_limit_s` seconds in all; and a job that had
that much in one lease without a checkpoint is not kept again (gavel/mechanism/jobs/no_progress.py). A program that has
done all its steps still evaluates or writes its results; stopped there it would begin that again, without the values of
its last step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gavel.mechanism.planning.start_budget import cluster_s
from gavel.mechanism.tick import Tick
from gavel.types import GangState, Job, JobId, JobState, typical_s

LEASES_WITHOUT_CHECKPOINT = 2  # as usual; later ones grow
LONGER_BY = 2.0  # than the longest so far
HAND_OVER_S = 1e-3  # a gang that starts so late in its round has had the whole round


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSoFar:
    """What a gang has done of its lease; instants and durations in seconds.

    `training_since_s` None: it has reported nothing. `leases_without_checkpoint` and `longest_without_checkpoint_s` are
    those of its job before this lease; `checkpoint_s` is what the writing of a checkpoint takes. `has_all_steps`: no
    step of its job is left.
    """

    started_at_s: float
    training_since_s: float | None
    has_saved: bool = False
    has_all_steps: bool = False
    checkpoint_s: float = 0.0
    leases_without_checkpoint: int = 0
    longest_without_checkpoint_s: float = 0.0


def stays(lease: LeaseSoFar, starts_at_s: float, *, start_limit_s: float) -> bool:
    """Return True if the gang stays in the round that starts at `starts_at_s`, whatever the allocation says."""
    ran_s = starts_at_s - lease.started_at_s + HAND_OVER_S
    if lease.has_all_steps:
        return ran_s < start_limit_s
    if lease.has_saved or max(ran_s, lease.longest_without_checkpoint_s) >= start_limit_s:
        return False
    if lease.training_since_s is None or starts_at_s < lease.training_since_s + lease.checkpoint_s:
        return True
    is_late = lease.leases_without_checkpoint >= LEASES_WITHOUT_CHECKPOINT
    return is_late and ran_s < LONGER_BY * lease.longest_without_checkpoint_s


def starting(
    tick: Tick,
    jobs: Sequence[Job],
    starts_at_s: float,
    *,
    start_limit_s: float,
    unreported_s: Mapping[str, float] = MappingProxyType({}),
) -> tuple[JobId, ...]:
    """Return those of `jobs` whose gangs stay in the round that starts at `starts_at_s`.

    `unreported_s`: how long ended gangs of each user held workers without a report; with those that are there now it
    is limited to `start_limit_s` (start_budget.py).
    """
    leases = _leases(tick, jobs)
    spent_s = defaultdict[str, float](float, unreported_s)
    for job, lease in leases:
        if lease.training_since_s is None:
            spent_s[job.spec.user] += cluster_s(job, starts_at_s - lease.started_at_s, tick.seen.cluster)
    return tuple(
        job.id
        for job, lease in leases
        if (lease.training_since_s is not None or spent_s[job.spec.user] < start_limit_s)
        and stays(lease, starts_at_s, start_limit_s=start_limit_s)
    )


def _leases(tick: Tick, jobs: Sequence[Job]) -> list[tuple[Job, LeaseSoFar]]:
    """Return those of `jobs` that have a gang, with what it has done of its lease."""
    times = {(each.kind, each.accelerator_type): each for each in tick.startup_times}
    launched = {gang.job_id: gang for gang in tick.seen.gangs if gang.state is GangState.RUNNING}
    leases = []
    for job in jobs:
        gang = launched.get(job.id)
        if gang is None or job.state is not JobState.LEASED or gang.generation != job.generation:
            continue
        measured = times.get((job.spec.kind, gang.accelerator_type))
        launched_at_s = job.accounted_until_s  # of a gang whose programs have yet to start
        lease = LeaseSoFar(
            started_at_s=launched_at_s if gang.started_at_s is None else gang.started_at_s,
            training_since_s=job.training_since_s,
            has_saved=job.has_saved,
            has_all_steps=job.total_steps is not None and job.steps_so_far >= job.total_steps,
            checkpoint_s=typical_s(measured.checkpoint_s) if measured else 0.0,
            leases_without_checkpoint=job.leases_without_checkpoint,
            longest_without_checkpoint_s=job.longest_without_checkpoint_s,
        )
        leases.append((job, lease))
    return leases
