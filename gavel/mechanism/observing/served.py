"""How many jobs a round could serve at an instant, and whether it could serve one: the n of finish-time fairness."""

from collections.abc import Mapping

from gavel.mechanism.jobs import admission_holds
from gavel.mechanism.jobs.index import JobIndex, is_schedulable
from gavel.types import Job, Tier, Usage


class Served:
    """The jobs of an index that a round could serve; all are looked at only where a tier or a size is shut out."""

    def __init__(
        self,
        index: JobIndex,
        *,
        tiers: Mapping[str, Tier],
        usage: Mapping[tuple[str, str], Usage],
        largest: int,
        now_s: float,
    ) -> None:
        """`largest`: the workers of the accelerator type that has most."""
        self._spent = admission_holds.spent_tiers(tiers, usage, now_s)
        self._largest, self._now_s = largest, now_s
        is_size_out = any(count and size > largest for size, count in index.sizes.items())
        is_any_out = bool(self._spent) or is_size_out or index.newest_at_s >= now_s
        jobs = index.jobs if is_any_out else index.conditional
        self.count = len(index.jobs) - sum(not self.includes(job) for job in jobs.values())

    def includes(self, job: Job) -> bool:
        """Return whether a round could serve the job."""
        if job.submitted_at_s >= self._now_s or job.spec.scale_factor > self._largest:
            return False
        return is_schedulable(job, self._now_s) and not admission_holds.is_held(job, self._spent, self._now_s)
