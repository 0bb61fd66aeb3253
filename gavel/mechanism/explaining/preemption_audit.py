"""The preemptions of a round, for the audit log."""

from collections.abc import Iterator, Mapping

from gavel.ports import AuditEntry
from gavel.types import Job, JobId, JobState, Lease, RoundPlan, WorkerId


def preemptions(
    parent: RoundPlan | None, plan: RoundPlan, jobs: Mapping[JobId, Job], now_s: float
) -> Iterator[AuditEntry]:
    """Yield an entry for each gang that has to stop or move though its user wants it to run: who gets its workers."""
    holder = {worker: lease.job_id for lease in plan.leases for worker in lease.worker_ids}
    kept = {(lease.job_id, lease.generation) for lease in plan.leases}
    served = {lease.job_id for lease in plan.leases}
    for lease in parent.leases if parent else ():
        job = jobs.get(lease.job_id)
        if job is None or not _runs(job, lease) or (lease.job_id, lease.generation) in kept:
            continue
        yield AuditEntry(
            at_s=now_s,
            by=plan.policy,
            subject=f"job/{job.id}",
            before={"accelerator_type": lease.accelerator_type, "worker_ids": list(lease.worker_ids)},
            after={"given_to": _takers(lease, holder), "allocation_digest": plan.allocation_digest},
            action="gang.moved" if job.id in served else "gang.preempted",
            user=job.spec.user,
            round_index=plan.round_index,
        )


def _runs(job: Job, lease: Lease) -> bool:
    return job.state is JobState.LEASED and job.generation == lease.generation and job.is_wanted


def _takers(lease: Lease, holder: Mapping[WorkerId, JobId]) -> dict[WorkerId, JobId | None]:
    return {worker: holder.get(worker) for worker in lease.worker_ids}
