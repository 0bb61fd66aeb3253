"""What a leader does in the background: it deletes what ended jobs left after its time, and measures the disk."""

from collections.abc import Callable, Sequence
from functools import wraps

from gavel.backends.disk import MEASURE_EVERY_S, Disk
from gavel.backends.leftovers import Leftovers
from gavel.backends.nodes.housekeeping import clear
from gavel.backends.several.results import all_outputs
from gavel.config import Settings
from gavel.daemon.background import Periodic
from gavel.daemon.clock_ahead import ClockAhead
from gavel.errors import NotFound
from gavel.ports import Clock, RetentionStore
from gavel.types import Job, JobId

CLOCK_FILE = "clock.json"  # of the state folder


def chores(
    settings: Settings, store: RetentionStore, clock: Clock, disk: Disk, forget_job: Callable[[JobId], None]
) -> Sequence[Periodic]:
    """Return the tasks of a leader. `forget_job` drops what the backend keeps of a job that has ended."""
    clearing = Clearing(settings, store, clock, forget_job)
    by_age = map(clearing.by_age, (clearing.jobs, clearing.keys, clearing.files, clearing.unused))
    tasks = (*by_age, clearing.gangs)
    return (
        *(Periodic(task, settings.clear_interval_s) for task in tasks),
        Periodic(disk.measure, min(MEASURE_EVERY_S, settings.clear_interval_s)),
    )


class Clearing:
    """Deletes what is no longer kept: of the database, and of the disk of this machine."""

    def __init__(
        self, settings: Settings, store: RetentionStore, clock: Clock, forget_job: Callable[[JobId], None]
    ) -> None:
        self._settings, self._store, self._clock, self._forget_job = settings, store, clock, forget_job
        self._leftovers = Leftovers(settings)
        self._clock_ahead = ClockAhead(settings.state_dir / CLOCK_FILE, clock)

    def by_age(self, clear: Callable[[], None]) -> Callable[[], None]:
        """Return the task, which does nothing while all would look old, since the clock was set far ahead."""

        @wraps(clear)
        def run() -> None:
            if not self._clock_ahead.waits_s():
                clear()

        return run

    def jobs(self) -> None:
        """Delete jobs that ended long ago, with all that they have left."""
        before_s = self._clock.now_s() - self._settings.keep_jobs_s
        while job_ids := self._store.ended_jobs(before_s):
            origins = self._origins()
            for job_id in job_ids:  # first the files: of a job that is no longer stored nobody would find them at a URL
                self._leftovers.delete(job_id, origins)
            self._store.delete_ended(job_ids)

    def keys(self) -> None:
        """Delete idempotency keys after their time."""
        before_s = self._clock.now_s() - self._settings.keep_keys_s
        while self._store.forget_keys(before_s):
            pass

    def files(self) -> None:
        """Delete outputs, checkpoints and logs of jobs that ended long ago, each after its time."""
        all_outputs(self._settings).clear(self._ended_before, self._settings.keep_outputs_s)
        self._leftovers.clear(
            self._ended_before, is_known=lambda job_id: self._job(job_id) is not None, origins=self._origins()
        )

    def gangs(self) -> None:
        """Drop what the backend keeps of ended jobs."""
        for job_id in self._leftovers.ended_gangs(self._ended_before):
            self._forget_job(job_id)

    def unused(self) -> None:
        """Delete code, environments, inputs and work folders that nobody has used for long."""
        jobs = self._store.snapshot().jobs.values()
        unfinished = {job.id: job.spec.code.stored if job.spec.code else () for job in jobs}
        clear(self._settings.state_dir.resolve(), unfinished, self._settings.keep_code_s)

    def _ended_before(self, job_id: JobId, at_s: float) -> bool:
        """Return whether the job ended before the instant; a job that is not stored has: it was purged."""
        job = self._job(job_id)
        return job is None or (job.finished_at_s is not None and job.finished_at_s < at_s)

    def _job(self, job_id: JobId) -> Job | None:
        try:
            return self._store.job(job_id)
        except NotFound:
            return None

    def _origins(self) -> frozenset[str]:
        """Return the checkpoints of other jobs that unfinished jobs begin with."""
        return frozenset(job.spec.from_checkpoint for job in self._store.snapshot().jobs.values())
