"""I4, promise P2: at most one gang of a job runs."""

from collections.abc import Iterable

from gavel.backends.gang import GangKey
from gavel.faults.invariants.base import Evidence, Invariant
from gavel.types import JobId


class OneLiveGang(Invariant):
    """No job has ranks of two generations, unless a supervisor that should have ended one is suspended."""

    name = "I4_one_live_gang"

    def after_change(self, evidence: Evidence) -> None:
        """Check which gangs have ranks that run now."""
        now_s = evidence.schedule.now_s
        running = [shard for _, shard in evidence.running() if now_s >= shard.excused_until_s]
        for job_id, keys in _by_job(shard.launch.key for shard in running).items():
            if len(keys) > 1:
                raise self.fail(f"job {job_id} runs as generations {sorted(generation for _, generation in keys)}")


def _by_job(keys: Iterable[GangKey]) -> dict[JobId, set[GangKey]]:
    of_job: dict[JobId, set[GangKey]] = {}
    for key in keys:
        of_job.setdefault(key[0], set()).add(key)
    return of_job
