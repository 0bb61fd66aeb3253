"""Looks at interactive sessions: marks those that are over, so that no plan has them and their gangs are stopped."""

from collections.abc import Callable
from math import inf

from gavel.mechanism.jobs import lifecycle
from gavel.mechanism.jobs.events import Dismissed, EventKind
from gavel.mechanism.jobs.interactive import ends_at_s, why_over
from gavel.mechanism.tick import Tick
from gavel.types import Job, JobId, JobState, Reason
from gavel.types.copying import changed

LastUse = Callable[[JobId, int], float | None]
"""Returns when a gang of a job was last used, Unix time; None if that is not known here."""


def look_at_sessions(tick: Tick, last_use: LastUse) -> float:
    """Mark the sessions that are over; return when the next one will be if nobody uses it (+inf: none).

    A session that is over while it has no gang, paused or lost, is completed at once; one that was reserved and never
    started has failed.
    """
    sessions = [job for job in tick.index.non_preemptible.values() if job.spec.is_interactive]
    if not sessions:
        return inf
    started_s = {(gang.job_id, gang.generation): gang.started_at_s for gang in tick.seen.gangs}
    return min(_look_at(tick, job, started_s.get((job.id, job.generation)), last_use) for job in sessions)


def _look_at(tick: Tick, job: Job, started_at_s: float | None, last_use: LastUse) -> float:
    session = _started(job, started_at_s, tick.now_s)
    has_gang = job.state is JobState.LEASED
    used_s = last_use(job.id, job.generation) if has_gang and job.spec.idle_s is not None else None
    why = job.over or why_over(session, used_s, tick.now_s)
    if why and not has_gang and not job.cancel_requested:
        tick.put(*lifecycle.step(session, _dismissed(session, why, tick.now_s)))
    elif why != job.over or session is not job:
        tick.put(changed(session, over=why))
    return inf if why else ends_at_s(session, used_s)


def _dismissed(session: Job, why: str, at_s: float) -> Dismissed:
    if session.started_at_s is None:
        return Dismissed(at_s=at_s, kind=EventKind.REFUSED, reason=Reason.RESERVATION_MISSED, message=why)
    return Dismissed(at_s=at_s, kind=EventKind.FINISHED, reason=Reason.COMPLETED, message=why)


def _started(job: Job, gang_s: float | None, now_s: float) -> Job:
    """The job with the instants at which its first gang and its newest one, at `gang_s`, started.

    A session need not report, so nothing else sets them. A first start that has yet to come was one by a clock that has
    been set back while no gang was there: the session has its time from now on.
    """
    is_new = gang_s is not None and job.gang_started_at_s is None
    started_s = gang_s if job.started_at_s is None else job.started_at_s
    if started_s is not None and started_s > now_s + lifecycle.CLOCK_SET_S:
        started_s = now_s
    if not is_new and started_s == job.started_at_s:
        return job
    return changed(job, started_at_s=started_s, gang_started_at_s=gang_s if is_new else job.gang_started_at_s)
