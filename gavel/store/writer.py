"""The one thread that writes: it takes what waits, commits it together, then answers everybody.

One commit for up to 200 items costs about as much as one for a single item, and no two writers of this process ever
wait for the database's lock.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from gavel.errors import StoreUnavailable
from gavel.store.notices import notify
from gavel.store.schema import CountersRow

T = TypeVar("T")
GROUP_ITEMS = 200
QUEUE_ITEMS = 2000


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open write transaction; rows that it writes carry its `change`."""

    connection: Connection
    change: int


@dataclass(frozen=True, slots=True)
class _Item:
    apply: Callable[[Transaction], Any]
    is_news: bool
    answer: "Future[Any]" = field(default_factory=Future)


class Writer:
    """Owns every write of a process. Items run in the order in which they came."""

    def __init__(self, engine: Engine, *, queue_items: int = QUEUE_ITEMS) -> None:
        self._engine = engine
        self._queue: queue.Queue[_Item | None] = queue.Queue(maxsize=queue_items)
        self._door = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="gavel-store-writer", daemon=True)
        self._thread.start()

    def write(self, apply: Callable[[Transaction], T], *, is_news: bool = False) -> T:
        """What `apply` returned, once it is committed. Raises what it raised, or StoreUnavailable: nothing written.

        `is_news`: other processes hear of the commit, where the database can tell them.
        """
        item = _Item(apply, is_news)
        with self._door:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._queue.put_nowait(item)
            except queue.Full:
                raise StoreUnavailable(f"{self._queue.maxsize} writes wait already, try again later") from None
        answer: T = item.answer.result()
        return answer

    def close(self) -> None:
        """Write what is queued, then end the thread. Nothing can be queued behind the end mark."""
        with self._door:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            group = self._take()
            items = [item for item in group if item is not None]
            is_open = len(items) == len(group)
            if items:
                self._commit(items)

    def _take(self) -> list[_Item | None]:
        """At least one item, and those that wait behind it."""
        group = [self._queue.get()]
        while len(group) < GROUP_ITEMS:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return group

    def _commit(self, items: list[_Item]) -> None:
        try:
            with self._engine.begin() as connection:
                transaction = _open(connection)
                outcomes = [_attempt(item, transaction) for item in items]
                if any(item.is_news for item in items):
                    notify(connection)
        except Exception as error:  # whatever it was, nothing was committed, and everybody must be told
            for item in items:
                item.answer.set_exception(
                    StoreUnavailable(f"the database cannot take a write now: {_first_line(error)}")
                )
            return
        for item, (result, problem) in zip(items, outcomes, strict=True):
            if problem is None:
                item.answer.set_result(result)
            else:
                item.answer.set_exception(problem)


def _open(connection: Connection) -> Transaction:
    """Count the change first: on PostgreSQL this row's lock puts all writers of all processes in order."""
    count = update(CountersRow).values(change=CountersRow.change + 1).returning(CountersRow.change)
    return Transaction(connection, connection.execute(count).scalar_one())


def _attempt(item: _Item, transaction: Transaction) -> tuple[Any, Exception | None]:
    """Result or error of one item; its error undoes its own writes only. A failing database fails the whole group.

    Such a failure may have undone the transaction already, savepoint included: nothing is left to roll back to.
    """
    savepoint = transaction.connection.begin_nested()
    try:
        result = item.apply(transaction)
        savepoint.commit()
    except Exception as error:
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError):
            raise
        savepoint.rollback()
        return None, error
    return result, None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
