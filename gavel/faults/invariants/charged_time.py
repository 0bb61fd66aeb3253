"""I21: the tiers are charged the time that their jobs are accounted for."""

from gavel.faults.invariants.base import Evidence, Invariant
from gavel.types import SECONDS_PER_HOUR, worker_s_of

ROUNDING_H = 1e-6  # of sums of thousands of parts, in worker hours


class ChargedTime(Invariant):
    """What all tiers have used is what all jobs have held, as stored; nothing is charged twice, nor forgotten."""

    name = "I21_charged_time"

    def at_end(self, evidence: Evidence) -> None:
        """Compare the stored usage with the stored jobs."""
        held_h = sum(sum(worker_s_of(job).values()) for job in evidence.jobs.values()) / SECONDS_PER_HOUR
        usage = evidence.store.snapshot().usage.values()
        charged_h = sum(each.worker_hours for each in usage)
        if abs(held_h - charged_h) > ROUNDING_H:
            raise self.fail(f"jobs held {held_h:.6f} worker hours, and their tiers are charged {charged_h:.6f}")
        if any(each.accelerator_hours < -ROUNDING_H for each in usage):
            raise self.fail(f"a tier has used less than nothing: {list(usage)}")
