"""Streams of events: parsed from chunks of any size, and resumed after a lost connection."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client import Client, GavelApiError, ServiceUnreachable, events, script
from gavel.client.events import EventReader, ServerEvent
from gavel.types import JobState
from tests.api.conftest import NOW_S, Service, service

__all__ = ["service"]

PROGRAM = ["python", "train.py"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@given(
    sent=st.lists(st.tuples(TEXT, st.integers(1, 99)), max_size=6),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_events_are_the_same_in_whatever_pieces_they_come(
    sent: list[tuple[str, int]], ending: str, cuts: list[int]
) -> None:
    lines = [line for text, at in sent for line in (": here", "event: log", f"data: {text}", f"id: {at}", "")]
    wire = ("".join(line + ending for line in lines) + ending).encode()
    edges = sorted({0, *(cut % (len(wire) + 1) for cut in cuts), len(wire)})
    reader = EventReader()
    received = [event for start, stop in pairwise(edges) for event in reader.feed(wire[start:stop])]
    assert received == [ServerEvent("log", text, str(at)) for text, at in sent]
    assert reader.last_id == (str(sent[-1][1]) if sent else "")


def test_a_sign_of_life_moves_the_position_and_a_retry_is_heeded_once() -> None:
    reader = EventReader()
    assert list(reader.feed(b": here\nid: 7\n\nretry: 5000\n: come again\n\nevent: half")) == []
    assert (reader.last_id, reader.begin_again(), reader.begin_again()) == ("7", 5.0, 1.0)
    assert list(reader.feed(b"data: a\ndata: b\n\n")) == [ServerEvent("message", "a\nb", "7")]


class Breaking(httpx.BaseTransport):
    """Cuts each stream after `piece` bytes; refuses connections while `is_down`."""

    def __init__(self, piece: int) -> None:
        self.piece = piece
        self.through = httpx.HTTPTransport()
        self.resumed: list[str | None] = []
        self.down_for = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.down_for:
            self.down_for -= 1
            raise httpx.ConnectError("refused")
        answer = self.through.handle_request(request)
        if "event-stream" not in answer.headers.get("content-type", ""):
            return answer
        self.resumed.append(request.headers.get("Last-Event-ID"))
        assert isinstance(answer.stream, httpx.SyncByteStream)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=Cut(answer.stream, self.piece))

    def close(self) -> None:
        self.through.close()


class Cut(httpx.SyncByteStream):
    """The first bytes of a stream, then a broken connection."""

    def __init__(self, whole: httpx.SyncByteStream, piece: int) -> None:
        self.whole = whole
        self.left = piece

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.whole:
            yield chunk[: self.left]
            self.left -= len(chunk)
            if self.left <= 0:
                raise httpx.ReadError("the connection was reset")

    def close(self) -> None:
        self.whole.close()


@pytest.fixture
def breaking(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Breaking]]:
    monkeypatch.setattr(script, "PAUSES_S", (0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(events, "RETRY_S", 0.0)
    name, _ = service.user()
    wire = Breaking(piece=2000)
    with Client(service.url, service.token(name)) as client:
        client._http._transport.close()
        client._http._transport = wire
        yield client, wire


def test_a_log_that_breaks_off_goes_on_with_every_character_once(
    service: Service, breaking: tuple[Client, Breaking]
) -> None:
    client, wire = breaking
    job = client.submit(argv=PROGRAM, total_steps=1)
    text = "".join(f"étape {n}\n" for n in range(20_000))
    (service.logs / job["id"]).write_text(text)
    service.change(replace(service.store.job(job["id"]), state=JobState.COMPLETED, finished_at_s=NOW_S))
    wire.piece = 150_000
    assert "".join(client.read_logs(job["id"], follow=True)) == text
    assert len(wire.resumed) > 1 and wire.resumed[0] is None and wire.resumed[1]


def test_events_that_break_off_are_taken_up_with_none_missed(breaking: tuple[Client, Breaking]) -> None:
    client, wire = breaking
    stream = client.watch()
    assert next(stream)["event"] == "hello"
    made = [client.submit(argv=PROGRAM, total_steps=1)["id"] for _ in range(12)]
    seen: list[str] = []
    for event in stream:
        if event["event"] == "job" and event["data"]["id"] not in seen:
            seen.append(event["data"]["id"])
        if len(seen) == len(made):
            break
    assert seen == made and len(wire.resumed) > 3


def test_a_service_that_is_started_again_is_found_again_and_one_that_never_answered_is_not_looked_for(
    breaking: tuple[Client, Breaking],
) -> None:
    client, wire = breaking
    stream = client.watch()
    position = next(stream)["position"]
    job = client.submit(argv=PROGRAM, total_steps=1)
    wire.down_for = 20
    assert next(event["data"]["id"] for event in islice(stream, 4) if event["event"] == "job") == job["id"]
    wire.down_for = 10_000
    with pytest.raises(ServiceUnreachable):
        next(client.watch(position))
    assert wire.down_for > 9_900


def test_a_refused_stream_says_why(service: Service) -> None:
    with Client(service.url, "nobody") as client:
        with pytest.raises(GavelApiError, match="401"):
            next(client.watch())
        with pytest.raises(GavelApiError, match="401"):
            next(client.read_logs("x", follow=True))


def test_the_client_reads_what_the_service_sends_as_json(breaking: tuple[Client, Breaking]) -> None:
    client, _ = breaking
    job = client.submit(argv=PROGRAM, total_steps=1, labels={"a": "b"})
    job_event = next(event for event in client.watch(0) if event["data"].get("id") == job["id"])
    assert json.loads(json.dumps(job_event["data"])) == client.job(job["id"]) | {"state": "QUEUED"}
    counted = next(event for event in client.watch(0, kinds=["changed"]) if event["event"] != "hello")
    assert counted["event"] == "changed"
    assert events.SILENCE_S > 15
