"""Says when a job is not expected to save a checkpoint any more, why, and what helps."""

from collections.abc import Sequence

from gavel.types import AcceleratorType, Job, StartupTimes, times_of

LEASES = 2  # without a checkpoint, before anybody is told


def no_progress(
    job: Job,
    on: AcceleratorType,
    startup_times: Sequence[StartupTimes],
    *,
    start_limit_s: float,
    spent_s: float,
) -> str:
    """Return what keeps the job from progress, and what helps, in sentences; empty while a longer lease may help.

    `job` has just lost a lease on the type `on`. Leases grow up to `start_limit_s` (planning/starting.py); one that was
    as long, and ended without a checkpoint like another one before or after it, leaves nothing to try. Neither does a
    user whose gangs have held workers without a report for as long: `spent_s` (planning/start_budget.py).
    """
    longest_s = job.longest_without_checkpoint_s
    is_spent = job.training_since_s is None and spent_s >= start_limit_s
    if job.leases_without_checkpoint < LEASES or (longest_s < start_limit_s and not is_spent):
        return ""
    leases = f"{job.leases_without_checkpoint} leases, the longest of {longest_s:.0f} s"
    if job.spec.dump:
        return f"The job ran in {leases}, and its dump command has saved nothing; the job's log says why."
    if job.training_since_s is not None:
        return (
            f"The job trained in {leases}, and saved no checkpoint, so it begins again at step {job.steps_done} each"
            " time. Pass `checkpoint` and `restore` to `job.steps`; a checkpoint has to be written within one lease."
        )
    startup_s = times_of(startup_times, job.spec.kind, on).until_training_s
    usual = f" Its job kind takes about {startup_s:.0f} s to start on {on}." if startup_s > 0 else ""
    if longest_s < start_limit_s:
        usual += f" Programs of {job.spec.user} have held workers without a report for longer than start_limit_s."
    return (
        f"The program reported no step in {leases}.{usual} If it starts slowly, an operator can raise start_limit_s"
        f" (now {start_limit_s:g} s) or round_duration_s; if it does not use `job.steps` yet, let it."
    )


def silent(job: Job, ran_s: float, *, start_limit_s: float) -> str:
    """Return what a program would lose that has run for `ran_s` seconds without a step; empty while it may still start.

    On a cluster with free workers its lease is extended again and again, so no lease of it ever ends.
    """
    if job.has_reported or not job.spec.preemptible or ran_s < start_limit_s:
        return ""
    return (
        f"The program has run for {ran_s:.0f} s and has reported no step, so it has saved nothing: as soon as another"
        " job gets its workers it begins again. If it does not use `job.steps` yet, let it (`gavel init` says how); if"
        " it cannot be stopped and resumed, submit it with --no-preemptible."
    )
