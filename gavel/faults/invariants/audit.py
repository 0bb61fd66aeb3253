"""I13: whatever a user or an operator asked for and was told is done stays so, and is in the audit log."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant


class Audit(Invariant):
    """No acknowledged request is undone, or missing from the audit log."""

    name = "I13_audit"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check that no commit of a scheduler takes a cancellation back that was acknowledged."""
        for job_id in evidence.ledger.cancelled & commit.after.keys():
            if not commit.after[job_id].cancel_requested:
                raise self.fail(f"job {job_id} was cancelled, and a commit took that back")

    def at_end(self, evidence: Evidence) -> None:
        """Check the acknowledged requests of the ledger, and the operations that ended."""
        for subject, action in evidence.ledger.requests:
            if action not in {entry.action for entry in evidence.store.audit(subject=subject, limit=200)}:
                raise self.fail(f"{action} of {subject} was acknowledged and is not in the audit log")
