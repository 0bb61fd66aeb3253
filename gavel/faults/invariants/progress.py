"""I5, promise P5: steps and generations never fall, and an accepted checkpoint can be restored."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import Job, JobState


class Progress(Invariant):
    """Progress never goes back."""

    name = "I5_progress"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check every job of the commit against its state before."""
        for job_id, after in commit.after.items():
            before = commit.before.get(job_id)
            has_fallen = before is not None and after.steps_done < before.steps_done
            if before is not None and has_fallen and not self._is_lost(evidence, before):
                raise self.fail(f"job {job_id} went from step {before.steps_done} back to {after.steps_done}")
            if before is not None and after.generation < before.generation:
                raise self.fail(f"job {job_id} went from generation {before.generation} to {after.generation}")
            if after.total_steps is not None and after.steps_done > after.total_steps:
                raise self.fail(f"job {job_id} has done {after.steps_done} of {after.total_steps} steps")
            self._check_checkpoint(evidence, after)

    def _is_lost(self, evidence: Evidence, job: Job) -> bool:
        """Whether the disk has lost what it said to have written: then a job goes on from the checkpoint before."""
        return job.checkpoint is not None and not evidence.can_read(job.id, job.checkpoint)

    def _check_checkpoint(self, evidence: Evidence, job: Job) -> None:
        if job.checkpoint is None or job.state.is_terminal:
            return
        if not evidence.has(job.id, job.checkpoint):
            raise self.fail(f"job {job.id} relies on checkpoint {job.checkpoint}, which does not exist")
        has_done_all = job.steps_done == job.total_steps  # its program has ended, and needs no checkpoint to go on from
        if int(job.checkpoint.rpartition("-")[2]) != job.steps_done and not has_done_all:
            raise self.fail(f"job {job.id} has done {job.steps_done} steps and relies on {job.checkpoint}")

    def at_end(self, evidence: Evidence) -> None:
        """Check that jobs that have completed have done all of their steps."""
        for job in map(evidence.store.job, evidence.ledger.submitted.values()):
            has_steps = not (job.spec.is_interactive or job.spec.service)
            if has_steps and job.state is JobState.COMPLETED and job.steps_done != job.total_steps:
                raise self.fail(f"job {job.id} completed at {job.position}")
