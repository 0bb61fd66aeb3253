"""The scheduler's process as the API's process sees it: started, heard, started again when it ends, stopped.

The two share no memory. What is decided goes through the database; over a socket pair the child only says who leads and
what is wrong. It dies with the thread that started it, so with its parent however that ends; asked, it ends in order.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Pipe

import structlog

from gavel.config import Settings
from gavel.errors import BackendUnavailable

log = structlog.get_logger("gavel.scheduler_process")

STOP = "stop"
STOP_LIMIT_S = 10.0
BURY_LIMIT_S = 2.0  # from the end of what it says to its end
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
STEADY_S = 60.0  # who has lived so long did not end at once: the next pause is a short one again


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the child is started with; `url` is where the API listens."""

    settings: Settings
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """What a scheduler says of itself: does it lead, what halted its planning, what is wrong with its cluster."""

    leads: bool = False
    halted: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """It cannot start, and why."""

    reason: str


Message = str | SchedulerState | Refusal
"""A line for whoever runs the service; how it is now; or its last word."""


class Ends:
    """How schedulers ended unasked, and how long to wait before the next one. Instants are on one monotonic clock."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._story, self._until_s = "", inf

    def add(self, how: str, *, lived_s: float) -> float:
        """Seconds to wait: a second, doubled up to a minute with each that did not live for a minute."""
        is_first = lived_s >= STEADY_S or not self._pause_s
        self._pause_s = FIRST_PAUSE_S if is_first else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._story, self._until_s = f"{how}; the next one starts {self._pause_s:g} s later", inf
        return self._pause_s

    def start_again(self, now_s: float) -> None:
        """The next one is started now: in a minute all of it is forgotten."""
        self._until_s = now_s + STEADY_S

    def story(self, now_s: float) -> str:
        """What happened last, while that is news; empty: nothing did."""
        return self._story if now_s < self._until_s else ""


class Child:
    """One such process. `messages` and `bury` are for one thread, `stop` and `kill` for any."""

    def __init__(self, order: Order) -> None:
        """Raises OSError if no process can be had."""
        self._connection, theirs = Pipe(duplex=True)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gavel.daemon.scheduling", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C in the service's terminal is for the service to handle
            )
        self._connection.send(order)

    def messages(self) -> Iterator[Message]:
        """What it says until it ends."""
        with suppress(EOFError, OSError):
            while True:
                yield self._connection.recv()

    def stop(self) -> None:
        """Ask it to end."""
        with suppress(OSError):
            self._connection.send(STOP)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def bury(self) -> str:
        """How it ended, now that it says nothing more."""
        try:
            code = self._process.wait(BURY_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._connection.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class SchedulerProcess:
    """Keeps a scheduler alive beside this process, from `begin` to `stop`.

    `announce` takes its lines for whoever runs the service; `on_lead` is called whenever it begins to lead.
    """

    def __init__(self, order: Order, *, announce: Callable[[str], None], on_lead: Callable[[], None]) -> None:
        self._order, self._announce, self._on_lead = order, announce, on_lead
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._state = SchedulerState()
        self._settled: Future[None] = Future()  # the first one leads or stands by, or could not start
        self._ends = Ends()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    @property
    def state(self) -> SchedulerState:
        """As of its newest message."""
        return self._state

    def trouble(self) -> str:
        """How it ended, until another one has run for a minute; empty: it did not."""
        return self._ends.story(time.monotonic())

    def notes(self) -> tuple[str, ...]:
        """All that is wrong with it and its cluster."""
        state = self._state
        halted = f"planning is halted: {state.halted}" if state.halted else ""
        return (*(each for each in (self.trouble(), halted) if each), *state.notes)

    def begin(self) -> None:
        """Start it; returns at once."""
        self._thread.start()

    def until_settled(self) -> None:
        """Returns once it leads or stands by. Raises BackendUnavailable with what kept it from starting."""
        self._settled.result()

    def stop(self) -> None:
        """Have it end after the tick in progress; a standby leads at once."""
        with self._lock:
            self._stopping.set()
            child = self._child
        if child is not None:
            child.stop()
            self._thread.join(STOP_LIMIT_S)
            child.kill()
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            began_s = time.monotonic()
            how = self._live()
            self._state = SchedulerState()
            if not self._settled.done():
                self._settled.set_exception(BackendUnavailable(how))
                return
            if not self._stopping.is_set():
                self._rest(how, time.monotonic() - began_s)

    def _live(self) -> str:
        """One child, from its start to its end; how it ended."""
        with self._lock:
            if self._stopping.is_set():
                return "it was stopped"
            try:
                self._child = child = Child(self._order)
            except OSError as error:
                return f"no process could be started: {error}"
        reason = ""
        for message in child.messages():
            match message:
                case SchedulerState():
                    self._take(message)
                case Refusal():
                    reason = message.reason
                case _:
                    self._announce(message)
        how = child.bury()
        return reason or f"the scheduler's process ended with {how}"

    def _take(self, state: SchedulerState) -> None:
        before, self._state = self._state, state
        if state.leads and not before.leads:
            self._on_lead()
        if not self._settled.done():
            self._settled.set_result(None)

    def _rest(self, how: str, lived_s: float) -> None:
        """Say what happened, and leave it alone for a while."""
        pause_s = self._ends.add(how, lived_s=lived_s)
        log.error("scheduler.ended", how=how, lived_s=round(lived_s, 1), pause_s=pause_s)
        self._announce(self.trouble())
        self._stopping.wait(pause_s)
        self._ends.start_again(time.monotonic())
