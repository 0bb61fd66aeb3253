"""Where calls to one region are made: in a thread of its own, so that one that hangs holds up nobody else."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

T = TypeVar("T")
CLOSE_LIMIT_S = 5.0


class Calls(Protocol):
    """Makes the calls that are begun one after another; the simulation of faults makes them in virtual time."""

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Return what the call will answer."""

    def end(self, last: Callable[[], None]) -> None:
        """Take no more calls, and do `last` once the call in progress is over."""

    def wait_ended(self) -> None:
        """Return once `last` is done; after a while in any case."""


class CallThread:
    """Makes calls in a thread."""

    def __init__(self, region: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"gavel-region-{region}", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Return what the call will answer; `work` raises nothing."""
        answer = Future[T]()
        self._work.put(lambda: answer.set_result(work()))
        return answer

    def end(self, last: Callable[[], None]) -> None:
        """Take no more calls, and do `last` once the call in progress is over."""
        self._work.put(lambda: self._end(last))

    def _end(self, last: Callable[[], None]) -> None:
        self._has_ended = True
        last()

    def wait_ended(self) -> None:
        """Return once `last` is done; after a while in any case, for a link that hangs."""
        self._thread.join(CLOSE_LIMIT_S)

    def _run(self) -> None:
        while not self._has_ended:
            self._work.get()()
