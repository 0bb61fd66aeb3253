"""What is new in the store, as server-sent events. They are built once for all listeners that may see the same.

A position is the number of a commit in the store. Only the last event of a commit carries it as its id, so a client
that comes back with Last-Event-ID never misses half a commit. A job's event shows the job as it is when the store is
read; a job that changed twice in between has one event.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fastapi.sse import format_sse_event

from api.schemas.fields import View
from api.schemas.live import AllocationNews, ChangedNews
from api.services import Services
from api.views.jobs_and_rounds import job_view, leases_in_force, round_view
from gavel.ports import Feed, Snapshot
from gavel.types import Job, JobId, RoundPlan, RoundRecord, workers_promised

PAGE_ITEMS = 200

Kind = Literal["job", "round", "allocation", "changed"]
DEFAULT_KINDS: frozenset[Kind] = frozenset({"job", "round", "allocation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Listeners that get the same events. `user`: the owner of the jobs and leases; None: an operator, who gets all."""

    user: str | None
    kinds: frozenset[Kind] = DEFAULT_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """The events up to `position` for each audience, empty if there are none. `newest`: the last position to read."""

    position: int
    newest: int
    events: Mapping[Audience, bytes]


def read_events(
    services: Services, after: int | None, audiences: Iterable[Audience], until: int | None = None
) -> EventBatch:
    """Return what was written after a position, up to `until`; None: no events, only the present position.

    Raise StoreUnavailable.
    """
    feed = services.store.feed(after=after, limit=PAGE_ITEMS)
    if until is not None and feed.position > until:
        items = tuple((position, item) for position, item in feed.items if position <= until)
        feed = replace(feed, position=until, items=items)
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
    return EventBatch(position=feed.position, newest=feed.newest, events=events)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A feed, with the parts of its events that are the same for all audiences."""

    feed: Feed
    jobs: Mapping[JobId, bytes]
    allocations: Mapping[int, AllocationNews]
    owner_of: Mapping[JobId, str]

    def events(self, audience: Audience) -> Iterator[tuple[int, bytes]]:
        """Yield positions and events: for an operator all, for a user its own jobs and leases, without allocations."""
        visible = 0
        for position, item in self.feed.items:
            if isinstance(item, RoundPlan) or audience.user in (None, item.spec.user):
                visible += 1
                yield from ((position, event) for event in self._events_of(item, audience))
        if visible and "changed" in audience.kinds:
            yield self.feed.position, _event("changed", ChangedNews(items=visible))

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
    records = [each for each in snapshot.round_records if each.plan.round_index in new]
    return {each.plan.round_index: allocation_news(each, snapshot) for each in records}


def allocation_news(record: RoundRecord, snapshot: Snapshot) -> AllocationNews:
    """Return the newest allocation's summary, with each tier's part of each accelerator type's workers."""
    allocation, capacity = record.allocation, record.problem.capacity_workers.tolist()
    tiers: dict[str, list[float]] = {}
    targets = workers_promised(allocation, record.problem).tolist()
    for job_id, workers in zip(record.problem.job_ids, targets, strict=True):
        if job := snapshot.jobs.get(job_id):
            row = tiers.setdefault(job.spec.tier, [0.0] * len(capacity))
            tiers[job.spec.tier] = [so_far + w / max(1, n) for so_far, w, n in zip(row, workers, capacity, strict=True)]
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
    """Return the events as one chunk. Only the last event of each position carries it as its id.

    A client that has an id has therefore received all events of that position.
    """
    following = [*(position for position, _ in events[1:]), -1]
    return b"".join(
        event if position == after else b"id: %d\n%b" % (position, event)
        for (position, event), after in zip(events, following, strict=False)  # an empty list gives an empty chunk
    )
