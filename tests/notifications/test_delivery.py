"""From an event of a job to its receivers: a real store, a real HTTP server, a real mail server."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.notifications.dispatcher import Dispatcher, dispatched
from gavel.ports import Changes, JobEvent
from gavel.store.samples import spec
from gavel.store.sql import SqlStore
from gavel.types import JobState, User
from gavel.types.notifications import NotificationSettings, NotificationState
from gavel.types.occasions import Occasion
from tests.api.conftest import wait_until
from tests.notifications.receivers import PASSWORD, USER, Mailbox, Webhook, mailbox, webhook

URL = "https://gavel.example"
PAUSE_S = 0.05  # before the second attempt
SECRET = "whsec_" + base64.b64encode(b"a key of the operator").decode()


class World:
    """A store with jobs whose events can be written, and a dispatcher over it that can be killed and started again."""

    def __init__(self, database: Path, stack: ExitStack) -> None:
        self.url, self.stack = f"sqlite:///{database}", stack
        self.store = self.opened()
        self.store.put_user(User(name="ann", tiers=("default",)), by="test", now_s=0)
        self.folder = database.parent

    def opened(self) -> SqlStore:
        store = SqlStore(self.url)
        self.stack.callback(store.close)
        return store

    def job(self, *occasions: Occasion, **over: Any) -> str:
        return self.store.submit(spec(notify=occasions or None, **over), key=None, body_hash="h", now_s=1.0).job.id

    def happens(self, job_id: str, *kinds: str) -> None:
        """Write the events, as the scheduler's commits do."""
        job = self.store.job(job_id)
        if kinds[-1] == "job.failed":
            job = replace(job, state=JobState.FAILED, exit_code=3, finished_at_s=5.0)
        events = tuple(JobEvent(job_id=job_id, at_s=5.0, kind=kind, message=f"It is {kind}.") for kind in kinds)
        self.store.commit(self.store.snapshot().version, Changes(jobs=(job,), events=events))

    def choose(self, *occasions: Occasion, **addresses: str) -> None:
        chosen = NotificationSettings(user="ann", occasions=occasions, **addresses)
        self.store.notifications.put_settings(chosen, by="ann", now_s=0)

    def dispatch(self, **settings: Any) -> Dispatcher:
        """Start a dispatcher, which ends with the test."""
        named = Settings(state_dir=self.folder, **settings)
        return self.stack.enter_context(
            dispatched(Dispatcher(self.opened().notifications, named, URL, first_pause_s=PAUSE_S))
        )

    def states(self) -> list[str]:
        return [each.state.value for each in reversed(self.store.notifications.notifications())]

    def until(self, *states: str) -> None:
        wait_until(lambda: self.states() == list(states))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path / "gavel.db", stack)


@pytest.fixture
def receiver() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Webhook]:
    with webhook() as server:
        yield server


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Mailbox]:
    with mailbox(tmp_path) as server:
        yield server


def by_mail(box: Mailbox, **over: Any) -> dict[str, Any]:
    login = {"smtp_user": USER, "smtp_password": SecretStr(PASSWORD), "smtp_ca_file": box.certificate}
    return {"smtp_host": "127.0.0.1", "smtp_port": box.port, "smtp_from": "gavel@cluster.example", **login, **over}


def test_a_failed_job_s_webhook_has_the_facts_and_a_signature_of_id_time_and_body(
    world: World, receiver: Webhook
) -> None:
    world.dispatch(notification_webhook_url=receiver.url, notification_webhook_secret=SecretStr(SECRET))
    job_id = world.job(Occasion.FAILURE)
    world.happens(job_id, "gang.launched", "job.failed")
    world.until("delivered")
    ((headers, body),) = receiver.requests
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(b"a key of the operator", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 600
    content = json.loads(body)
    assert (content["type"], content["message"]) == ("job.failure", "It is job.failed.")
    job = content["job"]
    assert (job["id"], job["state"], job["exit_code"]) == (job_id, "FAILED", 3)
    assert job["url"] == f"{URL}/jobs/{job_id}"


@pytest.mark.parametrize(
    ("chosen", "of_user", "sent"),
    [
        ((Occasion.END,), (), ["job.end", "job.failure"]),
        ((Occasion.FAILURE,), (Occasion.END,), ["job.failure"]),
        ((Occasion.NO_PROGRESS,), (), ["job.no-progress"]),
        (None, (Occasion.FAILURE, Occasion.NO_PROGRESS), ["job.failure", "job.no-progress"]),
        ((), (Occasion.END,), []),
        (None, (), []),
    ],
)
def test_a_job_s_choice_goes_before_the_user_s_and_a_failure_is_an_end_too(
    world: World, chosen: tuple[Occasion, ...] | None, of_user: tuple[Occasion, ...], sent: list[str]
) -> None:
    world.choose(*of_user)
    ids = [world.store.submit(spec(notify=chosen), key=None, body_hash="h", now_s=1.0).job.id for _ in range(3)]
    for job_id, kind in zip(ids, ("job.cancelled", "job.refused", "job.no_progress"), strict=True):
        world.happens(job_id, kind)
    queue = world.store.notifications
    assert queue.take_events(has_webhook=True, has_email=True, now_s=1.0) == 6  # three of submissions, too
    assert [f"job.{each.occasion}" for each in reversed(queue.notifications())] == sent
    assert queue.take_events(has_webhook=True, has_email=True, now_s=1.0) == 0


def test_an_e_mail_goes_out_encrypted_with_a_login(world: World, mail: Mailbox) -> None:
    world.choose(Occasion.END, email="ann@example.org")
    world.dispatch(**by_mail(mail))
    job_id = world.job(name="first")
    world.happens(job_id, "job.completed")
    world.until("delivered")
    (message,) = mail.messages
    assert (message["To"], message["From"]) == ("ann@example.org", "gavel@cluster.example")
    assert message["Subject"] == "Gavel: job first has ended"
    text = str(message.get_payload())
    assert "It is job.completed." in text and f"{URL}/jobs/{job_id}" in text


@pytest.mark.full
def test_a_wrong_password_is_tried_again_and_an_unknown_address_is_not(world: World, mail: Mailbox) -> None:
    world.choose(Occasion.END, email="nobody@example.org")
    dispatcher = world.dispatch(**by_mail(mail))
    world.happens(world.job(), "job.completed")
    world.until("failed")
    (given_up,) = world.store.notifications.notifications()
    assert given_up.attempts == 1 and "550 there is no such address" in given_up.error
    dispatcher.stop()
    world.choose(Occasion.END, email="ann@example.org")
    late = world.dispatch(**by_mail(mail, smtp_password=SecretStr("another one")))
    world.happens(world.job(), "job.completed")
    wait_until(lambda: any(each.attempts > 1 for each in world.store.notifications.notifications()))
    assert world.states() == ["failed", "waiting"] and "535" in late.notes()[0] and PASSWORD not in late.notes()[0]


def test_a_receiver_that_answers_500_gets_it_again_with_the_same_id_and_in_the_job_s_order(
    world: World, receiver: Webhook
) -> None:
    receiver.status = 500
    dispatcher = world.dispatch(notification_webhook_url=receiver.url)
    job_id = world.job(Occasion.NO_PROGRESS, Occasion.END)
    world.happens(job_id, "job.no_progress")
    world.happens(job_id, "job.completed")
    wait_until(lambda: len(receiver.requests) >= 3)
    assert set(receiver.types()) == {"job.no-progress"}, "the end waits for what happened before it"
    assert dispatcher.notes() == ("Notifications by webhook are late: the receiver answered with status 500.",)
    receiver.status = 204
    world.until("delivered", "delivered")
    assert receiver.types()[-2:] == ["job.no-progress", "job.end"]
    ids = [headers["webhook-id"] for headers, _ in receiver.requests]
    assert len(set(ids)) == 2 and dispatcher.notes() == ()


def test_one_receiver_that_does_not_answer_delays_only_its_own(
    world: World, receiver: Webhook, other: Webhook, mail: Mailbox
) -> None:
    receiver.may_answer.clear()
    world.choose(Occasion.END, email="ann@example.org", webhook_url=receiver.url)
    world.dispatch(notification_webhook_url=other.url, notification_hosts="127.0.0.1", **by_mail(mail))
    jobs = [world.job() for _ in range(3)]
    for job_id in jobs:
        world.happens(job_id, "job.completed")
    wait_until(lambda: len(other.requests) == 3 and len(mail.messages) == 3)
    assert other.jobs() == jobs and receiver.requests == []
    receiver.may_answer.set()
    wait_until(lambda: len(receiver.requests) >= 3)


def test_what_was_not_delivered_is_delivered_by_the_next_process(world: World, receiver: Webhook) -> None:
    """1 an event, and the process ends before it is looked at, 2 one ends after it was queued, 3 one is killed between
    the receiver's answer and its record: this one is sent twice, with the same id."""
    job_id = world.job(Occasion.FAILURE)
    world.happens(job_id, "job.failed")
    queue = world.opened().notifications
    assert queue.take_events(has_webhook=True, has_email=False, now_s=time.time()) == 2
    assert [each.state for each in queue.notifications()] == [NotificationState.WAITING]
    first = world.dispatch(notification_webhook_url=receiver.url)
    world.until("delivered")
    first.stop()
    (sent,) = queue.notifications()
    queue.record_attempt(replace(sent, state=NotificationState.WAITING))  # as if it had not been written
    world.dispatch(notification_webhook_url=receiver.url)
    wait_until(lambda: len(receiver.requests) == 2)
    assert receiver.requests[0][0]["webhook-id"] == receiver.requests[1][0]["webhook-id"]


def test_a_notification_is_given_up_after_its_time_and_the_next_one_follows(world: World, receiver: Webhook) -> None:
    receiver.status = 500
    world.dispatch(notification_webhook_url=receiver.url, notification_retry_s=0)
    job_id = world.job(Occasion.NO_PROGRESS, Occasion.END)
    world.happens(job_id, "job.no_progress", "job.completed")
    world.until("failed", "failed")
    assert receiver.types() == ["job.no-progress", "job.end"]


def test_a_host_that_is_not_allowed_any_more_gets_nothing(world: World, receiver: Webhook) -> None:
    world.choose(Occasion.END, webhook_url=receiver.url)
    world.dispatch(notification_webhook_url="http://127.0.0.1:9/", notification_hosts="hooks.example.org")
    world.happens(world.job(), "job.completed")
    wait_until(lambda: "failed" in world.states())
    errors = [each.error for each in world.store.notifications.notifications() if each.address]
    assert receiver.requests == [] and "host 127.0.0.1 is not one of those" in errors[0]


def test_a_redirect_is_not_followed(world: World, receiver: Webhook) -> None:
    receiver.status = 302
    world.dispatch(notification_webhook_url=receiver.url, notification_retry_s=0)
    world.happens(world.job(Occasion.END), "job.completed")
    world.until("failed")


def test_a_secret_that_is_no_base64_is_refused_by_name(tmp_path: Path, world: World) -> None:
    settings = Settings(state_dir=tmp_path, notification_webhook_secret=SecretStr("whsec_!"))
    with pytest.raises(InvalidRequest, match="notification_webhook_secret"):
        Dispatcher(world.store.notifications, settings, URL)
    assert "whsec_!" not in repr(settings)


def test_a_database_whose_events_were_forgotten_begins_to_count_again(world: World) -> None:
    job_id = world.job(Occasion.END)
    queue = world.store.notifications
    take: Callable[[], int] = lambda: queue.take_events(has_webhook=True, has_email=True, now_s=1.0)  # noqa: E731
    for _ in range(5):
        world.happens(job_id, "gang.launched")
    assert take() == 6
    world.store._writer.write(lambda tx: tx.connection.exec_driver_sql("DELETE FROM events") and None)
    assert take() == 0
    world.happens(job_id, "job.completed")
    assert take() == 1 and world.states() == ["waiting"]
