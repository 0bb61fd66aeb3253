"""The one thread that writes: it takes what waits, commits it together, then answers everybody.

One commit for up to 200 items costs about as much as one for a single item, and no two writers of this process ever
wait for the database's lock. Items of one kind that come in a row may be applied together, see `Together`.
"""

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import Connection, Engine, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from gavel.errors import StoreUnavailable
from gavel.store.notices import notify
from gavel.store.schema import CountersRow

T = TypeVar("T")
GROUP_ITEMS = 200
QUEUE_ITEMS = 2000
GATHER_S = 0.005  # about what a commit takes on a busy disk; it costs hardly more for twice the items


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open write transaction; rows that it writes carry its `change`.

    From the change `alone_since` on nobody but this process has committed one.
    """

    connection: Connection
    change: int
    alone_since: int


class Together(Generic[T]):
    """A write that is cheaper in company."""

    @abstractmethod
    def __call__(self, tx: Transaction) -> T:
        """Apply this one alone."""

    @classmethod
    @abstractmethod
    def apply_all(cls, tx: Transaction, items: Sequence[Self]) -> list[T | Exception]:
        """Result or error of each: what calling one after the other would have come to. An error has written nothing.

        Whatever it raises undoes all of it, and the items are applied one by one.
        """


@dataclass(frozen=True, slots=True)
class _Item:
    apply: Callable[[Transaction], Any]
    is_news: bool
    answer: "Future[Any]" = field(default_factory=Future)


class Writer:
    """Owns every write of a process. Items run in the order in which they came.

    `on_news` is called by its thread after each commit that has news, before the answers; it must neither wait nor
    raise.
    """

    def __init__(
        self, engine: Engine, *, on_news: Callable[[], None] = lambda: None, queue_items: int = QUEUE_ITEMS
    ) -> None:
        self._engine = engine
        self._on_news = on_news
        self._queue: queue.Queue[_Item | None] = queue.Queue(maxsize=queue_items)
        self._door = threading.Lock()
        self._is_closed = False
        self._comes_many = False
        self._committed = self._alone_since = -1  # the thread's
        self._thread = threading.Thread(target=self._run, name="gavel-store-writer", daemon=True)
        self._thread.start()

    def write(self, apply: Callable[[Transaction], T], *, is_news: bool = False) -> T:
        """What `apply` returned, once it is committed. Raises what it raised, or StoreUnavailable: nothing written.

        `is_news`: `on_news` is called, and other processes hear of the commit where the database can tell them.
        """
        return self.send(apply, is_news=is_news).result()

    def send(self, apply: Callable[[Transaction], T], *, is_news: bool = False) -> "Future[T]":
        """The same without waiting: the answer comes once it is committed. Raises StoreUnavailable: not queued."""
        item = _Item(apply, is_news)
        item.answer.set_running_or_notify_cancel()  # who no longer waits for it cannot take it back
        with self._door:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._queue.put_nowait(item)
            except queue.Full:
                raise StoreUnavailable(f"{self._queue.maxsize} writes wait already, try again later") from None
        return item.answer

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
        """At least one item, and those that wait behind it; where many come, also those of a moment more."""
        group = [self._queue.get()]
        if self._comes_many:
            time.sleep(GATHER_S)
        while len(group) < GROUP_ITEMS:
            try:
                group.append(self._queue.get_nowait())
            except queue.Empty:
                break
        self._comes_many = len(group) > 1
        return group

    def _commit(self, items: list[_Item]) -> None:
        try:
            with self._engine.begin() as connection:
                transaction = self._open(connection)
                outcomes = [outcome for run in _runs(items) for outcome in _attempt_all(run, transaction)]
                if is_news := _any_news(items, outcomes):
                    notify(connection)
        except Exception as error:  # whatever it was, nothing was committed, and everybody must be told
            for item in items:
                item.answer.set_exception(
                    StoreUnavailable(f"the database cannot take a write now: {_first_line(error)}")
                )
            return
        self._committed = transaction.change
        if is_news:
            self._on_news()
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Exception):
                item.answer.set_exception(outcome)
            else:
                item.answer.set_result(outcome)

    def _open(self, connection: Connection) -> Transaction:
        """Count the change first: on PostgreSQL this row's lock puts all writers of all processes in order."""
        change = connection.execute(_COUNT).scalar_one()
        if change != self._committed + 1:
            self._alone_since = change
        return Transaction(connection, change, self._alone_since)


_COUNT = update(CountersRow).values(change=CountersRow.change + 1).returning(CountersRow.change)


def _runs(items: list[_Item]) -> Iterator[list[_Item]]:
    """The items in their order, those that can be applied together in one list."""
    for _, run in groupby(items, lambda item: type(item.apply) if isinstance(item.apply, Together) else id(item)):
        yield list(run)


def _any_news(items: list[_Item], outcomes: list[Any]) -> bool:
    """Whether anybody else has to hear of it: a refusal has changed nothing."""
    pairs = zip(items, outcomes, strict=True)
    return any(item.is_news and not isinstance(outcome, Exception) for item, outcome in pairs)


def _attempt_all(run: list[_Item], transaction: Transaction) -> list[Any]:
    """Result or error of each item of a run; one by one if together does not go."""
    kind: Any = type(run[0].apply)
    together = _attempt(lambda tx: kind.apply_all(tx, [item.apply for item in run]), transaction) if run[1:] else None
    if isinstance(together, list):
        return together
    return [_attempt(item.apply, transaction) for item in run]


def _attempt(apply: Callable[[Transaction], Any], transaction: Transaction) -> Any:
    """Result or error of one write; its error undoes its own writes only. A failing database fails the whole group.

    Such a failure may have undone the transaction already, savepoint included: nothing is left to roll back to.
    """
    savepoint = transaction.connection.begin_nested()
    try:
        result = apply(transaction)
        savepoint.commit()
    except Exception as error:
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError):
            raise
        savepoint.rollback()
        return error
    return result


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
