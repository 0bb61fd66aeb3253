"""I22: a job that waits for others runs once they have completed, and fails only if one of them ended otherwise."""

from gavel.faults.invariants.base import Evidence, Invariant
from gavel.types import Job, JobId, JobState, Reason


class JobsAfterOthers(Invariant):
    """No gang of a job runs before the jobs that come first have completed, whoever leads."""

    name = "I22_jobs_after_others"

    def after_change(self, evidence: Evidence) -> None:
        """Check the jobs whose gangs run."""
        for job_id in {shard.launch.key[0] for _, shard in evidence.running()}:
            first = self._unfinished(evidence, job_id)
            if first:
                raise self.fail(f"a gang of job {job_id} runs, and job {first[0].id} is {first[0].state}")

    def at_end(self, evidence: Evidence) -> None:
        """Check the jobs that have failed for another one."""
        for job_id, job in evidence.jobs.items():
            if job.reason is Reason.DEPENDENCY_FAILED and not self._unfinished(evidence, job_id):
                raise self.fail(f"job {job_id} failed for another one, and all that come first have completed")

    def _unfinished(self, evidence: Evidence, job_id: JobId) -> list[Job]:
        if all(program.after is None for program in evidence.scenario.programs):
            return []
        first = map(evidence.store.job, evidence.store.job(job_id).spec.after)
        return [job for job in first if job.state is not JobState.COMPLETED]
