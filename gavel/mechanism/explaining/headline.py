"""The sentences that people read first about a job: where it is, what it waits for, when it starts or ends.

The command line and the dashboard show them as they are; the figures behind them are those of the explanation.
"""

from gavel.mechanism.explaining.durations import in_about, lasting
from gavel.mechanism.explaining.explanation import Why
from gavel.mechanism.explaining.waiting import place_in_tier
from gavel.types import Expected, Job, JobState


def headline(
    job: Job, why: Why, *, start: Expected | None, finish: Expected | None, now_s: float, is_own: bool = False
) -> str:
    """Return one to three sentences on the job. `is_own`: the reader is its user.

    `start` and `finish`: when it is expected to start, if it waits, and to end.
    """
    if job.state.is_terminal:
        return _ended(job)
    text = why.message
    if why.position is not None and why.shortage:
        text = f"{why.shortage} {place_in_tier(why.position, job.spec.tier, is_own=is_own)}"
    if start is not None:
        text = f"{text.removesuffix('.')}; it starts {_in(start, now_s)}."
    elif finish is not None and (total := job.total_steps) is not None and job.state is JobState.LEASED:
        text = f"{text.removesuffix('.')}; the job is {_done(job, total)} done and ends {_in(finish, now_s)}."
    elif job.total_steps is None and job.state is JobState.LEASED:
        text = f"{text.removesuffix('.')}; how many steps the job has is not known yet."
    return f"{_stopped(job)}{text}{_began_again(job)}"


def _in(expected: Expected, now_s: float) -> str:
    return in_about(expected.at_s - now_s, expected.low_s - now_s, expected.high_s - now_s)


def _done(job: Job, total_steps: int) -> str:
    return f"{job.steps_so_far / total_steps:.0%}"


def _stopped(job: Job) -> str:
    """What a job that ran before, and waits now, should not worry about; empty for any other."""
    if job.state is not JobState.QUEUED or job.attempt == 0 or not job.is_wanted:
        return ""
    step = job.position if job.steps_done else "its first step"
    return f"It has stopped for now and goes on from {step}. "


def _began_again(job: Job) -> str:
    """What helps a job that lost a lease without having reported a step, until more is known of that; else empty."""
    is_lost = job.leases_without_checkpoint > 0 and job.steps_done == 0 and not job.no_progress
    if job.state is not JobState.LEASED or not is_lost or job.training_since_s is not None:
        return ""
    return (
        " Its program began again at its first line, because it had reported no step; `gavel init` says how it goes on"
        " from where it was."
    )


def _ended(job: Job) -> str:
    lasted_s = max(0.0, (job.finished_at_s or job.submitted_at_s) - job.submitted_at_s)
    after = f"{lasting(lasted_s)} after it was submitted"
    if job.state is JobState.COMPLETED:
        whole = "its program ended" if job.total_steps is None else f"all {job.total_steps} steps were done"
        what = whole if job.last_step is None else f"its program ended its training after step {job.last_step}"
        return f"Completed: {what} {after}."
    verb = "Failed" if job.state is JobState.FAILED else "Stopped"
    return f"{verb} at {job.position}, {after}. {job.explanation}"
