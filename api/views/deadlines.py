"""Whether a deadline will be met, from the forecast of the job's end, with figures."""

from api.schemas import DeadlineView
from api.schemas.jobs import DeadlineOutlook
from gavel.mechanism.explaining.durations import in_about, lasting
from gavel.mechanism.explaining.expected_end import JobEnd, Knowledge, job_end
from gavel.types import Expected, Job


def deadline_view(job: Job, knowledge: Knowledge) -> DeadlineView | None:
    """Return the outlook for an unfinished job with a deadline; None for any other."""
    deadline_at_s = job.spec.deadline_at_s
    if deadline_at_s is None or job.state.is_terminal:
        return None
    end, now_s = job_end(job, knowledge), knowledge.state.now_s
    outlook, reason = _outlook(job, deadline_at_s, end, now_s)
    finish = end.finish
    return DeadlineView(
        outlook=outlook,
        deadline_at_s=deadline_at_s,
        earliest_finish_at_s=end.earliest_at_s,
        expected_finish_at_s=finish.at_s if finish else None,
        expected_finish_low_at_s=finish.low_s if finish else None,
        expected_finish_high_at_s=finish.high_s if finish else None,
        message=f"{reason}; the deadline {_when(deadline_at_s, now_s)}",
    )


def _outlook(job: Job, deadline_at_s: float, end: JobEnd, now_s: float) -> tuple[DeadlineOutlook, str]:
    """Return the first outlook that applies, with its reason."""
    if job.total_steps is None:
        return DeadlineOutlook.UNKNOWN, "how many steps the job has is not known yet"
    if end.earliest_at_s is None:
        return DeadlineOutlook.UNKNOWN, "no accelerator type holds its gang"
    alone = f"what is left takes {lasting(end.earliest_at_s - now_s)} alone on {end.fastest}"
    if not end.is_speed_known:
        return DeadlineOutlook.UNKNOWN, f"nobody has measured or stated the speed of {job.spec.kind} yet"
    if end.earliest_at_s > deadline_at_s:
        return DeadlineOutlook.MISSED, alone
    if end.finish is None:
        why = end.blocked.message if end.blocked else "nothing says when it will run"
        return DeadlineOutlook.UNKNOWN, f"{why}; {alone}"
    return _judged(end.finish, deadline_at_s), f"{alone}; it is expected to end {_span(end.finish, now_s)}"


def _judged(finish: Expected, deadline_at_s: float) -> DeadlineOutlook:
    if finish.high_s <= deadline_at_s:
        return DeadlineOutlook.MET
    return DeadlineOutlook.MISSED if finish.low_s > deadline_at_s else DeadlineOutlook.AT_RISK


def _span(finish: Expected, now_s: float) -> str:
    return in_about(finish.at_s - now_s, finish.low_s - now_s, finish.high_s - now_s)


def _when(deadline_at_s: float, now_s: float) -> str:
    left_s = deadline_at_s - now_s
    return f"is in {lasting(left_s)}" if left_s > 0 else f"passed {lasting(-left_s)} ago"
