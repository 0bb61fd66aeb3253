"""The part of `gavel.store.conformance` about notifications: from events to a queue for each receiver."""

from dataclasses import replace

from gavel.ports import Changes, JobEvent
from gavel.store.samples import WholeStore, spec
from gavel.types.notifications import Channel, NotificationSettings, NotificationState
from gavel.types.occasions import Occasion

ANN = NotificationSettings(user="ann", occasions=(Occasion.END,), email="ann@example.org")


def _happens(store: WholeStore, *kinds: str) -> str:
    job = store.submit(spec(), key=None, body_hash="h", now_s=1.0).job
    events = tuple(JobEvent(job_id=job.id, at_s=2.0, kind=kind, message="It is so.") for kind in kinds)
    store.commit(store.snapshot().version, Changes(events=events))
    return job.id


def events_become_notifications_once(store: WholeStore) -> None:
    """One for each address; the position moves with them."""
    queue = store.notifications
    assert queue.settings("ann").occasions == () and queue.take_events(has_webhook=True, has_email=True, now_s=3.0) == 0
    assert queue.put_settings(ANN, by="ann", now_s=1.0) == queue.settings("ann") == ANN
    job_id = _happens(store, "gang.launched", "job.failed")
    assert queue.take_events(has_webhook=True, has_email=True, now_s=3.0) == 3
    assert queue.take_events(has_webhook=True, has_email=True, now_s=3.0) == 0
    second, first = queue.notifications()
    assert (first.channel, first.address, second.channel, second.address) == (
        Channel.WEBHOOK,
        "",
        Channel.EMAIL,
        "ann@example.org",
    )
    assert {(each.job_id, each.occasion, each.at_s) for each in (first, second)} == {(job_id, Occasion.FAILURE, 2.0)}
    assert queue.notifications(user="bob") == () == queue.notifications(state=NotificationState.DELIVERED)
    assert queue.counts() == {
        (Channel.WEBHOOK, NotificationState.WAITING): 1,
        (Channel.EMAIL, NotificationState.WAITING): 1,
    }


def of_a_job_and_address_only_the_oldest_is_due(store: WholeStore) -> None:
    """What waits for its next attempt holds back what follows it of the same job, and nothing else."""
    queue = store.notifications
    queue.put_settings(replace(ANN, occasions=(Occasion.END, Occasion.NO_PROGRESS)), by="ann", now_s=1.0)
    _happens(store, "job.no_progress", "job.completed")
    _happens(store, "job.completed")
    queue.take_events(has_webhook=True, has_email=False, now_s=3.0)
    first, other = queue.due("", 3.0)
    assert (first.occasion, other.occasion) == (Occasion.NO_PROGRESS, Occasion.END)
    assert queue.receivers(3.0) == {""} and queue.due("email", 3.0) == () == queue.due("", 2.0)
    queue.record_attempt(replace(first, attempts=1, next_attempt_at_s=9.0, error="status 500"))
    assert queue.due("", 4.0) == (other,)
    assert [each.id for each in queue.due("", 9.0)] == [first.id, other.id]
    queue.record_attempt(replace(first, state=NotificationState.DELIVERED, attempts=2))
    later, same = sorted(queue.due("", 4.0), key=lambda each: each.job_id != first.job_id)
    assert (later.job_id, later.occasion, same) == (first.job_id, Occasion.END, other)


CHECKS = (events_become_notifications_once, of_a_job_and_address_only_the_oldest_is_due)
