"""A job's states: a literal table, one function that follows it, and what a gang's end means."""

from collections.abc import Mapping
from dataclasses import replace

from gavel.errors import InvalidTransition
from gavel.mechanism.events import Dismissed, Ended, Event, EventKind, Launched, Reported
from gavel.ports import JobEvent
from gavel.types import AcceleratorType, GangExit, GangOutcome, GangSeen, GangState, Job, JobState, ReportKind

LOST_BACKOFF_MAX_S = 3600.0

TABLE: Mapping[tuple[JobState, EventKind], JobState] = {
    (JobState.QUEUED, EventKind.LAUNCHED): JobState.LEASED,
    (JobState.QUEUED, EventKind.FINISHED): JobState.COMPLETED,  # late, but with the live token
    (JobState.QUEUED, EventKind.CANCELLED): JobState.CANCELLED,
    (JobState.QUEUED, EventKind.REFUSED): JobState.FAILED,
    (JobState.LEASED, EventKind.PREEMPTED): JobState.QUEUED,
    (JobState.LEASED, EventKind.LOST): JobState.QUEUED,
    (JobState.LEASED, EventKind.RETRIED): JobState.QUEUED,
    (JobState.LEASED, EventKind.FINISHED): JobState.COMPLETED,
    (JobState.LEASED, EventKind.BROKE): JobState.FAILED,
    (JobState.LEASED, EventKind.CANCELLED): JobState.CANCELLED,
}


def step(job: Job, event: Event) -> tuple[Job, JobEvent]:
    """The job after the event, and the line it adds to its story. Raises InvalidTransition for a pair not in TABLE."""
    finish = TABLE.get((job.state, event.kind))
    if finish is None:
        raise InvalidTransition(job.id, job.state, event.kind, (f"{job.reason}: {job.message}",))
    after = _after(replace(job, state=finish), event)
    round_index = event.round_index if isinstance(event, Launched) else None
    line = JobEvent(job_id=job.id, at_s=event.at_s, kind=event.kind, message=after.message, round_index=round_index)
    return after, line


def _after(job: Job, event: Event) -> Job:
    match event:
        case Launched():
            workers = ", ".join(event.worker_ids)
            return replace(
                job,
                token=event.token,
                attempt=job.attempt + 1,
                report_sequence=0,
                trained_s=0.0,
                trained_steps=0,
                steps_reported=job.steps_done,
                accounted_until_s=event.at_s,
                reason="Launched",
                message=f"launched on {workers} with token {event.token} from step {job.steps_done}",
            )
        case Ended():
            is_preempted = event.kind is EventKind.PREEMPTED and not job.pause_requested
            return replace(
                _closed(job, event),
                preemptions=job.preemptions + is_preempted,
                failures=job.failures + (event.kind is EventKind.RETRIED),
                losses=job.losses + (event.kind is EventKind.LOST),
                retry_at_s=max(job.retry_at_s, event.retry_at_s),
            )
        case Dismissed():
            return replace(job, reason=event.reason, message=event.message, finished_at_s=event.at_s)


def _closed(job: Job, event: Ended) -> Job:
    job = replace(job, reason=event.reason, message=event.message, steps_reported=job.steps_done)
    if not job.state.is_terminal:
        return job
    done = job.spec.total_steps if job.state is JobState.COMPLETED else job.steps_done
    return replace(
        job,
        steps_done=done,
        steps_reported=done,
        finished_at_s=event.at_s,
        exit_code=event.exit.exit_code,
        log_tail=event.exit.log_tail,
    )


def take_reports(job: Job, event: Reported) -> Job:
    """The job after new reports of its live token; repeated or stale ones change nothing.

    Only an accepted checkpoint or the verified end moves `steps_done`; the rest is provisional.
    """
    if event.token != job.token or job.state.is_terminal:
        return job
    for report in event.reports:
        if report.sequence <= job.report_sequence or report.step > job.spec.total_steps:
            continue
        job = replace(
            job,
            report_sequence=report.sequence,
            steps_reported=max(job.steps_reported, report.step),
            trained_s=job.trained_s + max(0.0, report.seconds),
            trained_steps=job.trained_steps + max(0, report.steps),
            metrics={**job.metrics, **report.metrics},
        )
        if report.kind is not ReportKind.PROGRESS and report.step >= job.steps_done:
            losses = 0 if report.step > job.steps_done else job.losses
            job = replace(job, steps_done=report.step, checkpoint=report.checkpoint or job.checkpoint, losses=losses)
    return job


def account_time(job: Job, gang: GangSeen, until_s: float) -> Job:
    """The job with the wall time that `gang` held its workers, up to `until_s` or its end, added to `received_s`."""
    if gang.token != job.token or gang.started_at_s is None:
        return job
    end = until_s if gang.ended_at_s is None else min(until_s, gang.ended_at_s)
    held_s = end - max(job.accounted_until_s, gang.started_at_s)
    if held_s <= 0:
        return job
    received = dict(job.received_s)
    received[gang.accelerator_type] = received.get(gang.accelerator_type, 0.0) + held_s
    started = job.started_at_s if job.started_at_s is not None else gang.started_at_s
    return replace(job, received_s=received, accounted_until_s=end, started_at_s=started)


def weighed(job: Job, end: Ended, *, retries: int, backoff_s: float) -> Ended:
    """The end of a lost gang with when its job may start again: at once, then after pauses that double.

    After more than `retries` losses without a durable step in between the job fails: what kills its gangs is the job.
    """
    if end.kind is not EventKind.LOST:
        return end
    if job.losses >= retries:
        message = f"lost {job.losses + 1} gangs in a row without a durable step; the last: {end.message}"
        return replace(end, kind=EventKind.BROKE, reason="LostTooOften", message=message)
    pause_s = min(LOST_BACKOFF_MAX_S, backoff_s * 2 ** (job.losses - 1)) if job.losses else 0.0
    later = f" after {pause_s:g} s" if pause_s else ""
    return replace(end, retry_at_s=end.at_s + pause_s, message=end.message + later)


def ended(job: Job, gang: GangSeen, now_s: float) -> Ended | None:
    """What the end of the job's live gang means for it; None while it lives, or when the job no longer holds it."""
    if gang.state is not GangState.ENDED or gang.exit is None or gang.token != job.token:
        return None
    if job.state is not JobState.LEASED:
        return None
    kind, reason, message = _verdict(job, gang.exit, gang.accelerator_type)
    return Ended(
        at_s=gang.ended_at_s or now_s, token=gang.token, kind=kind, reason=reason, message=message, exit=gang.exit
    )


def _verdict(job: Job, end: GangExit, on: AcceleratorType) -> tuple[EventKind, str, str]:
    where = f"on {on} at step {job.steps_done} of {job.spec.total_steps}"
    if end.outcome is GangOutcome.EXITED and end.exit_code == 0 and _did_all_steps(job):
        return EventKind.FINISHED, "Completed", f"completed {job.spec.total_steps} steps"
    if job.cancel_requested:
        return EventKind.CANCELLED, "Cancelled", f"cancelled {where}"
    match end.outcome:
        case GangOutcome.PREEMPTED:
            preempted = ("Preempted", f"lease ended {where}; waits for its next round")
            return EventKind.PREEMPTED, *(("Paused", f"paused {where}") if job.pause_requested else preempted)
        case GangOutcome.LOST:
            return EventKind.LOST, "Lost", f"lost {where} ({end.message or 'its supervisor is gone'}); starts again"
        case GangOutcome.NOT_STARTED:
            return EventKind.BROKE, "ProgramNotStarted", end.message
        case GangOutcome.EXITED:
            return _program_failed(job, end, where)


def _program_failed(job: Job, end: GangExit, where: str) -> tuple[EventKind, str, str]:
    if end.exit_code == 0:
        return EventKind.BROKE, "StepsMissing", f"exited 0 {where}: the loop over job.steps() was left early"
    how = f"exit code {end.exit_code}" if end.exit_code > 0 else f"signal {-end.exit_code}"
    if job.failures < job.spec.max_retries:
        again = f"retry {job.failures + 1} of {job.spec.max_retries} follows"
        return EventKind.RETRIED, "Retrying", f"ended with {how} {where}; {again}. {end.message}".rstrip()
    return EventKind.BROKE, "ProgramFailed", f"ended with {how} {where}. {end.message}".rstrip()


def _did_all_steps(job: Job) -> bool:
    # A program that never reported does not use the runtime: its own exit code 0 is all there is to go by.
    return job.steps_done >= job.spec.total_steps or job.report_sequence == 0
