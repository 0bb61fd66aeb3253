"""Jobs that wait for something other than capacity: for their user, for other jobs, for a new month of their tier."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gavel.mechanism import lifecycle
from gavel.mechanism.events import Dismissed, EventKind
from gavel.ports import JobEvent
from gavel.types import Job, JobId, JobState, Tier, Usage, chain_of, month_of

NAMED_MAX = 3  # how many jobs a message names


def held(
    jobs: Iterable[Job], *, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], now_s: float
) -> dict[JobId, tuple[str, str]]:
    """The jobs that no round may serve now, with reason and message; a tier's limit holds the tiers below it."""
    month = month_of(now_s)
    spent = {name: message for name in tiers if (message := _spent(name, tiers, usage, month))}
    return {job.id: why for job in jobs if (why := _hold(job, spent)) is not None}


def release(job: Job, states: Mapping[JobId, JobState], now_s: float) -> tuple[Job, JobEvent | None]:
    """The job without those that have completed in `waits_for`, FAILED when one ended otherwise; `states`: of each."""
    for job_id in job.waits_for:
        state = states[job_id]
        if state in (JobState.FAILED, JobState.CANCELLED):
            message = f"it was to run after job {job_id}, which is {state}"
            gone = Dismissed(at_s=now_s, kind=EventKind.REFUSED, reason="DependencyFailed", message=message)
            return lifecycle.step(job, gone)
    left = tuple(job_id for job_id in job.waits_for if states[job_id] is not JobState.COMPLETED)
    if left == job.waits_for:
        return job, None
    return replace(job, waits_for=left, reason="PendingEvaluation", message=""), None


def used(name: str, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], month: str) -> Usage:
    """What a tier and those below it used in a month."""
    parts = [usage[key] for key in usage if key[1] == month and name in chain_of(key[0], tiers)]
    return Usage(
        tier=name,
        month=month,
        accelerator_hours=sum(part.accelerator_hours for part in parts),
        cost_usd=sum(part.cost_usd for part in parts),
    )


def _hold(job: Job, spent: Mapping[str, str]) -> tuple[str, str] | None:
    if job.pause_requested:
        return ("Paused", f"paused at step {job.steps_done} of {job.spec.total_steps}; goes on when it is resumed")
    if job.waits_for:
        names = ", ".join(job.waits_for[:NAMED_MAX]) + (", .." if len(job.waits_for) > NAMED_MAX else "")
        return ("WaitingForJobs", f"{len(job.waits_for)} of {len(job.spec.after)} have not completed: {names}")
    if job.spec.tier in spent:
        return ("QuotaExceeded", spent[job.spec.tier])
    return None


def _spent(name: str, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], month: str) -> str | None:
    """Which limit of the tier, or of one above it, is reached this month, with the figures; None: none is."""
    for tier in (tiers[each] for each in chain_of(name, tiers)):
        so_far = used(tier.name, tiers, usage, month)
        for limit, spent, unit in (
            (tier.accelerator_hours_per_month, so_far.accelerator_hours, "accelerator hours"),
            (tier.budget_usd_per_month, so_far.cost_usd, "USD"),
        ):
            if limit is not None and spent >= limit:
                return (
                    f"tier {tier.name} has used {spent:.2f} of {limit:g} {unit} in {month};"
                    " goes on next month, or when an operator raises the limit"
                )
    return None
