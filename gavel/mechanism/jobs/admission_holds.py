"""Jobs that wait for something other than capacity: user, other jobs, a new month of the tier, copies, their time."""

from collections.abc import Iterable, Mapping
from functools import reduce

from gavel.mechanism.jobs import lifecycle
from gavel.mechanism.jobs.events import Dismissed, EventKind
from gavel.mechanism.jobs.index import JobIndex
from gavel.mechanism.jobs.reservations import has_reservation, is_due, waits_sentence
from gavel.mechanism.jobs.serving_sentences import serving_sentence
from gavel.ports import JobEvent
from gavel.types import SECONDS_PER_HOUR, Job, JobId, JobState, Reason, Tier, Usage, chain_of, month_of
from gavel.types.copying import changed

NAMED_MAX = 3  # how many jobs a message names


def held(
    jobs: Iterable[Job], *, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], now_s: float
) -> dict[JobId, tuple[Reason, str]]:
    """Return the jobs that no round may serve now, with reason and message; a tier's limit holds the tiers below it."""
    return _held(jobs, spent_tiers(tiers, usage, now_s), now_s)


def held_of(
    index: JobIndex, *, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], now_s: float
) -> dict[JobId, tuple[Reason, str]]:
    """Return what `held` does for the jobs of the index; all of them are looked at only while a tier is out."""
    spent = spent_tiers(tiers, usage, now_s)
    return _held((index.jobs if spent else index.conditional).values(), spent, now_s)


def spent_tiers(tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], now_s: float) -> dict[str, str]:
    """Return the tiers that have reached a monthly limit, their own or one above them, each with the message."""
    month = month_of(now_s)
    return {name: message for name in tiers if (message := _spent(name, tiers, usage, month))}


def is_held(job: Job, spent: Mapping[str, str], now_s: float) -> bool:
    """Return whether no round may serve the job now; `spent` as of `spent_tiers`."""
    return _hold(job, spent, now_s) is not None


def _held(jobs: Iterable[Job], spent: Mapping[str, str], now_s: float) -> dict[JobId, tuple[Reason, str]]:
    return {job.id: why for job in jobs if (why := _hold(job, spent, now_s)) is not None}


def release(job: Job, states: Mapping[JobId, JobState], now_s: float) -> tuple[Job, JobEvent | None]:
    """Return the job with completed jobs taken out of `waits_for`, and FAILED if one of them ended otherwise.

    `states`: the state of each job in `waits_for`. The event is that of the failure, else None.
    """
    for job_id in job.waits_for:
        state = states[job_id]
        if state in (JobState.FAILED, JobState.CANCELLED):
            message = f"This job was to run after job {job_id}, which is {state}."
            gone = Dismissed(at_s=now_s, kind=EventKind.REFUSED, reason=Reason.DEPENDENCY_FAILED, message=message)
            return lifecycle.step(job, gone)
    left = tuple(job_id for job_id in job.waits_for if states[job_id] is not JobState.COMPLETED)
    if left == job.waits_for:
        return job, None
    return changed(job, waits_for=left, reason=Reason.PENDING_EVALUATION, message=""), None


def used(name: str, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], month: str) -> Usage:
    """Return what a tier and those below it used in a month."""
    parts = [usage[key] for key in usage if key[1] == month and name in chain_of(key[0], tiers)]
    return reduce(Usage.plus, parts, Usage(tier=name, month=month))


def month_too_short(tier: Tier, steps: int, scale_factor: int, steps_per_s: float) -> str | None:
    """Return a message if the steps, on the fastest type, need more accelerator hours than the tier has in a month."""
    limit, hours = tier.accelerator_hours_per_month, steps / steps_per_s * scale_factor / SECONDS_PER_HOUR
    if limit is None or hours <= limit:
        return None
    return (
        f"{steps} steps need {hours:.2f} accelerator hours on the fastest type; tier {tier.name} has {limit:g} a month."
    )


def _hold(job: Job, spent: Mapping[str, str], now_s: float) -> tuple[Reason, str] | None:
    if job.pause_requested:
        is_service = job.spec.service is not None
        return Reason.PAUSED, "The service is paused." if is_service else f"The job is paused at {job.position}."
    if job.waits_for:
        names = ", ".join(job.waits_for[:NAMED_MAX]) + (", .." if len(job.waits_for) > NAMED_MAX else "")
        return (
            Reason.WAITING_FOR_JOBS,
            f"Of the jobs that come first, {len(job.waits_for)} of {len(job.spec.after)} have not completed: {names}.",
        )
    if job.spec.service is not None:
        return Reason.SERVING, serving_sentence(job)
    if job.residence.arrives_at_s > now_s:
        return Reason.MOVING, job.residence.why
    if has_reservation(job, now_s) and not is_due(job, now_s):
        return Reason.RESERVED, waits_sentence(job)
    if job.spec.tier in spent and not (job.spec.is_interactive and job.state is JobState.LEASED):  # it has its own end
        return Reason.QUOTA_EXCEEDED, spent[job.spec.tier]
    return None


def _spent(name: str, tiers: Mapping[str, Tier], usage: Mapping[tuple[str, str], Usage], month: str) -> str | None:
    """A message that names a monthly limit of the tier, or of one above it, that is reached; None if none is."""
    for tier in (tiers[each] for each in chain_of(name, tiers)):
        so_far = used(tier.name, tiers, usage, month)
        for limit, spent, unit in (
            (tier.accelerator_hours_per_month, so_far.accelerator_hours, "accelerator hours"),
            (tier.budget_usd_per_month, so_far.cost_usd, "USD"),
        ):
            if limit is not None and spent >= limit:
                return f"Tier {tier.name} has used {spent:.2f} of {limit:g} {unit} in {month}."
    return None
