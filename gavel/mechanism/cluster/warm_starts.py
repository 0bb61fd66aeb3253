"""Which gangs of a round that was planned ahead may start their programs before it begins."""

from collections.abc import Collection, Iterator, Mapping

from gavel.mechanism.cluster.reconcile import launch
from gavel.ports import PrepareGang
from gavel.types import Job, JobId, Observation, RoundPlan

LAUNCH_LIMIT_S = 10.0  # from the end of the gang before to the launch


def preparations(
    plan: RoundPlan,
    jobs: Mapping[JobId, Job],
    seen: Observation,
    *,
    reporting_kinds: Collection[str],
    lease_grace_s: float,
) -> Iterator[PrepareGang]:
    """Yield a hint for each gang of `plan` that is not there yet, if the plan begins later than now.

    Only kinds that have reported through the runtime are prepared (`reporting_kinds`): their programs can be preempted,
    so they are built to be started again and again. The gangs before may take `lease_grace_s` to leave their workers.
    """
    if plan.starts_at_s <= seen.observed_at_s:
        return
    there = {(gang.job_id, gang.generation) for gang in seen.gangs}
    for lease in plan.leases:
        job = jobs.get(lease.job_id)
        if job is None or not job.is_wanted or (job.id, lease.generation) in there:
            continue
        if job.spec.kind in reporting_kinds:
            yield PrepareGang(gang=launch(lease, job), until_s=plan.starts_at_s + lease_grace_s + LAUNCH_LIMIT_S)
