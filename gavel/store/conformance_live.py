"""The part of `gavel.store.conformance` about the live feed: what was written since."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.ports import Changes, Feed
from gavel.store.samples import WholeStore, round_record, spec
from gavel.types import Job, JobState, RoundPlan


def _submit(store: WholeStore, now_s: float = 1.0) -> Job:
    return store.submit(spec(), key=None, body_hash="h", now_s=now_s).job


def _commit(store: WholeStore, **changes: Any) -> int:
    return store.commit(store.snapshot().version, Changes(**changes))


def _read_on(store: WholeStore, after: int, limit: int) -> tuple[list[Feed], int]:
    feeds = []
    while (page := store.feed(after=after, limit=limit)).position > after:
        feeds.append(page)
        after = page.position
    return feeds, after


def _jobs(feed: Feed) -> list[Job]:
    return [item for _, item in feed.items if isinstance(item, Job)]


def _plans(feed: Feed) -> list[RoundPlan]:
    return [item for _, item in feed.items if isinstance(item, RoundPlan)]


def a_feed_tells_what_was_written_since(store: WholeStore) -> None:
    """Jobs and plans as they are now, in the order of their last write, ended jobs too; then nothing."""
    start = store.feed()
    assert (start.items, start.newest) == ((), start.position)
    first, second = _submit(store), _submit(store)
    ended = replace(first, state=JobState.CANCELLED, finished_at_s=2.0)
    _commit(store, jobs=(ended,), round=round_record(1))
    page = store.feed(after=start.position)
    assert [job.id for job in _jobs(page)] == [second.id, first.id]
    assert _jobs(page)[1].state is JobState.CANCELLED and _jobs(page)[1].version == ended.version + 1
    assert _plans(page) == [round_record(1).plan] and page.position == page.newest > start.position
    positions = [position for position, _ in page.items]
    assert positions == sorted(positions) and start.position < positions[0] and positions[-1] == page.position
    assert store.feed(after=page.position) == Feed(position=page.position, newest=page.position)


def a_feed_read_in_pages_loses_nothing(store: WholeStore) -> None:
    """What one commit wrote is in one page, however small the page."""
    start = store.feed().position
    together = store.submit_many([spec()] * 5, key=None, body_hash="h", now_s=1.0)
    alone = [_submit(store) for _ in range(4)]
    for index in range(1, 4):
        _commit(store, round=round_record(index))
    feeds, end = _read_on(store, start, limit=2)
    assert [job.id for each in feeds for job in _jobs(each)] == [j.id for j in (*(s.job for s in together), *alone)]
    assert [plan.round_index for each in feeds for plan in _plans(each)] == [1, 2, 3]
    assert end == store.feed().newest
    one_page = next(each for each in feeds if together[0].job in _jobs(each))
    assert {each.job.id for each in together} <= {job.id for job in _jobs(one_page)}


def a_position_ahead_of_the_feed_is_answered_with_where_it_is(store: WholeStore) -> None:
    """It occurs after a restore from a backup: the reader learns that it must read everything anew."""
    _submit(store)
    assert store.feed(after=10**9).position == store.feed().newest < 10**9


def a_job_written_again_is_told_again(store: WholeStore) -> None:
    """Once, in its present state."""
    job, _ = _submit(store), _submit(store)
    before = store.feed().position
    for _ in range(2):
        store.request_cancel(job.id, now_s=2.0)
    (rewritten,) = _jobs(store.feed(after=before))
    assert rewritten.id == job.id and rewritten.cancel_requested


CHECKS: tuple[Callable[[WholeStore], None], ...] = (
    a_feed_tells_what_was_written_since,
    a_feed_read_in_pages_loses_nothing,
    a_position_ahead_of_the_feed_is_answered_with_where_it_is,
    a_job_written_again_is_told_again,
)
