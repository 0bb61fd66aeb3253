"""Live events: each audience gets its events, and a client that reconnects resumes where it stopped."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from api.live import listeners
from api.live.events import Audience, read_events
from api.services import Services
from gavel.types import JobState, Lease, Scope
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record
from tests.api.test_logs import events

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
CLIENTS, SUBMITTED = (500, 200) if FULL else (40, 30)
PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}


def parts_of(service: Service) -> Services:
    return Services(
        store=service.store,
        settings=service.settings,
        clock=service.clock,
        read_log=service.read_log,
        is_scheduler_alive=lambda: True,
    )


def submit(client: httpx.Client) -> str:
    return str(client.post("/v1/jobs", json=PROGRAM).json()["id"])


class Following:
    """An open stream."""

    def __init__(self, client: httpx.Client, after: int | None = None, kind: str = "", **headers: str) -> None:
        query: dict[str, int | str] = {} if after is None else {"after": after}
        query |= {"kind": kind} if kind else {}
        self._opened = client.stream("GET", "/v1/watch", params=query, headers=headers)

    def __enter__(self) -> Iterator[dict[str, str]]:
        return events(self._opened.__enter__().iter_lines())

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)


def jobs_until(stream: Iterator[dict[str, str]], last: str) -> list[str]:
    """Return the ids of the jobs in the events, up to `last`."""
    ids: list[str] = []
    while last not in ids:
        event = next(stream)
        if event["event"] == "job":
            ids.append(json.loads(event["data"])["id"])
    return ids


def lease_of(job_id: str, round_index: int) -> Lease:
    return Lease(
        job_id=job_id,
        generation=1,
        combination=(job_id,),
        accelerator_type="fast",
        worker_ids=("fast-0",),
        round_index=round_index,
        expires_at_s=NOW_S + 10,
    )


def test_a_stream_begins_with_where_it_is_and_tells_what_comes(service: Service) -> None:
    _, ann = service.user()
    with Following(ann) as stream:
        assert (hello := next(stream))["event"] == "hello" and int(hello["id"]) > 0
        job_id = submit(ann)
        event = next(stream)
        assert (event["event"], json.loads(event["data"])["id"]) == ("job", job_id)
        assert int(event["id"]) > int(hello["id"])
        assert json.loads(event["data"]) == ann.get(f"/v1/jobs/{job_id}").json()
        service.change(replace(service.store.job(job_id), state=JobState.FAILED, finished_at_s=NOW_S, exit_code=1))
        assert json.loads(next(stream)["data"])["state"] == "FAILED"


def test_each_user_hears_of_its_own_jobs_and_leases_and_an_operator_of_all(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    index = service.store.rounds(limit=1)[0].round_index + 1 if service.store.rounds() else 1
    with Following(ann) as hers, Following(bob) as his, Following(service.operator()) as all_of_it:
        for stream in (hers, his, all_of_it):
            assert next(stream)["event"] == "hello"
        job_id = submit(ann)
        service.change(round=a_record([lease_of(job_id, index)], {job_id: [1.0, 0.0]}, index))
        assert jobs_until(hers, job_id) == [job_id]
        leases = [json.loads(next(stream)["data"])["leases"] for stream in (hers, his)]
        assert [len(each) for each in leases] == [1, 0]
        assert jobs_until(all_of_it, job_id)[-1] == job_id
        data = {event["event"]: json.loads(event["data"]) for event in (next(all_of_it), next(all_of_it))}
        assert data["round"]["leases"][0]["job_id"] == job_id
        assert data["allocation"]["tiers"] == {"gold": [0.5, 0.0]} and data["allocation"]["policy"] == "hierarchical"


def test_what_concerns_one_user_only_ends_nobodys_stream(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    with Following(ann) as hers, Following(bob) as his:
        assert (next(hers)["event"], next(his)["event"]) == ("hello", "hello")
        for client, stream in ((ann, hers), (bob, his), (ann, hers)):
            job_id = submit(client)
            assert jobs_until(stream, job_id) == [job_id]


def test_what_is_read_up_to_a_position_is_not_read_again_after_it(service: Service) -> None:
    """A client that comes back while the reader is behind hears each event once: its past ends where that begins."""
    _, ann = service.user()
    services, audience = parts_of(service), Audience(user=None)
    begin = service.store.feed().position
    first, middle, last = submit(ann), service.store.feed().position, submit(ann)
    past = read_events(services, begin, [audience], middle)
    later = read_events(services, past.position, [audience])
    assert past.position == middle and later.position == later.newest
    assert first in past.events[audience].decode() and last not in past.events[audience].decode()
    assert last in later.events[audience].decode() and first not in later.events[audience].decode()


@pytest.mark.parametrize("how", ["header", "query"])
def test_who_comes_back_hears_what_was_missed_and_no_more(service: Service, how: str) -> None:
    _, ann = service.user()
    with Following(ann) as stream:
        position = next(stream)["id"]
    missed = [submit(ann) for _ in range(5)]
    again = Following(ann, **{"Last-Event-ID": position}) if how == "header" else Following(ann, int(position))
    with again as stream:
        assert jobs_until(stream, missed[-1]) == missed
        last = submit(ann)
        assert jobs_until(stream, last) == [last]


def test_only_the_last_event_of_a_commit_says_where_to_go_on(service: Service) -> None:
    _, ann = service.user()
    with Following(ann) as stream:
        next(stream)
        made = ann.post("/v1/jobs/array", json={"job": PROGRAM, "count": 3}).json()["items"]
        events = [next(stream) for _ in made]
    assert ["id" in event for event in events] == [False, False, True]


def test_a_page_hears_that_something_changed_in_one_small_event(service: Service) -> None:
    (_, ann), (_, bob) = service.user(), service.user()
    with Following(ann, kind="changed") as stream:
        next(stream)
        submit(bob)
        ann.post("/v1/jobs/array", json={"job": PROGRAM, "count": 3})
        event = next(stream)
    assert (event["event"], json.loads(event["data"])) == ("changed", {"items": 3}) and "id" in event


def test_a_position_of_another_database_is_said(service: Service) -> None:
    _, ann = service.user()
    with Following(ann, 2**50) as stream:
        assert next(stream)["event"] == "reset"
        job_id = submit(ann)
        assert jobs_until(stream, job_id) == [job_id]


def test_nothing_is_lost_while_many_submit_and_followers_come_and_go(service: Service) -> None:
    _, ann = service.user()
    start = int(service.store.feed().position)
    made: list[str] = []
    writer = threading.Thread(target=lambda: made.extend(submit(ann) for _ in range(60)))
    seen: dict[str, int] = {}
    position = start
    writer.start()
    while len(seen) < 60:
        with Following(ann, position) as stream:
            for event, _ in zip(stream, range(7), strict=False):  # then it breaks off, and comes back
                position = int(event.get("id", position))
                if event["event"] == "job":
                    seen[json.loads(event["data"])["id"]] = position
                if len(seen) == 60:
                    break
    writer.join()
    assert list(seen) == made


def test_a_client_that_does_not_keep_up_is_let_go_and_told_to_come_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = listeners.Listener(Audience(user=None), 5)
    monkeypatch.setattr(listeners, "BUFFERED_CHUNKS", 2)
    small = listeners.Listener(Audience(user=None), 5)
    for position in (6, 7, 8):
        small.offer(position, b"x")
        listener.offer(position, b"x")
    assert (small.is_behind, small.position, listener.is_behind) == (True, 7, False)


def test_there_is_room_for_so_many_and_the_next_is_told_to_come_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ann = service.user()
    monkeypatch.setattr(listeners, "STREAMS_MAX", 1)
    with Following(ann) as stream:
        next(stream)
        answer = ann.get("/v1/watch")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize("query", ["after=-1", "after=x", f"after={2**54}"])
def test_a_position_that_is_none_is_refused(service: Service, query: str) -> None:
    _, ann = service.user()
    answer = ann.get(f"/v1/watch?{query}")
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "query.after"


def test_the_reader_rests_when_nobody_listens(service: Service) -> None:
    services = parts_of(service)

    async def listen_and_leave() -> int | None:
        feed = listeners.LiveFeed(services)
        stream = feed.stream(Audience(user=None), None)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert feed._reader is not None
        await asyncio.wait_for(feed._reader, 20)
        return feed._position

    assert asyncio.run(listen_and_leave()) is None


def test_many_clients_hear_of_every_job_while_others_are_submitted(service: Service) -> None:
    _, ann = service.user()
    token = service.token("operator", Scope.OPERATOR)
    made: list[str] = []

    async def follow(client: httpx.AsyncClient, ready: asyncio.Semaphore) -> set[str]:
        seen: set[str] = set()
        async with client.stream("GET", "/v1/watch", params={"kind": "job"}) as answer:
            async for line in answer.aiter_lines():
                if line == "event: hello":
                    ready.release()
                if line.startswith("data: ") and '"id"' in line:
                    seen.add(json.loads(line.removeprefix("data: "))["id"])
                if len(made) == SUBMITTED and seen.issuperset(made):
                    return seen
        return seen

    async def all_of_them() -> list[set[str]]:
        limits, headers = httpx.Limits(max_connections=CLIENTS), {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=service.url, headers=headers, limits=limits, timeout=60) as client:
            ready = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(follow(client, ready)) for _ in range(CLIENTS)]
            for _ in tasks:
                await ready.acquire()
            await asyncio.to_thread(lambda: made.extend(submit(ann) for _ in range(SUBMITTED)))
            made_last = await asyncio.to_thread(submit, ann)  # whoever had seen all before `made` was known hears this
            assert made_last
            return await asyncio.gather(*tasks)

    assert all(seen.issuperset(made) for seen in asyncio.run(all_of_them()))
