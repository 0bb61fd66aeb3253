"""Calls to regions and copies between them, in virtual time."""

import errno
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from gavel.backends.several.calls import Calls

T = TypeVar("T")
COPIED_WITHIN_S = 4.0
LOOK_AGAIN_S = 1.0
Later = Callable[[float, Callable[[], None]], None]
"""Does something at an instant of true time, as the process that asks for it, unless that has ended by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Until when (true time) calls arrive late, and until when those that have arrived are answered late."""

    calls_until_s: float = 0.0
    answers_until_s: float = 0.0


class SimulatedCalls(Calls):
    """Makes each call at once, unless it is held up."""

    def __init__(self, later: Later, true_s: Callable[[], float], held_up: Callable[[], HeldUp]) -> None:
        self._later, self._true_s, self._held_up = later, true_s, held_up

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Make the call, now or late; return what it will answer."""
        answer = Future[T]()
        if self._held_up().calls_until_s > self._true_s():
            self._once(lambda: self._held_up().calls_until_s, lambda: answer.set_result(work()))
        else:
            answered = work()
            self._once(lambda: self._held_up().answers_until_s, lambda: answer.set_result(answered))
        return answer

    def _once(self, until_s: Callable[[], float], act: Callable[[], None]) -> None:
        """Act once it is not held up any more: what does so may end earlier than it was to, with all other faults."""
        if until_s() <= self._true_s():
            act()
        else:
            self._later(min(until_s(), self._true_s() + LOOK_AGAIN_S), lambda: self._once(until_s, act))

    def end(self, last: Callable[[], None]) -> None:
        """Do what is to be done at the end."""
        last()

    def wait_ended(self) -> None:
        """Return: the end is over."""


class SimulatedCopying(Executor):
    """Makes each copy after a few seconds; it fails while disks are full."""

    def __init__(self, later: Later, true_s: Callable[[], float], is_full: Callable[[], bool], seed: str) -> None:
        self._later, self._true_s, self._is_full = later, true_s, is_full
        self._chance = Random(seed)  # noqa: S311 - not for secrets
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a copy; return what will come of it."""
        copy = Future[Any]()
        self._later(self._true_s() + self._chance.uniform(0.1, COPIED_WITHIN_S), lambda: self._make(copy, fn, args))
        return copy

    def _make(self, copy: Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._is_closed:
            return
        try:
            if self._is_full():
                raise OSError(errno.ENOSPC, "the disk is full")
            copy.set_result(work(*args))
        except Exception as problem:  # whatever it is, the one who waits for the copy is told
            copy.set_exception(problem)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Make no more copies."""
        self._is_closed = True
