"""How a job does compared with a slice of the cluster to itself: rho, and how far it is ahead or behind (Themis)."""

from gavel import finish_time
from gavel.mechanism.explaining.durations import lasting
from gavel.types import Job

EVEN_S = 1.0  # nearer than this is neither ahead nor behind


def elapsed_s(job: Job, now_s: float) -> float:
    """Return the seconds since the submission, to the end of a job that has ended."""
    return (job.finished_at_s if job.finished_at_s is not None else now_s) - job.submitted_at_s


def finish_time_fairness(job: Job, now_s: float) -> float | None:
    """Return rho so far: time since submission over the isolated time; None before any step was counted."""
    return finish_time.finish_time_fairness(elapsed_s(job, now_s), job.isolated_time_s)


def deficit_s(job: Job, now_s: float) -> float | None:
    """Return how far the job is behind its isolated share, in seconds; negative: ahead. None if that is not finite."""
    return finish_time.deficit_s(elapsed_s(job, now_s), job.isolated_time_s)


def isolated_share(job: Job, now_s: float) -> str:
    """Return the deficit in words, such as "12 min behind its isolated share"; empty if there is none to tell."""
    behind_s = deficit_s(job, now_s)
    if behind_s is None:
        return ""
    if abs(behind_s) < EVEN_S:
        return "as far as with its isolated share"
    return f"{lasting(abs(behind_s))} {'behind' if behind_s > 0 else 'ahead of'} its isolated share"
