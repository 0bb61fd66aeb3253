"""I17: a service never has more replicas than its user allows, and keeps enough ready ones when one is to leave."""

from gavel.faults.invariants.base import Commit, Evidence, Invariant
from gavel.types import Job, JobId, JobState


class Replicas(Invariant):
    """Replicas leave only where enough others are ready, and at most the surge is there beside them."""

    name = "I17_replicas"

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check the services of the replicas that the commit changes."""
        for service_id in {job.spec.replica.service for job in commit.after.values() if job.spec.replica}:
            service = evidence.store.job(service_id)
            if service.is_wanted:
                self._check(service, self._there(evidence, commit, service_id), commit)

    def _there(self, evidence: Evidence, commit: Commit, service_id: JobId) -> list[Job]:
        """Return the replicas that have not ended and do not leave, as they are after the commit."""
        jobs = {**evidence.jobs, **commit.after}.values()
        own = (job for job in jobs if job.spec.replica and job.spec.replica.service == service_id)
        return [job for job in own if job.is_wanted and job.leaving_at_s is None]

    def _check(self, service: Job, staying: list[Job], commit: Commit) -> None:
        assert service.spec.service is not None, "the job that replicas name is a service"
        most = service.spec.service.replicas_max + service.spec.service.surge
        if len(staying) > most:
            raise self.fail(f"service {service.id} has {len(staying)} replicas, and {most} are allowed")
        leave = [job for job_id, job in commit.after.items() if _leaves(commit.before.get(job_id), job)]
        ready = sum(job.state is JobState.LEASED and bool(job.endpoint) for job in staying)
        wanted = service.spec.service.available_of(service.spec.service.replicas)
        if any(_service_of(job) == service.id for job in leave) and ready < wanted:
            raise self.fail(f"a ready replica of service {service.id} leaves; {ready} of {wanted} are ready without it")


def _leaves(before: Job | None, after: Job) -> bool:
    """Return True for a ready replica that leaves from now on."""
    return bool(before and before.endpoint and before.leaving_at_s is None and after.leaving_at_s is not None)


def _service_of(job: Job) -> JobId:
    return job.spec.replica.service if job.spec.replica else ""
