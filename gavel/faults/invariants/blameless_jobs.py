"""I15: a job whose program has no fault completes, unless its user cancels it or it keeps losing its gangs."""

from gavel.faults.invariants.base import Evidence, Invariant
from gavel.faults.scenario import Behaviour, FaultKind
from gavel.types import JobState, Reason

SOUND = (Behaviour.GOOD, Behaviour.FORGES)
EXCUSES = (Reason.LOST_TOO_OFTEN, Reason.RESERVATION_MISSED, Reason.DEPENDENCY_FAILED)  # I19 and I22 say when not


class BlamelessJobs(Invariant):
    """No fault of the cluster or of the service fails a job."""

    name = "I15_blameless_jobs"

    def at_end(self, evidence: Evidence) -> None:
        """Check how each job with a sound program has ended."""
        if any(fault.kind is FaultKind.DISK_TORN for fault in evidence.scenario.faults):
            return  # nobody can restore what the disk has lost
        for number, program in enumerate(evidence.scenario.programs):
            job_id = evidence.ledger.submitted.get(f"key-{number}")
            if job_id is None or program.behaviour not in SOUND or job_id in evidence.ledger.cancellable:
                continue
            job = evidence.store.job(job_id)
            if job.state is not JobState.COMPLETED and job.reason not in EXCUSES:
                raise self.fail(f"job {job_id} ended {job.state}: {job.explanation}")
