"""I8: rounds strictly increase, and each follows the one before."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant


class Rounds(Invariant):
    """Round n follows round n - 1."""

    name = "I8_rounds"

    def __init__(self) -> None:
        self._newest = 0

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check the round that was planned."""
        if commit.changes.round is None:
            return
        plan = commit.changes.round.plan
        if (plan.round_index, plan.parent_round_index) != (self._newest + 1, self._newest):
            raise self.fail(f"round {plan.round_index} after {plan.parent_round_index} follows {self._newest}")
        self._newest = plan.round_index
