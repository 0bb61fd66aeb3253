"""The asynchronous client has every call of the synchronous one, with the same results."""

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from gavel.client import AsyncClient, Client, GavelApiError, ServiceUnreachable, script
from gavel.client.script import Listing, Method
from gavel.types import JobState
from tests.api.conftest import NOW_S, Service, service

__all__ = ["service"]

PROGRAM = ["python", "train.py"]


@asynccontextmanager
async def ann(service: Service) -> AsyncIterator[AsyncClient]:
    name, _ = service.user("gold", "silver")
    async with AsyncClient(service.url, service.token(name)) as client:
        yield client


def as_ann(service: Service, scenario: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with ann(service) as client:
            await scenario(client)

    asyncio.run(run())


def end(service: Service, job_id: str) -> None:
    service.change(replace(service.store.job(job_id), state=JobState.COMPLETED, finished_at_s=NOW_S + 9))


def test_both_clients_have_the_same_calls_with_the_same_signatures() -> None:
    calls = {name for name, kind in inspect.getmembers(Client) if isinstance(kind, Method | Listing)}
    assert len(calls) > 40
    assert calls == {name for name, kind in inspect.getmembers(AsyncClient) if isinstance(kind, Method | Listing)}
    for name in calls:
        assert getattr(Client, name).__doc__, f"{name} says nothing about itself"
    assert list(inspect.signature(Client("http://x", "t").job).parameters) == ["self", "job_id"]


def test_a_job_is_submitted_listed_and_waited_for(service: Service) -> None:
    async def scenario(gavel: AsyncClient) -> None:
        job = await gavel.submit(argv=PROGRAM, total_steps=10, name="first")
        assert (job["state"], (await gavel.job(job["id"]))["name"]) == ("QUEUED", "first")
        assert [each["id"] async for each in gavel.jobs(tier="gold")] == [job["id"]]
        assert [event["kind"] async for event in gavel.events(job["id"])] == ["job.submitted"]
        with pytest.raises(TimeoutError, match="QUEUED"):
            await gavel.wait(job["id"], timeout_s=0)
        waiting = asyncio.create_task(gavel.wait(job["id"], timeout_s=20))
        end(service, job["id"])
        assert (await waiting)["state"] == "COMPLETED"

    as_ann(service, scenario)


def test_many_calls_are_under_way_at_a_time(service: Service) -> None:
    async def scenario(gavel: AsyncClient) -> None:
        made = await asyncio.gather(*(gavel.submit(argv=PROGRAM, total_steps=1, name=f"n{n}") for n in range(30)))
        assert len({job["id"] for job in made}) == 30
        assert {job["name"] async for job in gavel.jobs(limit=30)} == {f"n{n}" for n in range(30)}

    as_ann(service, scenario)


def test_a_refusal_is_the_same_exception(service: Service) -> None:
    async def scenario(gavel: AsyncClient) -> None:
        with pytest.raises(GavelApiError) as refused:
            await gavel.submit(argv=PROGRAM, total_steps=10, tier="platinum")
        assert (refused.value.status, refused.value.field) == (422, "tier")

    as_ann(service, scenario)


def test_logs_are_followed_to_the_end_of_the_job(service: Service) -> None:
    async def scenario(gavel: AsyncClient) -> None:
        job = await gavel.submit(argv=PROGRAM, total_steps=1)
        log = service.logs / job["id"]
        log.write_text("one\u2028still one\n")
        parts = gavel.read_logs(job["id"], follow=True)
        assert await anext(parts) == "one\u2028still one\n"
        log.write_text("one\u2028still one\ntwo\n")
        end(service, job["id"])
        assert "".join([part async for part in parts]) == "two\n"
        assert "".join([part async for part in gavel.read_logs(job["id"])]) == "one\u2028still one\ntwo\n"

    as_ann(service, scenario)


def test_what_happens_is_followed_and_taken_up_again(service: Service) -> None:
    async def scenario(gavel: AsyncClient) -> None:
        stream = gavel.watch()
        hello = await anext(stream)
        assert hello["event"] == "hello"
        job = await gavel.submit(argv=PROGRAM, total_steps=1)
        event = await anext(stream)
        assert (event["event"], event["data"]["id"], event["position"] > hello["position"]) == ("job", job["id"], True)
        await stream.aclose()  # type: ignore[attr-defined]
        again = gavel.watch(hello["position"])
        assert [(await anext(again))["event"], (await anext(again))["data"]["id"]] == ["hello", job["id"]]
        await again.aclose()  # type: ignore[attr-defined]

    as_ann(service, scenario)


class LosesAnswers(httpx.AsyncHTTPTransport):
    """Loses the first two answers after the service has acted."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str | None] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        self.keys.append(request.headers.get("Idempotency-Key"))
        if len(self.keys) <= 2:
            await answer.aclose()
            raise httpx.ReadError("the connection was reset")
        return answer


def test_a_submit_whose_answer_was_lost_makes_one_job(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "PAUSES_S", (0.0, 0.0))

    async def scenario(gavel: AsyncClient) -> None:
        wire = LosesAnswers()
        await gavel._http._transport.aclose()
        gavel._http._transport = wire
        job = await gavel.submit(argv=PROGRAM, total_steps=1)
        assert len(wire.keys) == 3 and len(set(wire.keys)) == 1
        assert [each["id"] async for each in gavel.jobs()] == [job["id"]]

    as_ann(service, scenario)


def test_nothing_listening_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def ask() -> None:
        async with AsyncClient(f"http://127.0.0.1:{port}/", "t") as gavel:
            await gavel.create_token("ann")

    with pytest.raises(ServiceUnreachable, match=str(port)):
        asyncio.run(ask())
