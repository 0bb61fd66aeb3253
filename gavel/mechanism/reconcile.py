"""Plan against observation: which instructions bring the cluster where the plan wants it. Level triggered: asked again
with the same view, it answers the same; a round late, it answers what is still to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gavel.mechanism.nodes import Nodes, overdue, usable
from gavel.ports import ExtendLease, ForgetGang, Instruction, LaunchGang, SetResources, StopGang
from gavel.types import EphemeralResource, GangSeen, GangState, Job, JobId, JobState, Lease, Observation, RoundPlan

OWNER = "gavel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now: launches become true in the store first, then all is told to the backend."""

    launches: tuple[Lease, ...] = ()
    instructions: tuple[Instruction, ...] = ()


def reconcile(
    rounds: Sequence[RoundPlan],
    jobs: Mapping[JobId, Job],
    seen: Observation,
    *,
    lease_grace_s: float,
    nodes: Nodes = MappingProxyType({}),
) -> Decision:
    """What to do for the newest rounds (the one in force, and the one planned ahead if any) given what is seen.

    `jobs`: those not terminal. Gangs of the round in force are launched; gangs that stay have their lease extended as
    soon as the next round is known; gangs nobody wants are stopped; gangs whose end is committed are forgotten. Nothing
    is launched on `nodes` that are closed or gone, and nothing is left when the window of a drain ends.
    """
    now_s = seen.observed_at_s
    current = next((plan for plan in reversed(rounds) if plan.starts_at_s <= now_s), None)
    in_force = _wanted(current, jobs) if current and now_s < current.ends_at_s else {}
    newest = {key: lease for plan in rounds for key, lease in _wanted(plan, jobs).items()}
    gangs = _by_job(seen.gangs)
    there = {worker.id for worker in seen.cluster.workers}
    is_open = {worker.id for worker in usable(seen.cluster, nodes).workers}
    launches = tuple(
        lease
        for lease in in_force.values()
        if lease.expires_at_s > now_s
        and _may_start(job := jobs[lease.job_id], lease, gangs)
        and (there if job.state is JobState.LEASED else is_open).issuperset(lease.worker_ids)
    )
    leaving = dict.fromkeys(overdue(seen, nodes, lease_grace_s=lease_grace_s))
    instructions = [
        *_endings(seen.gangs, jobs, newest, in_force, now_s),
        *_extensions(seen, {key: lease for key, lease in newest.items() if key not in leaving}, lease_grace_s),
        *(StopGang(job_id=job_id, token=token, reason="its node is being drained") for job_id, token in leaving),
    ]
    return Decision(launches=launches, instructions=tuple(instructions))


def resource_name(job_id: JobId, token: int) -> str:
    """Name of the ephemeral resource that a gang's tasks require, one unit each."""
    return f"gang-{job_id}-{token}"


def gang_resources(lease: Lease, node_of: Mapping[str, str], *, lease_grace_s: float) -> SetResources:
    """The gang said as ephemeral resources (ESCHER, section 4): on each of its nodes, one unit per task there."""
    nodes = [node_of[worker] for worker in lease.worker_ids]
    return SetResources(
        resources=tuple(
            EphemeralResource(
                name=resource_name(lease.job_id, lease.token),
                node=node,
                capacity=nodes.count(node),
                owner=OWNER,
                lease_expires_at_s=lease.expires_at_s + lease_grace_s,
                generation=lease.token,
            )
            for node in sorted(set(nodes))
        )
    )


def launch(lease: Lease, job: Job, *, job_token: str = "") -> LaunchGang:
    """The instruction that starts a lease's gang from the job's accepted checkpoint."""
    return LaunchGang(
        job_id=job.id,
        token=lease.token,
        user=job.spec.user,
        argv=job.spec.argv,
        env=job.spec.env,
        accelerator_type=lease.accelerator_type,
        worker_ids=lease.worker_ids,
        resource=f"{OWNER}/{resource_name(job.id, lease.token)}",
        lease_expires_at_s=lease.expires_at_s,
        start_step=job.steps_done,
        total_steps=job.spec.total_steps,
        checkpoint=job.checkpoint,
        job_token=job_token,
        shares_with=_partner(lease),
    )


def _partner(lease: Lease) -> JobId | None:
    """The other job of a packed pair."""
    return next((job_id for job_id in lease.combination if job_id != lease.job_id), None)


def _wanted(plan: RoundPlan | None, jobs: Mapping[JobId, Job]) -> dict[tuple[JobId, int], Lease]:
    """The plan's leases, trimmed to jobs that still want them."""
    leases = plan.leases if plan else ()
    return {
        (lease.job_id, lease.token): lease
        for lease in leases
        if lease.job_id in jobs and jobs[lease.job_id].is_wanted and lease.token >= jobs[lease.job_id].token
    }


def _by_job(gangs: Iterable[GangSeen]) -> dict[JobId, list[GangSeen]]:
    found: dict[JobId, list[GangSeen]] = {}
    for gang in gangs:
        found.setdefault(gang.job_id, []).append(gang)
    return found


def _may_start(job: Job, lease: Lease, gangs: Mapping[JobId, list[GangSeen]]) -> bool:
    """A gang starts once, and only when every older gang of its job is over and its end is committed."""
    others = gangs.get(job.id, [])
    if any(gang.state is not GangState.ENDED or gang.token >= lease.token for gang in others):
        return False
    unknown_to_backend = job.state is JobState.LEASED and job.token == lease.token
    return unknown_to_backend or (job.state is JobState.QUEUED and job.token < lease.token)


def _endings(
    gangs: Iterable[GangSeen],
    jobs: Mapping[JobId, Job],
    newest: Mapping[tuple[JobId, int], Lease],
    in_force: Mapping[tuple[JobId, int], Lease],
    now_s: float,
) -> Iterable[Instruction]:
    for gang in gangs:
        key, job = (gang.job_id, gang.token), jobs.get(gang.job_id)
        if gang.state is GangState.ENDED:
            if job is None or job.token != gang.token or job.state is not JobState.LEASED:
                yield ForgetGang(job_id=gang.job_id, token=gang.token)
        elif key not in newest:
            # Its own lease ends it too; this ends a gang that never started, was cancelled, or belongs to nobody.
            yield StopGang(job_id=gang.job_id, token=gang.token, reason="no longer planned")
        elif key not in in_force and gang.state is GangState.WAITING and newest[key].expires_at_s <= now_s:
            yield StopGang(job_id=gang.job_id, token=gang.token, reason="its lease ended before it could start")


def _extensions(
    seen: Observation, newest: Mapping[tuple[JobId, int], Lease], lease_grace_s: float
) -> Iterable[Instruction]:
    node_of = {worker.id: worker.node for worker in seen.cluster.workers}
    for gang in seen.gangs:
        lease = newest.get((gang.job_id, gang.token))
        if lease and gang.state is not GangState.ENDED and all(worker in node_of for worker in lease.worker_ids):
            yield gang_resources(lease, node_of, lease_grace_s=lease_grace_s)
            yield ExtendLease(
                job_id=gang.job_id,
                token=gang.token,
                expires_at_s=lease.expires_at_s,
                shares_with=_partner(lease),
            )
