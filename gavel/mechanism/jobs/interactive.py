"""When interactive sessions end: by what was granted, or because nobody uses them. Never before.

The end is a function of the job's record, of when it was last used, and of the clock, so a restart changes nothing.
"""

from math import inf

from gavel.types import Job


def ends_at_s(job: Job, used_s: float | None) -> float:
    """Return when the session ends unless somebody uses it until then, Unix time; +inf before its program has started,
    unless it is reserved.

    `used_s`: when it was last used; None: it is not ended for want of use.
    """
    granted_s = inf if job.session_ends_at_s is None else job.session_ends_at_s
    return min(granted_s, _idle_at_s(job, used_s))


def why_over(job: Job, used_s: float | None, now_s: float) -> str:
    """Return why the session is over at this instant, as a sentence; empty while it is not."""
    if job.session_ends_at_s is not None and job.session_ends_at_s <= now_s:
        if job.started_at_s is None:
            return "The time that was reserved for the session is over, and it could not start."
        if job.spec.reserved_at_s is not None:
            return f"The time that was reserved for the session, {job.spec.longest_s:.0f} s, is over."
        return f"The session has had the {job.spec.longest_s:.0f} s that it was granted."
    if _idle_at_s(job, used_s) <= now_s:
        return f"Nobody was connected to the session, and it printed nothing, for {job.spec.idle_s:.0f} s."
    return ""


def _idle_at_s(job: Job, used_s: float | None) -> float:
    if job.spec.idle_s is None or used_s is None or job.started_at_s is None:
        return inf
    return max(used_s, job.started_at_s) + job.spec.idle_s
