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
        running = [each for each in evidence.running() if now_s >= each[1].excused_until_s]
        for job_id, gangs in _by_job((node.region, shard.launch.key) for node, shard in running).items():
            if len(gangs) > 1:
                raise self.fail(f"job {job_id} runs as generations {', '.join(sorted(gangs))}")


def _by_job(gangs: Iterable[tuple[str, GangKey]]) -> dict[JobId, set[str]]:
    """The gangs of each job: a generation that runs in two regions is two of them."""
    of_job: dict[JobId, set[str]] = {}
    for region, (job_id, generation) in gangs:
        of_job.setdefault(job_id, set()).add(f"{generation}@{region}" if region else f"{generation}")
    return of_job
