"""What a job reports besides steps: phases that are no training, and units of work where steps differ in size."""

from gavel.types import Job, Report, WorkDone

PHASES_MAX = 16  # names of a job; its program may choose others with each start


def phases_and_work(job: Job, report: Report) -> dict[str, object]:
    """Return the job's fields about phases and work after one more report."""
    phases_s = dict(job.phases_s)
    for name, seconds in report.phases_s.items():
        if name in phases_s or len(phases_s) < PHASES_MAX:
            phases_s[name] = phases_s.get(name, 0.0) + seconds
    # What comes with the first report was before training began: it is a part of what a start costs.
    outside_s = job.outside_s + (sum(report.phases_s.values()) if report.sequence > 1 else 0.0)
    return {"phases_s": phases_s, "outside_s": outside_s, "work": _work(job, report)}


def mean_steps(job: Job, report: Report) -> float:
    """Return the steps of a report, in steps of the job's mean size where it reports units of work.

    So a rate in steps per second says how fast the work is done, whatever the sizes of the steps that were measured:
    it goes with the number of steps that are left, which are of the mean size as far as anyone knows.
    """
    if report.work <= 0 or report.steps <= 0:
        return report.steps
    work = _work(job, report)
    return report.work * work.steps / work.units


def _work(job: Job, report: Report) -> WorkDone:
    """Return the work of the job with that of a report added, if the report has any."""
    if report.work <= 0 or report.steps <= 0:
        return job.work
    return WorkDone(
        units=job.work.units + report.work,
        steps=job.work.steps + report.steps,
        seconds=job.work.seconds + report.seconds,
    )
