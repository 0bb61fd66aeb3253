"""I3, promise P1: an acknowledged submit is a job, and the same key is always the same job."""

from gavel.errors import NotFound
from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import JobId


class AcknowledgedSubmits(Invariant):
    """Keys and jobs are one to one, whatever was acknowledged."""

    name = "I3_acknowledged_submits"

    def __init__(self) -> None:
        self._job_of: dict[str, JobId] = {}

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check that no two jobs come from one key, of those that a scheduler has committed."""
        for job in commit.after.values():
            is_submitted = job.spec.replica is None
            if is_submitted and self._job_of.setdefault(job.spec.name, job.id) != job.id:
                raise self.fail(f"{job.spec.name} made the jobs {self._job_of[job.spec.name]} and {job.id}")

    def at_end(self, evidence: Evidence) -> None:
        """Check that every acknowledged job is there."""
        if evidence.ledger.doubled:
            raise self.fail(f"{evidence.ledger.doubled} were answered with two jobs each")
        for key, job_id in evidence.ledger.submitted.items():
            try:
                stored = evidence.store.job(job_id)
            except NotFound:
                raise self.fail(f"{key} was acknowledged as job {job_id}, which is lost") from None
            if stored.spec.name != key:
                raise self.fail(f"{key} was acknowledged as job {job_id}, which is that of {stored.spec.name}")
