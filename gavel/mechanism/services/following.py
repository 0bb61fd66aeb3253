"""Finds what the decision about a service's demand needs to see: its requests, its room, what training would lose."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gavel.mechanism.services.decision import Replica
from gavel.mechanism.services.demand import DemandSeen, followed
from gavel.mechanism.services.spreading import holders_of_workers
from gavel.mechanism.tick import Tick
from gavel.types import (
    AcceleratorType,
    AllocationProblem,
    DemandSpec,
    DemandStatus,
    GangState,
    Job,
    JobId,
    Load,
    ServiceStatus,
)
from gavel.types.services import ANY_TYPE, DEMAND_MAX

WAITS_S = 60.0  # a replica that has waited so long for workers of its type counts as finding none there
QUEUE_S = 30.0  # in which requests that wait are to be answered
LOSS_MIN = 1e-3  # so that of two ways without loss the one with fewer replicas is taken
LARGER, OTHER_LEVEL = 0.01, 0.1  # of a demand, from which on a larger or another one is stored at once


def demand_status(tick: Tick, job: Job, replicas: Sequence[Replica]) -> DemandStatus | None:
    """Return what is known of a service's demand now, and the replicas that it leads to; None: it states none."""
    service, before = job.spec.service, (job.serving or ServiceStatus()).demand or DemandStatus()
    if service is None or service.demand is None:
        return None
    after = followed(before, service, _seen(tick, job, service.demand, replicas))
    return after if _is_news(before, after) else before


def _is_news(before: DemandStatus, after: DemandStatus) -> bool:
    """False for changes that are not worth a commit: they are seen again at the next tick.

    A demand that is larger than all before in its part of the past would not be.
    """
    if before.level is None or after.level is None or not before.recent:
        return before is not after
    parts = [part for part, *_ in before.recent] == [part for part, *_ in after.recent]
    is_larger = after.slot[0] != before.slot[0] or any(
        now > (1 + LARGER) * most for now, most in zip(after.recent[-1][1:], before.recent[-1][1:], strict=True)
    )
    if not parts or is_larger or abs(after.level - before.level) > OTHER_LEVEL * before.level:
        return True
    passing = {name: getattr(before, name) for name in ("level", "recent", "slot", "forecast", "needed")}
    return replace(after, **passing) != before


def _seen(tick: Tick, job: Job, demand: DemandSpec, replicas: Sequence[Replica]) -> DemandSeen:
    staying = [each for each in replicas if each.leaving_at_s is None]
    room = _room(tick, job, demand)
    running, waiting = Counter[str](), set[str]()
    for each in staying:
        running[each.accelerator_type] += each.is_running
        if not each.is_running and tick.now_s - each.made_at_s >= WAITS_S:
            waiting.add(each.accelerator_type)
    return DemandSeen(
        now_s=tick.now_s,
        demand=_measured(tick, job.id) if demand.stated is None else demand.stated,
        ready=Counter(each.accelerator_type for each in staying if each.is_ready),
        room=room,
        room_now=room | {name: running[name] for name in waiting if name in room},
        loss=_loss(tick, demand),
        started_s=tuple(tick.now_s - each.made_at_s for each in replicas if each.is_ready and not each.was_ready),
    )


def _measured(tick: Tick, service_id: JobId) -> float | None:
    """The requests per second that the replicas are asked for, those that leave too; None: none of them says it."""
    loads = [
        _asked(gang.load)
        for gang in tick.seen.gangs
        if gang.load is not None and gang.state is GangState.RUNNING and _is_replica(tick, gang.job_id, service_id)
    ]
    return min(DEMAND_MAX, sum(loads)) if loads else None


def _asked(load: Load) -> float:
    return load.requests_per_s + load.queue / QUEUE_S


def _is_replica(tick: Tick, job_id: JobId, service_id: JobId) -> bool:
    job = tick.index.replicas.get(job_id)
    return job is not None and job.spec.replica is not None and job.spec.replica.service == service_id


def _room(tick: Tick, job: Job, demand: DemandSpec) -> dict[str, int]:
    """The most replicas that each type can have: of its workers those that no other gang holds which stays."""
    needs, held = job.spec.needs, holders_of_workers(tick)
    nodes = {node.name for node in tick.usable.nodes if needs.allows_node(node)}
    free = Counter[str]()
    for worker in tick.usable.workers:
        if worker.node in nodes and needs.allows_worker(worker):
            holder = tick.index.non_preemptible.get(held.get(worker.id, ""))
            free[worker.accelerator_type] += holder is None or _is_replica(tick, holder.id, job.id)
    if not demand.is_by_type:
        return {ANY_TYPE: sum(count // job.spec.scale_factor for count in free.values())}
    return {name: free[name] // job.spec.scale_factor for name in demand.rates}


def _loss(tick: Tick, demand: DemandSpec) -> Mapping[str, float]:
    """What training loses by a worker of each type, 1 where it would be fastest, by the problem of the last round."""
    records = tick.round_records
    if not demand.is_by_type or len(demand.rates) < 2 or not records:
        return {}
    return relative_speeds(records[-1].problem, tick.index.replicas)


def relative_speeds(problem: AllocationProblem, replicas: Mapping[JobId, Job]) -> dict[AcceleratorType, float]:
    """Return the mean speed of the training jobs on each type, relative to the type on which each is fastest.

    Without `replicas`, and without jobs of which no speed is known; {}: there are no others.
    """
    alone = [at for at, members in enumerate(problem.combinations) if len(members) == 1]
    jobs = [at for at in alone if problem.job_ids[problem.combinations[at][0]] not in replicas]
    speed = problem.throughput_steps_per_s[jobs, 0, :]
    speed = speed[speed.max(axis=1, initial=0.0) > 0]
    if not len(speed):
        return {}
    relative = (speed / speed.max(axis=1, keepdims=True)).mean(axis=0)
    return {name: max(LOSS_MIN, float(each)) for name, each in zip(problem.accelerator_types, relative, strict=True)}
