"""The quota of a job's output folder. Standard library only: a part of the supervisor."""

from gavel.backends.job_folder import total_bytes
from gavel.backends.machine import boottime_s

LOOK_EVERY_S = 10.0
SLOWNESS = 50  # a look may take a fiftieth of the time, however many files there are


class OutputQuota:
    """Looks seldom at how much the folder holds; `limit_bytes` 0: any size is allowed."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._look_at_boottime_s = 0.0

    def problem(self) -> str:
        """Return what is wrong, in a sentence; "" while the job keeps its quota, or if it is too early to look."""
        now_s = boottime_s()
        if not self._limit_bytes or not self._folder or now_s < self._look_at_boottime_s:
            return ""
        size = total_bytes(self._folder)
        self._look_at_boottime_s = boottime_s() + max(LOOK_EVERY_S, SLOWNESS * (boottime_s() - now_s))
        if size <= self._limit_bytes:
            return ""
        return (
            f"Its output folder holds {size / 1e6:,.1f} MB, more than the {self._limit_bytes / 1e6:,.1f} MB that a job"
            " may keep; write less to job.output_dir, or ask an operator for more (output_bytes)"
        )
