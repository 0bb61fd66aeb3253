"""The part of `gavel.store.conformance` about what was written since, and about the policy that an operator chose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gavel.ports import Changes, Feed, Store
from gavel.store.samples import round_record, spec
from gavel.types import Expected, Job, JobState, Prediction, RoundPlan


def _submit(store: Store, now_s: float = 1.0) -> Job:
    return store.submit(spec(), key=None, body_hash="h", now_s=now_s).job


def _commit(store: Store, **changes: Any) -> int:
    return store.commit(store.snapshot().version, Changes(**changes))


def _read_on(store: Store, after: int, limit: int) -> tuple[list[Feed], int]:
    feeds = []
    while (page := store.feed(after=after, limit=limit)).position > after:
        feeds.append(page)
        after = page.position
    return feeds, after


def _jobs(feed: Feed) -> list[Job]:
    return [item for _, item in feed.items if isinstance(item, Job)]


def _plans(feed: Feed) -> list[RoundPlan]:
    return [item for _, item in feed.items if isinstance(item, RoundPlan)]


def a_feed_tells_what_was_written_since(store: Store) -> None:
    """Jobs and plans as they are now, in the order of their last write, ended jobs too; then nothing."""
    start = store.feed()
    assert (start.items, start.newest) == ((), start.position)
    first, second = _submit(store), _submit(store)
    ended = replace(first, state=JobState.CANCELLED, finished_at_s=2.0)
    _commit(store, jobs=(ended,), round=round_record(1))
    told = store.feed(after=start.position)
    assert [job.id for job in _jobs(told)] == [second.id, first.id]
    assert _jobs(told)[1].state is JobState.CANCELLED and _jobs(told)[1].version == ended.version + 1
    assert _plans(told) == [round_record(1).plan] and told.position == told.newest > start.position
    positions = [position for position, _ in told.items]
    assert positions == sorted(positions) and start.position < positions[0] and positions[-1] == told.position
    assert store.feed(after=told.position) == Feed(position=told.position, newest=told.position)


def a_feed_read_in_pages_loses_nothing(store: Store) -> None:
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


def a_position_ahead_of_the_feed_is_answered_with_where_it_is(store: Store) -> None:
    """As after a restore from a backup: whoever asks sees that it must read everything anew."""
    _submit(store)
    assert store.feed(after=10**9).position == store.feed().newest < 10**9


def a_job_written_again_is_told_again(store: Store) -> None:
    """Once, as it is now."""
    job, _ = _submit(store), _submit(store)
    before = store.feed().position
    for _ in range(2):
        store.request_cancel(job.id, now_s=2.0)
    (told,) = _jobs(store.feed(after=before))
    assert told.id == job.id and told.cancel_requested


def a_policy_that_was_chosen_stays(store: Store) -> None:
    """Until another is chosen; at first none is."""
    assert store.snapshot().policy == ""
    _commit(store, policy="fifo")
    _commit(store, round=round_record(1))
    assert store.snapshot().policy == "fifo"
    _commit(store, policy="hierarchical?x=1")
    assert store.snapshot().policy == "hierarchical?x=1"


def what_was_expected_of_a_job_is_kept_as_first_said_and_settled_when_it_completes(store: Store) -> None:
    """A second prediction changes nothing; a job that did not complete is never settled; the newest end comes first."""
    first, second, third = (_submit(store) for _ in range(3))
    start, finish = Expected(at_s=2.0, low_s=1.0, high_s=1 / 3), Expected(at_s=9.0, low_s=8.0, high_s=0.1 + 0.2)
    made = Prediction(job_id=first.id, made_at_s=1.0, start=start, finish=finish)
    others = [Prediction(job_id=job.id, made_at_s=2.0, finish=finish) for job in (second, third)]
    _commit(store, predictions=(made, *others), round=round_record(1))
    _commit(store, predictions=(replace(made, made_at_s=5.0),), round=round_record(2))
    assert store.predictions() == ()
    ended = replace(first, state=JobState.COMPLETED, steps_done=100, started_at_s=3.0, finished_at_s=7.0)
    later = replace(second, state=JobState.COMPLETED, steps_done=100, started_at_s=3.0, finished_at_s=8.0)
    _commit(store, jobs=(ended, later, replace(third, state=JobState.CANCELLED, finished_at_s=9.0)))
    settled = replace(made, started_at_s=3.0, finished_at_s=7.0)
    assert store.predictions() == (replace(others[0], started_at_s=3.0, finished_at_s=8.0), settled)
    assert [each.job_id for each in store.predictions(limit=1)] == [second.id]


CHECKS: tuple[Callable[[Store], None], ...] = (
    a_feed_tells_what_was_written_since,
    a_feed_read_in_pages_loses_nothing,
    a_position_ahead_of_the_feed_is_answered_with_where_it_is,
    a_job_written_again_is_told_again,
    a_policy_that_was_chosen_stays,
    what_was_expected_of_a_job_is_kept_as_first_said_and_settled_when_it_completes,
)
