"""The writer's thread: bounded queue, order, groups."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gavel.errors import NotFound, StoreUnavailable
from gavel.store.database import open_database
from gavel.store.writer import Transaction, Writer


@pytest.fixture
def engine(database: Path) -> Iterator[Engine]:
    writer, reader = open_database(f"sqlite:///{database}", busy_timeout_s=5)
    yield writer
    writer.dispose()
    reader.dispose()


def test_a_full_queue_refuses_and_what_it_took_is_written(engine: Engine) -> None:
    writer = Writer(engine, queue_items=3)
    is_busy, may_go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> int:
        is_busy.set()
        assert may_go.wait(30)
        return tx.change

    with ThreadPoolExecutor(8) as pool:
        held = pool.submit(writer.write, hold)
        assert is_busy.wait(30)
        answers: list[Future[int]] = [pool.submit(writer.write, lambda tx: tx.change) for _ in range(7)]
        refused = list(islice(as_completed(answers, timeout=30), 4))  # the others wait behind the first
        may_go.set()
        taken = {each.result() for each in answers if each not in refused}
    assert all(isinstance(each.exception(), StoreUnavailable) for each in refused)
    assert taken == {held.result() + 1}  # one group
    writer.close()


def test_a_change_of_a_group_is_signalled_once_and_before_the_answers(engine: Engine) -> None:
    calls: list[str] = []
    writer = Writer(engine, on_change=lambda: calls.append("change"))
    is_busy, may_go = threading.Event(), threading.Event()

    def hold(_tx: Transaction) -> None:
        is_busy.set()
        assert may_go.wait(30)

    held = writer.send(hold)
    assert is_busy.wait(30)
    group = [writer.send(lambda tx: tx.change, signals_change=True) for _ in range(5)]
    group[-1].add_done_callback(lambda _: calls.append("answer"))
    may_go.set()
    assert len({each.result(30) for each in group}) == 1 and held.result(30) is None
    writer.close()
    assert calls == ["change", "answer"]


def test_what_is_refused_signals_no_change(engine: Engine) -> None:
    calls: list[str] = []
    writer = Writer(engine, on_change=lambda: calls.append("change"))

    def refuse(_tx: Transaction) -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound):
        writer.write(refuse, signals_change=True)
    writer.close()
    assert not calls


def test_closing_writes_what_is_queued(engine: Engine) -> None:
    writer = Writer(engine)
    is_busy, may_go = threading.Event(), threading.Event()

    def hold(_tx: Transaction) -> None:
        is_busy.set()
        assert may_go.wait(30)

    with ThreadPoolExecutor(4) as pool:
        held = pool.submit(writer.write, hold)
        assert is_busy.wait(30)
        queued = pool.submit(writer.write, lambda tx: tx.change)
        closing = pool.submit(writer.close)
        may_go.set()
        closing.result(30)
        held.result(30)
        try:
            assert queued.result(30) >= 1
        except StoreUnavailable as error:  # it came after the door had closed
            assert "closed" in str(error)


def test_a_failing_item_leaves_nothing_behind(engine: Engine) -> None:
    writer = Writer(engine)

    def half(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("INSERT INTO users VALUES ('half', '[]')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(half)
    assert writer.write(lambda tx: tx.connection.exec_driver_sql("SELECT count(*) FROM users").scalar()) == 0
    writer.close()


def test_a_failing_database_fails_the_group_and_the_thread_goes_on(engine: Engine) -> None:
    writer = Writer(engine)
    with pytest.raises(StoreUnavailable, match="no such table"):
        writer.write(lambda tx: tx.connection.exec_driver_sql("SELECT * FROM missing"))
    assert writer.write(lambda tx: tx.change) == 1
    writer.close()
