"""What is new in the store as server-sent events, made once for all who may hear the same.

A position is the store's: the number of a commit. Only the last event of a commit carries it as its id, so who comes
back with Last-Event-ID never skips half a commit. Jobs are told as they are when they are read; a job that changed
twice in between is told once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fastapi.sse import format_sse_event

from api.schemas.fields import View
from api.schemas.live import AllocationNews, ChangedNews
from api.services import Services
from api.views import job_view, leases_in_force, round_view, target_of_jobs
from gavel.ports import Feed, Snapshot
from gavel.types import Job, JobId, RoundPlan, RoundRecord

PAGE_ITEMS = 200

Kind = Literal["job", "round", "allocation", "changed"]
DEFAULT_KINDS: frozenset[Kind] = frozenset({"job", "round", "allocation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who hears the same. `user`: whose jobs and leases are told; None: an operator, who hears of all."""

    user: str | None
    kinds: frozenset[Kind] = DEFAULT_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Events up to `position` for each audience, empty where there are none; `newest`: there is more to read."""

    position: int
    newest: int
    events: Mapping[Audience, bytes]


def read_news(services: Services, after: int | None, audiences: Iterable[Audience]) -> News:
    """What was written after a position; None: nothing but where the feed is now. Raises StoreUnavailable."""
    feed = services.store.feed(after=after, limit=PAGE_ITEMS)
    events: dict[Audience, bytes] = dict.fromkeys(audiences, b"")
    if feed.items:
        snapshot = services.store.snapshot()
        kinds = {kind for audience in events for kind in audience.kinds}
        shown = _Shown(
            feed=feed,
            jobs=_jobs(services, feed) if "job" in kinds else {},
            allocations=_allocations(feed, snapshot) if "allocation" in kinds else {},
            owner_of={job_id: job.spec.user for job_id, job in snapshot.jobs.items()},
        )
        events = {audience: _joined([*shown.events(audience)]) for audience in events}
    return News(position=feed.position, newest=feed.newest, events=events)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A feed, with what is the same for all who may see it."""

    feed: Feed
    jobs: Mapping[JobId, bytes]
    allocations: Mapping[int, AllocationNews]
    owner_of: Mapping[JobId, str]

    def events(self, audience: Audience) -> Iterator[tuple[int, bytes]]:
        """Positions and events; an operator hears of all, a user of its own jobs and leases, not of the allocation."""
        told = 0
        for position, item in self.feed.items:
            if isinstance(item, RoundPlan) or audience.user in (None, item.spec.user):
                told += 1
                yield from ((position, event) for event in self._events_of(item, audience))
        if told and "changed" in audience.kinds:
            yield self.feed.position, _event("changed", ChangedNews(items=told))

    def _events_of(self, item: Job | RoundPlan, audience: Audience) -> Iterator[bytes]:
        if isinstance(item, Job):
            if "job" in audience.kinds:
                yield self.jobs[item.id]
            return
        if "round" in audience.kinds:
            mine = tuple(each for each in item.leases if audience.user in (None, self.owner_of.get(each.job_id)))
            yield _event("round", round_view(replace(item, leases=mine), {each.job_id for each in mine}))
        if "allocation" in audience.kinds and audience.user is None and item.round_index in self.allocations:
            yield _event("allocation", self.allocations[item.round_index])


def _jobs(services: Services, feed: Feed) -> dict[JobId, bytes]:
    jobs = {item.id: item for _, item in feed.items if isinstance(item, Job)}
    leases = leases_in_force(services.store.rounds(limit=2), jobs) if jobs else {}
    now_s = services.clock.now_s()
    return {job.id: _event("job", job_view(job, leases.get(job.id), now_s)) for job in jobs.values()}


def _allocations(feed: Feed, snapshot: Snapshot) -> dict[int, AllocationNews]:
    new = {item.round_index for _, item in feed.items if isinstance(item, RoundPlan)}
    records = [each for each in snapshot.rounds if each.plan.round_index in new]
    return {each.plan.round_index: allocation_news(each, snapshot) for each in records}


def allocation_news(record: RoundRecord, snapshot: Snapshot) -> AllocationNews:
    """What the solver came to, with each tier's part of each accelerator type's workers."""
    allocation, capacity = record.allocation, record.problem.capacity_workers.tolist()
    tiers: dict[str, list[float]] = {}
    for job_id, fractions in target_of_jobs(allocation).items():
        if job := snapshot.jobs.get(job_id):
            row = tiers.setdefault(job.spec.tier, [0.0] * len(capacity))
            for j, (fraction, workers) in enumerate(zip(fractions, capacity, strict=True)):
                row[j] += fraction * job.spec.scale_factor / max(1, workers)
    return AllocationNews(
        round_index=record.plan.round_index,
        policy=record.plan.policy,
        solver=allocation.solver,
        solver_outcome=record.solver_outcome,
        solve_time_s=allocation.solve_time_s,
        is_fallback=allocation.is_fallback,
        types=list(allocation.accelerator_types),
        capacity=dict(zip(allocation.accelerator_types, capacity, strict=True)),
        tiers=tiers,
    )


def _event(kind: Kind, view: View) -> bytes:
    return format_sse_event(event=kind, data_str=view.model_dump_json())


def _joined(events: list[tuple[int, bytes]]) -> bytes:
    """The events in one piece; the last of each position carries it: a client that got it has got them all."""
    following = [*(position for position, _ in events[1:]), -1]
    return b"".join(
        event if position == after else b"id: %d\n%b" % (position, event)
        for (position, event), after in zip(events, following, strict=False)  # none at all: nothing
    )
