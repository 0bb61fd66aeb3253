"""Compares plans with the observation: which instructions bring the cluster to what the plans say.

Level triggered: the same inputs give the same instructions, and after a missed round they give what is still to do.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from gavel.mechanism.cluster.away import gangs_away
from gavel.mechanism.cluster.nodes import Nodes, overdue, usable
from gavel.ports import ExtendLease, ForgetGang, Instruction, LaunchGang, SetResources, StopGang
from gavel.types import (
    EphemeralResource,
    GangSeen,
    GangState,
    Job,
    JobId,
    JobSpec,
    JobState,
    Lease,
    Observation,
    RoundPlan,
    in_plan,
)
from gavel.types.environment import GLOBAL_BATCH, MAX_GLOBAL_BATCH, of_plan

OWNER = "gavel"
REPLICA_OUTLASTS_S = 86_400.0  # so that it answers while the scheduler is away

GangKey = tuple[JobId, int]
"""Job and generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What to do now: launches are committed to the store first, then everything is sent to the backend."""

    launches: tuple[Lease, ...] = ()
    instructions: tuple[Instruction, ...] = ()


def reconcile(
    rounds: Sequence[RoundPlan],
    jobs: Mapping[JobId, Job],
    seen: Observation,
    *,
    lease_grace_s: float,
    nodes: Nodes = MappingProxyType({}),
    sent: Mapping[GangKey, ExtendLease] = MappingProxyType({}),
    leases_last_sessions: bool = False,
    over: Collection[int] = (),
) -> Actions:
    """Return what to do for the newest rounds (the one in force, and the one planned ahead if any), as observed.

    `jobs`: those not terminal. Gangs of the round in force are launched; gangs that stay have their lease extended as
    soon as the next round is known, and one that starts then has that lease from the beginning; gangs nobody wants are
    stopped; gangs whose end is committed are forgotten. A gang
    that is not preempted is launched only while no round is planned that would end it. Nothing is launched on `nodes`
    that are closed or gone, and nothing is left when the window of a drain ends. `sent`: the last extension that each
    gang was sent; the same one is not made again. `leases_last_sessions`: the gang of a session has a lease to
    the end of the session, and that of a replica a longer one, so that it outlasts a time without a service; only where
    no node can be out of reach. `over`: the rounds none of whose gangs can run any more.
    """
    now_s = seen.observed_at_s
    wanted = [(plan, _wanted(plan, jobs)) for plan in rounds]
    newest = {key: lease for _, leases in wanted for key, lease in leases.items()}
    current, leases = next((each for each in reversed(wanted) if each[0].starts_at_s <= now_s), (None, {}))
    in_force = leases if current and now_s < current.ends_at_s else {}
    leaving = dict.fromkeys(overdue(seen, nodes, lease_grace_s=lease_grace_s))
    staying = {key: lease for key, lease in newest.items() if key not in leaving} if leaving else newest
    instructions = [
        *_endings(seen.gangs, jobs, newest, in_force, now_s),
        *_extensions(seen, _lasting(staying, jobs) if leases_last_sessions else staying, sent, lease_grace_s),
        *(
            StopGang(job_id=job_id, generation=generation, reason="its node is being drained")
            for job_id, generation in leaving
        ),
    ]
    lasting = [lease for key, lease in in_force.items() if jobs[lease.job_id].spec.preemptible or key in wanted[-1][1]]
    due = list(_due(lasting, jobs, seen, nodes))
    away = gangs_away(rounds, seen.cluster, over) if due else frozenset()
    may_start = (lease for lease in due if not _may_run_away(jobs[lease.job_id], lease, away))
    launches = tuple(replace(lease, expires_at_s=newest[gang_key(lease)].expires_at_s) for lease in may_start)
    return Actions(launches=launches, instructions=tuple(instructions))


def _lasting(leases: Mapping[GangKey, Lease], jobs: Mapping[JobId, Job]) -> dict[GangKey, Lease]:
    """The leases, those of sessions that have started up to their end, those of replicas for a day longer."""
    ends_s = {key: _lasts_until_s(jobs[lease.job_id], lease) for key, lease in leases.items()}
    return {
        key: replace(lease, expires_at_s=ends_s[key]) if ends_s[key] > lease.expires_at_s else lease
        for key, lease in leases.items()
    }


def _lasts_until_s(job: Job, lease: Lease) -> float:
    return lease.expires_at_s + REPLICA_OUTLASTS_S if job.spec.replica else job.session_ends_at_s or 0.0


def _may_run_away(job: Job, lease: Lease, away: Collection[GangKey]) -> bool:
    """Return True if the gang that the job had before may still run on a node that is away."""
    return job.generation < lease.generation and (job.id, job.generation) in away


def _due(leases: Iterable[Lease], jobs: Mapping[JobId, Job], seen: Observation, nodes: Nodes) -> Iterator[Lease]:
    """The leases in force whose gangs may start now, on workers that are there."""
    gangs = _by_job(seen.gangs)
    due = [
        lease
        for lease in leases
        if lease.expires_at_s > seen.observed_at_s and _may_start(jobs[lease.job_id], lease, gangs)
    ]
    if not due:
        return
    there = {worker.id for worker in seen.cluster.workers}
    is_open = {worker.id for worker in usable(seen.cluster, nodes).workers}
    for lease in due:
        if (there if jobs[lease.job_id].state is JobState.LEASED else is_open).issuperset(lease.worker_ids):
            yield lease


def resource_name(job_id: JobId, generation: int) -> str:
    """Return the name of the ephemeral resource that a gang's tasks require, one unit each."""
    return f"gang-{job_id}-{generation}"


def gang_resources(lease: Lease, node_of: Mapping[str, str], *, lease_grace_s: float) -> SetResources:
    """Return the gang's ephemeral resources (ESCHER, section 4): on each of its nodes one unit per task there."""
    on_node = Counter([node_of[worker] for worker in lease.worker_ids])
    name, until_s = resource_name(lease.job_id, lease.generation), lease.expires_at_s + lease_grace_s
    resources = [
        EphemeralResource(
            name=name,
            node=node,
            capacity=on_node[node],
            owner=OWNER,
            lease_expires_at_s=until_s,
            generation=lease.generation,
        )
        for node in sorted(on_node)
    ]
    return SetResources(resources=tuple(resources))


def launch(lease: Lease, job: Job, *, job_token: str = "", time_to_loss_s: float = 0.0) -> LaunchGang:
    """Return the instruction that starts a lease's gang, under its plan, from the job's accepted checkpoint."""
    spec = in_plan(job.spec, lease.plan)
    return LaunchGang(
        job_id=job.id,
        generation=lease.generation,
        user=job.spec.user,
        argv=argv_of(spec),
        env=env_of(spec),
        accelerator_type=lease.accelerator_type,
        worker_ids=lease.worker_ids,
        resource=f"{OWNER}/{resource_name(job.id, lease.generation)}",
        lease_expires_at_s=lease.expires_at_s,
        start_step=job.steps_done,
        total_steps=job.total_steps,
        checkpoint=job.checkpoint,
        from_checkpoint=job.spec.from_checkpoint,
        workdir=job.spec.workdir,
        python=job.spec.python,
        image=job.spec.image,
        setup=job.spec.setup,
        secrets=job.spec.secrets,
        data=job.spec.data,
        code=job.spec.code.digest if job.spec.code else "",
        cpu_cores=job.spec.cpu_cores if job.spec.cpu_cores > 1 else 0,
        memory_bytes=job.spec.memory_bytes,
        serving=_serving(job.spec),
        tier=job.spec.tier,
        job_token=job_token,
        time_to_loss_s=time_to_loss_s,
        shares_with=_partner(lease),
    )


def _serving(spec: JobSpec) -> str:
    """Port and checks of a replica as JSON; "" for another job."""
    return json.dumps(asdict(spec.replica.serving)) if spec.replica else ""


def env_of(spec: JobSpec) -> Mapping[str, str]:
    """Return the variables of each rank: the job's, the samples of a step and of an update of an elastic one, and those
    of its plan.
    """
    env, plan = spec.env, spec.plan_in_force
    if spec.is_elastic:
        env = {**env, GLOBAL_BATCH: str(spec.global_batch)}
    if spec.max_global_batch:
        env = {**env, MAX_GLOBAL_BATCH: str(spec.max_global_batch)}
    return {**env, **of_plan(plan.name, plan.parameters)} if plan else env


def argv_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the program of each rank: the plan's own or the job's, within the one that calls `dump` and `restore`."""
    plan = spec.plan_in_force
    argv = plan.argv if plan and plan.argv else spec.argv
    if not spec.dump:
        return argv
    python = "python3" if spec.image else "python"
    return (python, "-m", "gavel_runtime._hooks", spec.dump, spec.restore, *argv)


def _partner(lease: Lease) -> JobId | None:
    """The other job of a packed pair; None: the gang has its workers to itself."""
    return next((job_id for job_id in lease.combination if job_id != lease.job_id), None)


def _wanted(plan: RoundPlan, jobs: Mapping[JobId, Job]) -> dict[GangKey, Lease]:
    """The plan's leases of jobs that still want to run."""
    return {
        gang_key(lease): lease
        for lease in plan.leases
        if (job := jobs.get(lease.job_id)) is not None and lease.generation >= job.generation and job.is_wanted
    }


def gang_key(lease: Lease) -> GangKey:
    """Return the job and the generation of the lease's gang."""
    return lease.job_id, lease.generation


def _by_job(gangs: Iterable[GangSeen]) -> dict[JobId, list[GangSeen]]:
    of_job: dict[JobId, list[GangSeen]] = {}
    for gang in gangs:
        of_job.setdefault(gang.job_id, []).append(gang)
    return of_job


def _may_start(job: Job, lease: Lease, gangs: Mapping[JobId, list[GangSeen]]) -> bool:
    """True if the gang has not been started, and every older gang of its job has ended and that is committed.

    A launch that was committed and that no node has heard of is repeated. A gang that has reported was started.
    """
    for gang in gangs.get(job.id, ()):
        if gang.state is not GangState.ENDED or gang.generation >= lease.generation:
            return False
    is_repeated = job.state is JobState.LEASED and job.generation == lease.generation and not job.has_reported
    return is_repeated or (job.state is JobState.QUEUED and job.generation < lease.generation)


def _endings(
    gangs: Iterable[GangSeen],
    jobs: Mapping[JobId, Job],
    newest: Mapping[GangKey, Lease],
    in_force: Mapping[GangKey, Lease],
    now_s: float,
) -> Iterable[Instruction]:
    for gang in gangs:
        key, job = (gang.job_id, gang.generation), jobs.get(gang.job_id)
        if gang.state is GangState.ENDED:
            if job is None or job.generation != gang.generation or job.state is not JobState.LEASED:
                yield ForgetGang(job_id=gang.job_id, generation=gang.generation)
        elif key not in newest:
            # Its own lease ends it too; this ends a gang that never started, was cancelled, or belongs to nobody.
            yield StopGang(job_id=gang.job_id, generation=gang.generation, reason="no longer planned")
        elif key not in in_force and gang.state is GangState.WAITING and newest[key].expires_at_s <= now_s:
            yield StopGang(
                job_id=gang.job_id, generation=gang.generation, reason="its lease ended before it could start"
            )


def _extensions(
    seen: Observation, newest: Mapping[GangKey, Lease], sent: Mapping[GangKey, ExtendLease], lease_grace_s: float
) -> Iterable[Instruction]:
    live = (newest.get((gang.job_id, gang.generation)) for gang in seen.gangs if gang.state is not GangState.ENDED)
    unsent = [lease for lease in live if lease and not _is_sent(lease, sent)]
    node_of = {worker.id: worker.node for worker in seen.cluster.workers} if unsent else {}
    for lease in unsent:
        if all(worker in node_of for worker in lease.worker_ids):
            yield gang_resources(lease, node_of, lease_grace_s=lease_grace_s)
            yield ExtendLease(
                job_id=lease.job_id,
                generation=lease.generation,
                expires_at_s=lease.expires_at_s,
                shares_with=_partner(lease),
            )


def _is_sent(lease: Lease, sent: Mapping[GangKey, ExtendLease]) -> bool:
    """True if the gang was sent the end of this lease, and with whom it shares its workers."""
    last = sent.get((lease.job_id, lease.generation))
    return last is not None and last.expires_at_s == lease.expires_at_s and last.shares_with == _partner(lease)
