"""Spreads the replicas of a service: on which nodes those that wait may be placed in the round that is planned."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.tick import Tick
from gavel.types import GangState, Job, JobId, JobState, Needs, Node, Reason, ServiceSpec
from gavel.types.services import NODE

NODES_MAX = 64  # that one replica is offered; those with free workers first
NO_DOMAIN = "No node is left that may have the replica and has no other replica of the service."


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Nodes that count as one place: how many replicas are there, and how many workers a new one may have there.

    `free`: workers that nobody holds; `open`: those that no gang holds which stays.
    """

    nodes: tuple[str, ...]
    replicas: int
    free: int
    open: int


def spread(tick: Tick, layout: Layout) -> None:
    """Leave each waiting replica the nodes on which it may be placed now; hold those for which there are none."""
    services = {job_id: job for job_id, job in tick.index.services.items() if _spec(job).spread_by}
    waiting: dict[JobId, list[Job]] = {}
    for job in tick.index.replicas.values():
        if job.state is JobState.QUEUED and job.spec.replica is not None and job.spec.replica.service in services:
            waiting.setdefault(job.spec.replica.service, []).append(job)
    if not waiting:
        return
    held = holders_of_workers(tick)
    after: dict[JobId, Job | None] = {}
    for service_id, jobs in waiting.items():
        after |= _spread(tick, layout, held, _spec(services[service_id]), jobs)
    refused = {job_id: (Reason.SPREAD, NO_DOMAIN) for job_id in after if not after[job_id]}
    tick.held = refused | dict(tick.held)
    tick.wanting = [now for job in tick.wanting if (now := after.get(job.id, job)) is not None]


def _spread(
    tick: Tick, layout: Layout, held: Mapping[str, JobId], service: ServiceSpec, jobs: Sequence[Job]
) -> dict[JobId, Job | None]:
    """The waiting jobs of a service with their nodes; None for one that has none. An expected place is kept."""
    placed: dict[JobId, set[str]] = {job.id: set() for job in jobs}
    for worker, job_id in held.items():
        placed.get(job_id, set()).add(layout.node_of.get(worker, ""))
    expected = {job.id: _within(job, tuple(sorted(placed[job.id]))) for job in jobs if placed[job.id]}
    jobs = sorted((job for job in jobs if not placed[job.id]), key=lambda job: job.id)
    if not jobs:
        return expected
    part = jobs[0].spec.replica
    assert part is not None
    there = [each for each, job_id in held.items() if _is_of(tick.jobs.get(job_id), part.service)]
    domains = domains_of(tick, layout, held, service, jobs[0].spec.needs, there)
    chosen = nodes_of(domains, [job.spec.scale_factor for job in jobs], is_hard=service.spread_hard)
    return expected | {job.id: _within(job, nodes) for job, nodes in zip(jobs, chosen, strict=True)}


def _within(job: Job, nodes: tuple[str, ...] | None) -> Job | None:
    if nodes is None or job.spec.replica is None:
        return None
    return replace(job, spec=replace(job.spec, replica=replace(job.spec.replica, nodes=nodes)))


def nodes_of(domains: Sequence[Domain], sizes: Sequence[int], *, is_hard: bool) -> list[tuple[str, ...] | None]:
    """Return the nodes that each waiting replica is left, in order; None: it has to wait; (): any.

    No domain is left to two of them, so that they can be placed in one round. Where spreading is soft, a replica goes
    to the domain with the fewest others that has room for it now, and anywhere if none has.
    """
    if not is_hard:
        return _soft(domains, sizes)
    empty = sorted((each for each in domains if not each.replicas), key=lambda each: (-each.free, each.nodes))
    fitting = [each for each in empty if each.open >= min(sizes)]
    shares = [fitting[index :: len(sizes)] for index in range(len(sizes))]
    return [tuple(name for each in share for name in each.nodes)[:NODES_MAX] or None for share in shares]


def _soft(domains: Sequence[Domain], sizes: Sequence[int]) -> list[tuple[str, ...] | None]:
    now, chosen = list(domains), list[tuple[str, ...] | None]()
    for size in sizes:
        having = [index for index, each in enumerate(now) if each.free >= size]
        if not having:
            chosen.append(())
            continue
        best = min(having, key=lambda index: (now[index].replicas, -now[index].free, now[index].nodes))
        chosen.append(now[best].nodes[:NODES_MAX])
        now[best] = replace(now[best], replicas=now[best].replicas + 1, free=now[best].free - size)
    return chosen


def domains_of(
    tick: Tick,
    layout: Layout,
    held: Mapping[str, JobId],
    service: ServiceSpec,
    needs: Needs,
    there: Iterable[str],
) -> list[Domain]:
    """Return the domains whose nodes are usable and meet the needs. `there`: the workers of the service's replicas."""
    label_of = {node.name: domain_of(node, service) for node in layout.cluster.nodes}
    replicas = Counter(label_of.get(layout.node_of.get(worker, ""), "") for worker in there)
    allowed = {node.name for node in tick.usable.nodes if needs.allows_node(node)}
    free, open_, nodes = Counter[str](), Counter[str](), dict[str, dict[str, None]]()
    for worker in tick.usable.workers:
        label = label_of.get(worker.node, "")
        if worker.node not in allowed or not label or not needs.allows_worker(worker):
            continue
        nodes.setdefault(label, {})[worker.node] = None
        holder = tick.jobs.get(held.get(worker.id, ""))
        free[label] += worker.id not in held
        open_[label] += holder is None or holder.spec.preemptible
    return [
        Domain(nodes=tuple(names), replicas=replicas[label], free=free[label], open=open_[label])
        for label, names in nodes.items()
    ]


def domain_of(node: Node, service: ServiceSpec) -> str:
    """Return the name of the node's domain; "": it is in none.

    A node without the label is in none where replicas must be apart, else in one of its own.
    """
    if service.spread_by == NODE:
        return node.name
    return node.labels.get(service.spread_by, "" if service.spread_hard else f"{node.name}!")


def holders_of_workers(tick: Tick) -> dict[str, JobId]:
    """Return who holds each worker, or will by a plan that is not carried out yet."""
    held: dict[str, JobId] = {}
    for lease in (lease for plan in tick.round_plans for lease in plan.leases if lease.expires_at_s > tick.now_s):
        job = tick.jobs.get(lease.job_id)
        if job is not None and job.is_wanted and lease.generation > job.generation:
            held |= dict.fromkeys(lease.worker_ids, job.id)
    for gang in (gang for gang in tick.seen.gangs if gang.state is not GangState.ENDED):
        held |= dict.fromkeys(gang.worker_ids, gang.job_id)
    return held


def _is_of(job: Job | None, service_id: JobId) -> bool:
    return job is not None and job.spec.replica is not None and job.spec.replica.service == service_id


def _spec(job: Job) -> ServiceSpec:
    assert job.spec.service is not None, "a job of the index's services"
    return job.spec.service
