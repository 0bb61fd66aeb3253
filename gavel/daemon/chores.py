"""What a leader does in the background: it deletes the output folders of jobs that ended long ago."""

from collections.abc import Sequence

from gavel.backends.ray.stored_outputs import outputs_of
from gavel.config import Settings
from gavel.daemon.background import Periodic
from gavel.errors import NotFound
from gavel.store.sql import SqlStore
from gavel.types import JobId

CLEAR_EVERY_S = 3600.0


def chores(settings: Settings, store: SqlStore) -> Sequence[Periodic]:
    """Return the tasks of a leader."""
    outputs = outputs_of(settings)

    def ended_before(job_id: JobId, at_s: float) -> bool:
        """Return whether the job ended before the instant; an unknown job has: its database is another one."""
        try:
            finished_at_s = store.job(job_id).finished_at_s
        except NotFound:
            return True
        return finished_at_s is not None and finished_at_s < at_s

    return (Periodic(lambda: outputs.clear(ended_before, settings.keep_outputs_s), CLEAR_EVERY_S),)
