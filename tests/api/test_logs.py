"""Logs: bytes from an offset, and followed as events that can be resumed."""

import json
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.routes.logs import followers
from gavel.types import JobState
from tests.api.conftest import NOW_S, Service, wait_until

PROGRAM = {"argv": ["python", "train.py"], "total_steps": 100}
HOSTILE = b"<script>alert(1)</script>\x1b[2J\x00\xff\xfe\r\ndata: forged\n\nevent: end\n\xf0\x9f\x98\x80 done\n"


@pytest.fixture(scope="module")
def job(service: Service) -> tuple[httpx.Client, str]:
    _, ann = service.user()
    return ann, str(ann.post("/v1/jobs", json=PROGRAM).json()["id"])


def finish(service: Service, job_id: str) -> None:
    service.change(replace(service.store.job(job_id), state=JobState.FAILED, finished_at_s=NOW_S, exit_code=1))


def submit(service: Service, log: bytes = b"") -> tuple[httpx.Client, str]:
    _, ann = service.user()
    job_id = str(ann.post("/v1/jobs", json=PROGRAM).json()["id"])
    (service.logs / job_id).write_bytes(log)
    return ann, job_id


def events(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Server-sent events, as the standard reads them."""
    event: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.removeprefix(" ")
        elif event:
            yield event
            event = {}


def follow(client: httpx.Client, job_id: str, **headers: str) -> list[dict[str, str]]:
    with client.stream("GET", f"/v1/jobs/{job_id}/logs?follow=true", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(events(answer.iter_lines()))


def test_a_long_log_is_downloaded_whole(service: Service) -> None:
    log = b"".join(b"step %d\n" % step for step in range(200_000))
    ann, job_id = submit(service, log)
    answer = ann.get(f"/v1/jobs/{job_id}/logs?whole=true")
    assert len(log) > 1 << 20 and answer.content == log
    assert answer.headers["content-disposition"] == f'attachment; filename="{job_id}.log"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ann.get(f"/v1/jobs/{job_id}/logs?whole=true&offset=7").content == log[7:]


def test_hostile_bytes_arrive_as_they_are_and_as_plain_text(service: Service) -> None:
    ann, job_id = submit(service, HOSTILE)
    answer = ann.get(f"/v1/jobs/{job_id}/logs")
    assert answer.content == HOSTILE
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-next-offset"] == str(len(HOSTILE))


def test_a_log_is_read_in_pieces(service: Service) -> None:
    ann, job_id = submit(service, bytes(range(256)) * 10)
    read, offset = b"", 0
    while piece := ann.get(f"/v1/jobs/{job_id}/logs", params={"offset": offset, "limit": 1000}):
        if not piece.content:
            break
        read, offset = read + piece.content, int(piece.headers["x-next-offset"])
    assert read == bytes(range(256)) * 10


@pytest.mark.parametrize("query", ["offset=-1", "limit=0", "limit=1048577", "offset=x", "follow=perhaps"])
def test_a_log_asked_for_wrongly_says_what_is_wrong(job: tuple[httpx.Client, str], query: str) -> None:
    ann, job_id = job
    answer = ann.get(f"/v1/jobs/{job_id}/logs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"query.{query.split('=', maxsplit=1)[0]}"


def test_a_followed_log_ends_when_the_job_has_ended_and_all_is_read(service: Service) -> None:
    ann, job_id = submit(service, HOSTILE)
    finish(service, job_id)
    *log, end = follow(ann, job_id)
    assert {each["event"] for each in log} == {"log"}
    assert "".join(json.loads(each["data"])["text"] for each in log) == HOSTILE.decode(errors="replace")
    assert (end["event"], json.loads(end["data"]), end["id"]) == ("end", {"state": "FAILED"}, str(len(HOSTILE)))


def test_lines_written_while_one_follows_arrive(service: Service) -> None:
    ann, job_id = submit(service)
    with ann.stream("GET", f"/v1/jobs/{job_id}/logs?follow=true") as answer:
        stream = events(answer.iter_lines())
        for text in ("one\n", "two\n"):
            with (service.logs / job_id).open("a") as log:
                log.write(text)
            assert json.loads(next(stream)["data"]) == {"text": text}
        finish(service, job_id)
        assert next(stream)["event"] == "end"


def test_a_follower_that_comes_back_goes_on_where_it_was(service: Service) -> None:
    ann, job_id = submit(service, b"seen\nunseen\n")
    finish(service, job_id)
    log, _ = follow(ann, job_id, **{"Last-Event-ID": "5"})
    assert json.loads(log["data"]) == {"text": "unseen\n"}
    assert [each["event"] for each in follow(ann, job_id, **{"Last-Event-ID": "12"})] == ["end"]


def test_half_a_character_waits_for_its_other_half(service: Service) -> None:
    ann, job_id = submit(service, "é".encode()[:1])
    with ann.stream("GET", f"/v1/jobs/{job_id}/logs?follow=true") as answer:
        stream = events(answer.iter_lines())
        with (service.logs / job_id).open("ab") as log:
            log.write("é".encode()[1:] + "日".encode()[:2])
        first = next(stream)
        assert (json.loads(first["data"]), first["id"]) == ({"text": "é"}, "2")
        finish(service, job_id)
        last = next(stream)
        assert json.loads(last["data"]) == {"text": "\ufffd"}


def test_there_is_room_for_so_many_followers_and_the_next_is_told_to_come_again(service: Service) -> None:
    ann, job_id = submit(service)
    finish(service, job_id)
    taken = 0
    while followers.acquire(blocking=False):
        taken += 1
    try:
        answer = ann.get(f"/v1/jobs/{job_id}/logs?follow=true")
        assert "retry: 5000" in answer.text
        assert "event: end" not in answer.text
    finally:
        for _ in range(taken):
            followers.release()
    assert taken > 1
    assert follow(ann, job_id)[-1]["event"] == "end"


def test_a_follower_that_leaves_makes_room(service: Service) -> None:
    ann, job_id = submit(service, b"x")
    before = followers._value
    with ann.stream("GET", f"/v1/jobs/{job_id}/logs?follow=true") as answer:
        lines = answer.iter_lines()
        next(lines)
        assert followers._value == before - 1
    wait_until(lambda: followers._value == before)


@settings(max_examples=15)
@given(content=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=3))
def test_whatever_is_resumed_wherever_an_event_ended_is_the_whole_log(
    service: Service, ended: tuple[httpx.Client, str], content: bytes, cuts: list[int]
) -> None:
    ann, job_id = ended
    (service.logs / job_id).write_bytes(content)
    *log, _ = follow(ann, job_id)
    assert "".join(json.loads(each["data"])["text"] for each in log) == content.decode(errors="replace")
    for each in log:
        rest, *_ = [*follow(ann, job_id, **{"Last-Event-ID": each["id"]})[:-1], None]
        after = content[int(each["id"]) :].decode(errors="replace")
        assert (json.loads(rest["data"])["text"] if rest else "") == after


@pytest.fixture(scope="module")
def ended(service: Service) -> tuple[httpx.Client, str]:
    ann, job_id = submit(service)
    finish(service, job_id)
    return ann, job_id
