"""I9: fractions of an allocation are finite and in [0, 1], and those of one job sum to at most 1."""

from collections import defaultdict

import numpy as np

from gavel.faults.invariants.base import Commit, Evidence, Invariant

TOLERANCE = 1e-6


class Allocations(Invariant):
    """An allocation is one of time."""

    name = "I9_allocations"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check the allocation that the round was planned by."""
        if commit.changes.round is None:
            return
        allocation = commit.changes.round.allocation
        fractions = allocation.time_fraction
        if not np.isfinite(fractions).all() or (fractions < -TOLERANCE).any():
            raise self.fail(f"{allocation.policy} gave {fractions.tolist()}")
        sums: dict[str, float] = defaultdict(float)
        for members, row in zip(allocation.combinations, fractions.sum(axis=1).tolist(), strict=True):
            for job_id in members:
                sums[job_id] += row
        if any(total > 1 + TOLERANCE for total in sums.values()):
            raise self.fail(f"{allocation.policy} gave {dict(sums)}")
