"""The one thread that writes: it takes all queued writes, commits them together, then sets their results.

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

from sqlalchemy import Connection, Engine, func, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from gavel.errors import StoreUnavailable
from gavel.store.lost_commits import was_committed
from gavel.store.notices import notify
from gavel.store.revision import check_revision
from gavel.store.schema import CountersRow

T = TypeVar("T")
GROUP_ITEMS = 200
QUEUE_ITEMS = 2000
GATHER_S = 0.005  # about what a commit takes on a busy disk; it costs hardly more for twice the items


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open write transaction; rows that it writes carry its `change`.

    Since the change `alone_since` only this process has committed any.
    """

    connection: Connection
    change: int
    alone_since: int


class Together(Generic[T]):
    """A write that costs less when several of its kind are applied together."""

    @abstractmethod
    def __call__(self, tx: Transaction) -> T:
        """Apply this write alone."""

    @classmethod
    @abstractmethod
    def apply_all(cls, tx: Transaction, items: Sequence[Self]) -> list[T | Exception]:
        """Return the result or error of each item, as if they were applied one after the other.

        An item whose result is an error has written nothing. An exception undoes all of it, and the items are then
        applied one by one.
        """


@dataclass(frozen=True, slots=True)
class _Item:
    apply: Callable[[Transaction], Any]
    signals_change: bool
    answer: "Future[Any]" = field(default_factory=Future)


class Writer:
    """Does every write of a process, in the order in which the writes were queued.

    Its thread calls `on_change` after each commit that holds a change to signal, before it sets the results; the call
    must neither wait nor raise.
    """

    def __init__(
        self, engine: Engine, *, on_change: Callable[[], None] = lambda: None, queue_items: int = QUEUE_ITEMS
    ) -> None:
        self._engine = engine
        self._on_change = on_change
        self._queue: queue.Queue[_Item | None] = queue.Queue(maxsize=queue_items)
        self._door = threading.Lock()
        self._is_closed = False
        self._comes_many = False
        self._committed = self._alone_since = -1  # used by the thread only
        self._thread = threading.Thread(target=self._run, name="gavel-store-writer", daemon=True)
        self._thread.start()

    def write(self, apply: Callable[[Transaction], T], *, signals_change: bool = False) -> T:
        """Return the result of `apply` once it is committed. Raises its error, or StoreUnavailable: nothing is written.

        With `signals_change`, `on_change` is called, and on PostgreSQL other processes are notified of the commit.
        """
        return self.send(apply, signals_change=signals_change).result()

    def send(self, apply: Callable[[Transaction], T], *, signals_change: bool = False) -> "Future[T]":
        """Queue a write; the future is set once it is committed. Raises StoreUnavailable when it cannot be queued."""
        item = _Item(apply, signals_change)
        item.answer.set_running_or_notify_cancel()  # a caller that stops waiting cannot cancel it
        with self._door:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            try:
                self._queue.put_nowait(item)
            except queue.Full:
                raise StoreUnavailable(f"{self._queue.maxsize} writes wait already, try again later") from None
        return item.answer

    def close(self) -> None:
        """Write what is queued, then end the thread. Nothing can be queued afterwards."""
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
        """Return at least one item and those that wait behind it; under load, also those that come within a few ms."""
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
        applied: _Applied | None = None
        failure: Exception | None = None
        try:
            with self._engine.begin() as connection:
                applied = self._apply(connection, items)
        except Exception as error:
            failure = error
        refusal = self._refusal(applied, failure)
        if applied is None or refusal is not None:
            for item in items:
                item.answer.set_exception(refusal or StoreUnavailable("the database cannot take a write now"))
            return
        self._committed = applied.transaction.change
        if applied.signals_change:
            self._on_change()
        for item, outcome in zip(items, applied.outcomes, strict=True):
            if isinstance(outcome, Exception):
                item.answer.set_exception(outcome)
            else:
                item.answer.set_result(outcome)

    def _apply(self, connection: Connection, items: list[_Item]) -> "_Applied":
        transaction = self._open(connection)
        is_postgresql = connection.dialect.name == "postgresql"
        number = connection.execute(select(func.txid_current())).scalar_one() if is_postgresql else None
        outcomes = [outcome for run in _runs(items) for outcome in _attempt_all(run, transaction)]
        if signals_change := _signals_any(items, outcomes):
            notify(connection)
        return _Applied(transaction, number, outcomes, signals_change)

    def _refusal(self, applied: "_Applied | None", failure: Exception | None) -> StoreUnavailable | None:
        """Return the error for every item of a transaction that failed; None if it is committed all the same."""
        if failure is None:
            return None
        is_committed: bool | None = False
        if applied is not None and applied.transaction_id is not None:  # it failed while it was being committed
            is_committed = was_committed(self._engine, applied.transaction_id)
        if is_committed is None:
            return StoreUnavailable(
                "the connection to the database broke during a commit, and whether anything was written is not known: "
                "send the request again, with the same Idempotency-Key"
            )
        if is_committed:
            return None
        if isinstance(failure, StoreUnavailable):
            return failure
        return StoreUnavailable(f"the database cannot take a write now: {first_line(failure)}")

    def _open(self, connection: Connection) -> Transaction:
        """Increment the change first: on PostgreSQL this row's lock puts all writers of all processes in order."""
        change = connection.execute(_COUNT).scalar_one()
        check_revision(connection)
        if change != self._committed + 1:
            self._alone_since = change
        return Transaction(connection, change, self._alone_since)


@dataclass(frozen=True, slots=True)
class _Applied:
    """What a transaction has done, before its commit; `transaction_id` is PostgreSQL's."""

    transaction: Transaction
    transaction_id: int | None
    outcomes: list[Any]
    signals_change: bool


_COUNT = update(CountersRow).values(change=CountersRow.change + 1).returning(CountersRow.change)


def _runs(items: list[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in their order, in lists of those that can be applied together."""
    for _, run in groupby(items, lambda item: type(item.apply) if isinstance(item.apply, Together) else id(item)):
        yield list(run)


def _signals_any(items: list[_Item], outcomes: list[Any]) -> bool:
    """Return True if some successful item has a change to signal: a refused one has changed nothing."""
    pairs = zip(items, outcomes, strict=True)
    return any(item.signals_change and not isinstance(outcome, Exception) for item, outcome in pairs)


def _attempt_all(run: list[_Item], transaction: Transaction) -> list[Any]:
    """Return the result or error of each item of a run; apply them one by one if applying all together fails."""
    kind: Any = type(run[0].apply)
    together = _attempt(lambda tx: kind.apply_all(tx, [item.apply for item in run]), transaction) if run[1:] else None
    if isinstance(together, list):
        return together
    return [_attempt(item.apply, transaction) for item in run]


def _attempt(apply: Callable[[Transaction], Any], transaction: Transaction) -> Any:
    """Return the result or error of one write; its error undoes its own writes only.

    A failure of the database fails the whole group: it may have undone the transaction already, savepoint included, so
    that nothing is left to roll back to.
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


def first_line(error: Exception) -> str:
    """Return what the database said, without the statement that follows it."""
    return str(error).partition("\n")[0]
