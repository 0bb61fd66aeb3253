"""Who gets the orders of an agent over the API, and what an agent may send."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gavel.backends.nodes.connection import Access, ConnectedBox, FetchedPack
from gavel.backends.nodes.letters import FilePack, Reply
from gavel.backends.nodes.protocol import Answer, CodeAsked, CodeGiven, Order
from gavel.backends.nodes.relay import LAST, MORE, PART_BYTES, REPLY_BYTES, made_key
from gavel.config import Settings
from tests.api.conftest import Service, wait_until
from tests.backends.connected import an_allocation, an_api
from tests.nginx import a_certificate, free_port, nginx

GIVEN = CodeGiven(asked=CodeAsked(digest="0" * 64), pack=FilePack("/elsewhere/packs/12"))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with an_api(tmp_path_factory.mktemp("api")) as made:
        yield made


@contextmanager
def while_running(work: Callable[[], None]) -> Iterator[None]:
    running = threading.Thread(target=work)
    running.start()
    yield
    running.join(10.0)


def opened(access: Access) -> ClientConnection:
    return connect(access.url.replace("http", "ws", 1), additional_headers=access.headers, proxy=None)


def refused(access: Access) -> int:
    with pytest.raises(InvalidStatus) as error:
        opened(access)
    return error.value.response.status_code


def test_only_the_key_of_the_allocation_opens_it(api: Service) -> None:
    """1 no key, 2 a wrong one, 3 that of another gang, 4 an operator's token, 5 names that lead elsewhere."""
    made, access = an_allocation(api)
    other, foreign = an_allocation(api)
    operator = api.operator().headers["authorization"].split()[1]
    assert [refused(replace(access, key=key)) for key in ("", "x", foreign.key, operator)] == [401] * 4
    for name in ("..%2F..%2Fstate", ".hidden", "%00", f"..%2Fallocations%2F{made.folder.name}", "x" * 301):
        assert refused(replace(access, url=access.url.replace(made.folder.name, name))) in (401, 403, 404, 422)
        assert refused(replace(access, url=access.url.removesuffix("n0") + name)) in (401, 403, 404, 422)
    opened(access).close()
    other.remove()
    assert (refused(foreign), refused(access.__class__(url=access.url, key="x"))) == (410, 401)


def test_where_orders_are_files_nobody_connects(service: Service) -> None:
    assert refused(Access(url=f"{service.url}/v1/orders/j1.1.ab/n0", key="x")) == 404


def test_letters_come_and_replies_go_and_the_end_is_told(api: Service) -> None:
    made, access = an_allocation(api)
    seat = made.seats["n0"]
    with closing(ConnectedBox(access)) as box:
        wait_until(lambda: box.letter() == seat.letter and box.epoch() == 1000)
        seat.write(Order(epoch=1000, keep_code_s=7.0))
        wait_until(lambda: box.letter() == seat.letter)
        reply = Reply(number=1, beat=1, answer=Answer(boot_id="b" * 3 * PART_BYTES, node_boottime_s=1.0))
        box.answer(reply)
        wait_until(lambda: seat.look() is None and seat.reply == reply)
        assert not box.is_gone()
        made.remove()
        wait_until(box.is_gone)
        assert box.letter() is None


def test_an_allocation_into_which_replies_are_written_goes_at_once(api: Service) -> None:
    """Deleted file by file, its folder would stay if another file came between; and its agent would never be told."""
    for _ in range(20):
        made, _ = an_allocation(api)
        folder, is_over = made.folder / "n0", threading.Event()

        def write(folder: Path = folder, is_over: threading.Event = is_over) -> None:
            for number in itertools.count():
                if is_over.is_set():
                    return
                with suppress(OSError):
                    (folder / f"reply.{number}").write_bytes(b"x")

        with while_running(write):
            wait_until(lambda folder=folder: len(list(folder.glob("reply.*"))) > 5)
            made.remove()
            is_over.set()
        assert not made.folder.exists()


def test_code_comes_with_the_key_of_the_allocation(api: Service) -> None:
    made, access = an_allocation(api)
    packs = made.folder.parents[1] / "packs"
    packs.mkdir()
    (packs / "12").write_bytes(b"chunks")
    made.seats["n0"].write(Order(epoch=1000, code=(GIVEN,)))
    with closing(ConnectedBox(access)) as box:
        wait_until(lambda: (letter := box.letter()) is not None and bool(letter.order.code))
        letter = box.letter()
        assert letter is not None and letter.order.code[0].pack is not None
        assert letter.order.code[0].pack.read(10.0) == b"chunks"
    for wrong in (FetchedPack(replace(access, key="x"), "12"), FetchedPack(access, "13"), FetchedPack(access, "../12")):
        with pytest.raises(httpx.HTTPStatusError):
            wrong.read(10.0)


def test_what_is_no_reply_ends_the_connection_and_changes_nothing(api: Service) -> None:
    """1 no part, 2 more than a reply may have, 3 a message that is too large; 4 what none of us wrote is no reply."""
    made, access = an_allocation(api)
    seat = made.seats["n0"]
    for messages in ([b"x"], [MORE + bytes(PART_BYTES)] * (REPLY_BYTES // PART_BYTES + 1), [bytes(2 << 20)], ["text"]):
        with opened(access) as there, pytest.raises(ConnectionClosed):
            for message in messages:
                there.send(message)
            while True:
                there.recv(timeout=30.0)
    with opened(access) as there:
        there.send(LAST + b"hello")
        wait_until(lambda: (made.folder / "n0" / "reply").read_bytes() == b"hello")
    seat.look()
    assert seat.reply is None


def test_the_newer_connection_of_an_agent_ends_the_older_one(api: Service) -> None:
    made, access = an_allocation(api)
    with opened(access) as older:
        older.recv(timeout=30.0)
        with opened(access) as newer:
            newer.recv(timeout=30.0)
            with pytest.raises(ConnectionClosed):
                older.recv(timeout=30.0)
            made.seats["n0"].write(Order(epoch=1000, keep_code_s=8.0))
            assert b"gavel" in newer.recv(timeout=30.0)


def test_an_agent_connects_by_tls_and_only_to_a_service_that_it_can_check(api: Service, tmp_path: Path) -> None:
    made, access = an_allocation(api)
    port = free_port()
    with nginx(tmp_path, int(api.url.rpartition(":")[2]), port):
        url = access.url.replace(api.url, f"https://localhost:{port}")
        trusted = replace(access, url=url, certificates=(tmp_path / "cert.pem").read_text())
        strange = tmp_path / "strange"
        strange.mkdir()
        doubted = replace(trusted, certificates=a_certificate(strange)[0].read_text())
        with closing(ConnectedBox(trusted)) as box, closing(ConnectedBox(doubted)) as other:
            wait_until(lambda: box.letter() == made.seats["n0"].letter)
            assert other.letter() is None


def test_a_new_key_takes_the_place_of_the_old_one(api: Service) -> None:
    made, access = an_allocation(api)
    newer = replace(access, key=made_key(made.folder))
    assert refused(access) == 401
    opened(newer).close()


def test_connections_need_an_address_that_nodes_reach() -> None:
    section = {"orders": "connection"}
    with pytest.raises(ValidationError, match="public_url"):
        Settings(backend="kubernetes", kubernetes=section)  # type: ignore[arg-type]
    assert Settings(kubernetes=section).orders_dir is None  # type: ignore[arg-type]
