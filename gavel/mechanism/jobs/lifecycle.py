"""The states of a job: a table of transitions, a function that applies it, and what the end of a gang means."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gavel.errors import InvalidTransition
from gavel.mechanism.jobs.events import Dismissed, Ended, Event, EventKind, Launched, Reported
from gavel.mechanism.jobs.launches import launch_message
from gavel.mechanism.jobs.no_progress import LEASES
from gavel.mechanism.jobs.phases import phases_and_work
from gavel.mechanism.jobs.sizes import resized, under_plan
from gavel.ports import JobEvent
from gavel.types import (
    AcceleratorType,
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    Job,
    JobState,
    Reason,
    Report,
    ReportKind,
    WrittenCheckpoint,
)
from gavel.types.checkpoints import CHECKPOINT_GONE, WRITTEN_MAX
from gavel.types.copying import changed

LOST_BACKOFF_MAX_S = 3600.0
MEASURED = ("startup_s", "restore_s", "checkpoint_s", "checkpoint_bytes", "checkpoint_every_s")  # once in a while
LAUNCH_CLOCK_S = 60.0  # by how much a gang may start before its launch, by two clocks
CLOCK_SET_S = 1.0  # by how much the start of a gang changes at least if the clock was set, or goes slower
METRIC_NAMES_MAX = 64  # that a job shows; a report has at most 16

TABLE: Mapping[tuple[JobState, EventKind], JobState] = {
    (JobState.QUEUED, EventKind.LAUNCHED): JobState.LEASED,
    (JobState.QUEUED, EventKind.FINISHED): JobState.COMPLETED,  # late, but with the live generation
    (JobState.QUEUED, EventKind.CANCELLED): JobState.CANCELLED,
    (JobState.QUEUED, EventKind.REFUSED): JobState.FAILED,
    (JobState.LEASED, EventKind.PREEMPTED): JobState.QUEUED,
    (JobState.LEASED, EventKind.LOST): JobState.QUEUED,
    (JobState.LEASED, EventKind.RETRIED): JobState.QUEUED,
    (JobState.LEASED, EventKind.INFEASIBLE): JobState.QUEUED,
    (JobState.LEASED, EventKind.FINISHED): JobState.COMPLETED,
    (JobState.LEASED, EventKind.BROKE): JobState.FAILED,
    (JobState.LEASED, EventKind.CANCELLED): JobState.CANCELLED,
}


def step(job: Job, event: Event) -> tuple[Job, JobEvent]:
    """Return the job after the event, and the event's record. Raises InvalidTransition for a pair not in TABLE."""
    finish = TABLE.get((job.state, event.kind))
    if finish is None:
        raise InvalidTransition(job.id, job.state, event.kind, (f"{job.reason}: {job.message}",))
    after = _after(changed(job, state=finish), event)
    round_index = event.round_index if isinstance(event, Launched) else None
    line = JobEvent(job_id=job.id, at_s=event.at_s, kind=event.kind, message=after.message, round_index=round_index)
    return after, line


def _after(job: Job, event: Event) -> Job:
    match event:
        case Launched():
            return changed(
                under_plan(resized(job, len(event.worker_ids)), event.plan),
                generation=event.generation,
                attempt=job.attempt + 1,
                report_sequence=0,
                trained_s=0.0,
                trained_steps=0,
                training_since_s=None,
                outside_s=0.0,
                steps_reported=job.steps_done,
                accounted_until_s=event.at_s,
                gang_started_at_s=None,
                reason=Reason.LAUNCHED,
                message=launch_message(event.worker_ids, event.generation, job.steps_done, event.plan),
            )
        case Ended():
            is_preempted = event.kind is EventKind.PREEMPTED and not job.pause_requested
            is_vain = is_preempted and event.held_s > 0 and not job.has_saved
            return changed(
                _closed(_without_gone(job, event.checkpoint_left), event),
                leases_without_checkpoint=job.leases_without_checkpoint + is_vain,
                longest_without_checkpoint_s=max(job.longest_without_checkpoint_s, event.held_s if is_vain else 0.0),
                preemptions=job.preemptions + is_preempted,
                failures=job.failures + (event.kind is EventKind.RETRIED),
                losses=job.losses + (event.kind is EventKind.LOST),
                retry_at_s=max(job.retry_at_s, event.retry_at_s),
            )
        case Dismissed():
            return changed(job, reason=event.reason, message=event.message, finished_at_s=event.at_s)


def _without_gone(job: Job, left: str | None) -> Job:
    """Return the job, back at the checkpoint that is left of its own if the accepted one is gone ("": at its start)."""
    if left is None:
        return job
    return changed(job, checkpoint=left or None, steps_done=int(left.partition("-")[2]) if left else 0)


def gone_back(job: Job, end: Ended) -> Iterator[JobEvent]:
    """Yield the event of a job that the end of its gang has put back to what is left of its checkpoints."""
    if end.checkpoint_left is not None:
        message = f"{_sentence(end.exit.message)} The job goes on from step {job.steps_done}."
        yield JobEvent(job_id=job.id, at_s=end.at_s, kind=CHECKPOINT_GONE, message=message)


def _closed(job: Job, event: Ended) -> Job:
    so_far = job.steps_so_far
    job = changed(job, reason=event.reason, message=event.message, steps_reported=job.steps_done)
    if not job.state.is_terminal:
        return job
    completed = so_far if job.over else job.total_steps or so_far  # what was ended has done no more than that
    done = completed if job.state is JobState.COMPLETED else job.steps_done
    return changed(
        job,
        steps_done=done,
        steps_reported=done,
        finished_at_s=event.at_s,
        exit_code=event.exit.exit_code,
        log_tail=event.exit.log_tail,
    )


def take_reports(job: Job, event: Reported) -> Job:
    """Return the job after new reports of its current gang; repeated or stale reports change nothing.

    Only an accepted checkpoint or the verified end moves `steps_done`; the rest is provisional.
    """
    if event.generation != job.generation or job.state.is_terminal:
        return job
    for report in event.reports:
        total_steps = job.total_steps or report.total_steps
        if report.sequence <= job.report_sequence or (total_steps is not None and report.step > total_steps):
            continue
        after = _after_report(job, report, event.at_s)
        job = after if job.has_reported else changed(after, **_first_report(job, report, event))
    return job


def _first_report(job: Job, first: Report, event: Reported) -> dict[str, object]:
    """What the first report of a gang changes besides: its training has begun, so it starts no longer."""
    is_silent = job.no_progress and job.leases_without_checkpoint < LEASES
    began = {"training_since_s": _training_since_s(first, event), "plan_trained": job.plan}
    return began | ({"no_progress": ""} if is_silent else {})


def _training_since_s(first: Report, event: Reported) -> float:
    """The instant at which the training began: by the durations in the first report, else when it was seen."""
    if event.started_at_s is None or first.startup_s is None:
        return event.at_s
    return event.started_at_s + first.startup_s + (first.restore_s or 0.0)


def _back_at_restored(job: Job, report: Report) -> Job:
    """Return the job, back at the checkpoint that its gang began with since the accepted one could not be loaded.

    Else each of its gangs would begin there, and nothing would count that does not pass the accepted step in one lease.
    """
    is_back = report.restored and report.note and not job.has_reported
    step = int(report.restored.partition("-")[2]) if is_back else job.steps_done
    if step >= job.steps_done:
        return job
    return changed(job, checkpoint=report.restored, steps_done=step, steps_reported=step)


def _after_report(job: Job, report: Report, at_s: float) -> Job:
    job = _back_at_restored(job, report)
    values: dict[str, object] = {
        "report_sequence": report.sequence,
        "steps_reported": max(job.steps_reported, report.step),
        "trained_s": job.trained_s + max(0.0, report.seconds),
        "trained_steps": job.trained_steps + max(0, report.steps),
    }
    if report.phases_s or report.work > 0:
        values |= phases_and_work(job, report)
    if job.total_steps is None and report.total_steps is not None:
        values["program_steps"] = report.total_steps
    if report.kind is ReportKind.FINISHED and job.total_steps is not None and report.step < job.total_steps:
        values["last_step"] = max(1, report.step)
    if report.metrics:
        values["metrics"] = _newest_metrics(job.metrics, report.metrics)
    if report.kind is not ReportKind.PROGRESS and report.step >= job.steps_done:
        values |= _accepted(job, report, at_s)
    measured = {name: getattr(report, name) for name in MEASURED}
    values |= {name: value for name, value in measured.items() if value is not None}
    return changed(job, **values)


def _accepted(job: Job, report: Report, at_s: float) -> dict[str, object]:
    """What the end of the program, or an accepted checkpoint, changes."""
    values: dict[str, object] = {"steps_done": report.step, "checkpoint": report.checkpoint or job.checkpoint}
    if report.checkpoint and report.checkpoint_s is not None:
        written = _written(report, report.checkpoint, at_s)
        values["checkpoints_written"] = (*job.checkpoints_written, written)[-WRITTEN_MAX:]
    if report.step > job.steps_done:
        values |= {"losses": 0, "leases_without_checkpoint": 0, "longest_without_checkpoint_s": 0.0}
        values["no_progress"] = ""
    return values


def _written(report: Report, name: str, at_s: float) -> WrittenCheckpoint:
    return WrittenCheckpoint(
        name=name,
        step=report.step,
        at_s=at_s,
        size_bytes=report.checkpoint_bytes,
        written_s=report.checkpoint_s,
        cost_s=report.checkpoint_cost_s,
        every_s=report.checkpoint_every_s,
        time_to_loss_s=report.time_to_loss_s,
    )


def _newest_metrics(so_far: Mapping[str, float], reported: Mapping[str, float]) -> dict[str, float]:
    """Return the newest value of each metric; beyond METRIC_NAMES_MAX names those go that came first."""
    merged = {**so_far, **reported}
    surplus = len(merged) - METRIC_NAMES_MAX
    for name in [name for name in so_far if name not in reported][: max(0, surplus)]:
        del merged[name]
    return merged


def account_time(
    job: Job, gang: GangSeen, until_s: float, partners: Iterable[GangSeen] = (), *, lease_s: float = 0.0
) -> Job:
    """Return the job with the wall time that `gang` has held its workers, up to `until_s` or the gang's end.

    The time is added to `received_s`; the part in which one of `partners`, gangs on the same workers, was there
    as well is added to `shared_s`. Where nobody could look, a gang may turn out to have ended before the time that is
    accounted for already: what is too much is taken back. A job may forge the start of its gang: of a
    new gang no time counts that is before its launch and longer ago than its lease lasts, `lease_s` by any clock.
    """
    if gang.generation != job.generation or gang.started_at_s is None:
        return job
    end = until_s if gang.ended_at_s is None else min(until_s, gang.ended_at_s)
    is_new = job.gang_started_at_s is None  # nothing of it is accounted for yet
    earliest_s = min(job.accounted_until_s - LAUNCH_CLOCK_S, end - lease_s) if is_new else job.accounted_until_s
    since = max(earliest_s, gang.started_at_s)
    is_too_much = gang.ended_at_s is not None and not is_new and end < since
    if end <= since and not is_too_much:
        return job
    name, sign, span = gang.accelerator_type, -1 if is_too_much else 1, (min(since, end), max(since, end))
    both_s = sum(held_within_s(each, *span) for each in partners)
    return changed(
        job,
        received_s=_added(job.received_s, name, end - since),
        shared_s=_added(job.shared_s, name, sign * both_s) if both_s > 0 else job.shared_s,
        accounted_until_s=end,
        started_at_s=gang.started_at_s if job.started_at_s is None else job.started_at_s,
        gang_started_at_s=gang.started_at_s,
    )


def _added(
    so_far: Mapping[AcceleratorType, float], name: AcceleratorType, more_s: float
) -> dict[AcceleratorType, float]:
    return {**so_far, name: max(0.0, so_far.get(name, 0.0) + more_s)}


def by_clock_of(gang: GangSeen, job: Job) -> Job:
    """Return the job with its instants by the clock of now, which may have been set, or be that of another host.

    The age of a gang is measured by a clock that nobody sets: so far as its start differs, the clock was set.
    """
    before_s, now_s = job.gang_started_at_s, gang.started_at_s
    if gang.generation != job.generation or before_s is None or now_s is None or abs(now_s - before_s) < CLOCK_SET_S:
        return job
    by_s = now_s - before_s
    return changed(
        job,
        gang_started_at_s=now_s,
        accounted_until_s=job.accounted_until_s + by_s,
        started_at_s=None if job.started_at_s is None else job.started_at_s + by_s,
        training_since_s=None if job.training_since_s is None else job.training_since_s + by_s,
    )


def accounted_by(job: Job, now_s: float) -> Job:
    """Return the job, of which no time after now is accounted for: the clock may have been set back."""
    return changed(job, accounted_until_s=now_s) if job.accounted_until_s > now_s else job


def held_within_s(gang: GangSeen, since: float, end: float) -> float:
    """Return the seconds of [since, end) in which a gang held its workers."""
    if gang.started_at_s is None:
        return 0.0
    until = end if gang.ended_at_s is None else min(end, gang.ended_at_s)
    return max(0.0, until - max(since, gang.started_at_s))


def weighed(job: Job, end: Ended, *, retries: int, backoff_s: float) -> Ended:
    """Return the end of a gang; for a lost one with the instant at which its job may start again.

    That is at once after the first loss, then after pauses that double, from `backoff_s` seconds up to an hour.

    After more than `retries` losses without a durable step in between the job fails: it is probably the cause.
    """
    if end.kind is not EventKind.LOST:
        return end
    if job.losses >= retries:
        message = f"The job lost {job.losses + 1} gangs in a row without a durable step. {end.message}"
        return replace(end, kind=EventKind.BROKE, reason=Reason.LOST_TOO_OFTEN, message=message)
    pause_s = _pause_s(job.losses, backoff_s)
    later = f"after {pause_s:g} s" if pause_s else "at once"
    message = f"{end.message} The job starts again {later}."
    return replace(end, retry_at_s=end.at_s + pause_s, message=message)


def _pause_s(losses_before: int, backoff_s: float) -> float:
    return min(LOST_BACKOFF_MAX_S, backoff_s * 2 ** (losses_before - 1)) if losses_before else 0.0


def shortened_pause(job: Job, now_s: float, *, backoff_s: float) -> Job:
    """Return the job, which pauses no longer from now than its last loss made it: the clock may have been set back."""
    until_s = now_s + _pause_s(max(0, job.losses - 1), backoff_s)
    return changed(job, retry_at_s=until_s) if job.retry_at_s > until_s else job


def ended(job: Job, gang: GangSeen, now_s: float) -> Ended | None:
    """Return what the end of the gang means for its job; None while it runs, or if it is not the job's gang now."""
    if gang.state is not GangState.ENDED or gang.exit is None or gang.generation != job.generation:
        return None
    if job.state is not JobState.LEASED:
        return None
    kind, reason, message = _verdict(job, gang.exit, gang.accelerator_type)
    return Ended(
        at_s=gang.ended_at_s or now_s,
        generation=gang.generation,
        kind=kind,
        reason=reason,
        message=message,
        exit=gang.exit,
        held_s=0.0 if gang.started_at_s is None else max(0.0, (gang.ended_at_s or now_s) - gang.started_at_s),
        checkpoint_left=gang.checkpoint_left,
    )


def _verdict(job: Job, end: GangExit, on: AcceleratorType) -> tuple[EventKind, Reason, str]:
    where = f"on {on} at {job.position}"
    if job.over and not job.cancel_requested:
        return EventKind.FINISHED, Reason.COMPLETED, job.over
    if end.outcome is GangOutcome.EXITED and end.exit_code == 0 and _did_all_steps(job):
        return EventKind.FINISHED, Reason.COMPLETED, _completed(job)
    if job.cancel_requested:
        return EventKind.CANCELLED, Reason.CANCELLED, f"The job was cancelled {where}."
    match end.outcome:
        case GangOutcome.PREEMPTED:
            if job.pause_requested:
                return EventKind.PREEMPTED, Reason.PAUSED, f"The job was paused {where}."
            return EventKind.PREEMPTED, Reason.PREEMPTED, f"The lease ended {where}. The job waits for its next round."
        case GangOutcome.LOST:
            return EventKind.LOST, Reason.LOST, f"The gang was lost {where}: {end.message or 'its supervisor is gone'}."
        case GangOutcome.NOT_STARTED:
            return EventKind.BROKE, Reason.PROGRAM_NOT_STARTED, _sentence(end.message)
        case GangOutcome.EXITED:
            return _program_failed(job, end, where)


def _program_failed(job: Job, end: GangExit, where: str) -> tuple[EventKind, Reason, str]:
    if end.exit_code == 0:
        message = (
            f"The program exited with code 0 {where}: its loop was left early. "
            "If it is meant to end there, call job.finish(), or run.finish() of an adapter, before it leaves the loop."
        )
        return EventKind.BROKE, Reason.STEPS_MISSING, message
    how = f"exit code {end.exit_code}" if end.exit_code > 0 else f"signal {-end.exit_code}"
    if job.failures < job.spec.max_retries:
        again = f"Retry {job.failures + 1} of {job.spec.max_retries} follows."
        message = f"The program ended with {how} {where}. {again} {_sentence(end.message)}"
        return EventKind.RETRIED, Reason.RETRYING, message.rstrip()
    message = f"The program ended with {how} {where}. {_sentence(end.message)}"
    return EventKind.BROKE, Reason.PROGRAM_FAILED, message.rstrip()


def _sentence(text: str) -> str:
    """Return what a backend says of an end, as one sentence among others."""
    return text and f"{text[0].upper()}{text[1:].rstrip('.')}."


def _did_all_steps(job: Job) -> bool:
    # A program that never reported does not use the runtime: its own exit code 0 is all there is to go by.
    # So it is for one that has not said how long it is.
    return job.total_steps is None or job.steps_done >= job.total_steps or not job.has_reported


def _completed(job: Job) -> str:
    if job.spec.is_interactive:
        return "The program of the session has ended with exit code 0."
    if job.total_steps is None:
        return "The program has ended with exit code 0; it did not say how many steps it has."
    if job.last_step is not None:
        return f"The program ended its training after step {job.last_step}, before the {job.stated_steps} steps it had."
    return f"The job has completed {job.total_steps} steps."
