"""I23: no round gives workers to a new gang of a tier once the tier has used what it may use in the month."""

from math import inf

from gavel.backends.gang import GangKey
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.faults.scenario import Request


class MonthlyLimits(Invariant):
    """A new gang is in a plan only if the tier had something left when that was made, or at the commit before."""

    name = "I23_monthly_limits"

    def __init__(self) -> None:
        self._was_spent = False
        self._planned: set[GangKey] = set()

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check the gangs that are planned for the first time."""
        if all(each.kind is not Request.BUDGET for each in evidence.scenario.requests):
            return
        is_spent, changes = self._is_spent(evidence), commit.changes
        plans = [plan for plan in (changes.round and changes.round.plan, changes.amended) if plan]
        for key in {(lease.job_id, lease.generation) for plan in plans for lease in plan.leases} - self._planned:
            self._planned.add(key)
            job = evidence.store.job(key[0])
            if is_spent and self._was_spent and job.spec.tier == "gold" and job.generation < key[1]:
                raise self.fail(f"gang {key[1]} of job {job.id} is planned, and its tier has used its month")
        self._was_spent = is_spent

    def _is_spent(self, evidence: Evidence) -> bool:
        snapshot = evidence.store.snapshot()
        limit_h = snapshot.tiers["gold"].accelerator_hours_per_month if "gold" in snapshot.tiers else None
        used_h = sum(each.accelerator_hours for each in snapshot.usage.values() if each.tier == "gold")
        return used_h >= (inf if limit_h is None else limit_h)
