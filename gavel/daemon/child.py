"""The scheduler's process, managed by the API's process: start it, read its messages, restart it when it ends, stop it.

The two share no memory. Decisions go through the database. Over a socket pair the child only reports who leads and what
is wrong. The child is killed when the thread that started it ends, and so when its parent ends, in whatever way. On
request it ends in order.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import structlog

from gavel.child_processes import reap, start_connected
from gavel.config import Settings
from gavel.errors import BackendUnavailable

log = structlog.get_logger("gavel.scheduler_process")

STOP = "stop"
STOP_LIMIT_S = 10.0
BURY_LIMIT_S = 2.0  # from its last message to the end of the process
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
STEADY_S = 60.0  # after a process that ran this long, the next pause is the first one again


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The first message to the child: its settings, and the URL at which the API listens."""

    settings: Settings
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """A scheduler's state: whether it leads, what halted its planning, what is wrong with its cluster.

    `stalled`: why it completed no tick for longer than it may; it has given the leadership up, or is trying again.
    """

    leads: bool = False
    halted: str = ""
    stalled: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Return whether it plans nothing though it should."""
        return bool(self.halted or self.stalled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The message of a scheduler that cannot start, with the reason."""

    reason: str


Message = str | SchedulerState | Refusal
"""A line for the operator, the scheduler's new state, or the reason why it cannot start."""


class Ends:
    """How schedulers ended without a request, and how long to wait before the next start. Times are monotonic."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._history, self._until_s = "", inf

    def add(self, how: str, *, lived_s: float) -> float:
        """Record an end; return the seconds to wait: 1 s at first, doubled up to 60 s after each run below 60 s."""
        is_first = lived_s >= STEADY_S or not self._pause_s
        self._pause_s = FIRST_PAUSE_S if is_first else min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._history, self._until_s = f"{how}; the next one starts {self._pause_s:g} s later", inf
        return self._pause_s

    def start_again(self, now_s: float) -> None:
        """Note that the next process starts now; after `STEADY_S` the history is empty again."""
        self._until_s = now_s + STEADY_S

    def history(self, now_s: float) -> str:
        """Return how the last process ended; empty if none did, or if the next one has run for `STEADY_S`."""
        return self._history if now_s < self._until_s else ""


class Child:
    """One scheduler process. One thread calls `messages` and `bury`; any thread may call `stop` and `kill`."""

    def __init__(self, order: Order) -> None:
        """Start the process. Raises OSError if it cannot be started."""
        self._process, self._connection = start_connected("gavel.daemon.scheduling")
        self._connection.send(order)

    def messages(self) -> Iterator[Message]:
        """Yield its messages until it ends."""
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
        """Wait for its end, after its last message; return how it ended."""
        how = reap(self._process, BURY_LIMIT_S)
        self._connection.close()
        return how


class SchedulerProcess:
    """Keeps a scheduler process running from `begin` to `stop`.

    `announce` is called with each line for the operator, `on_lead` whenever the scheduler begins to lead.
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
        """The state by the scheduler's newest message."""
        return self._state

    def trouble(self) -> str:
        """Return how the scheduler ended, until the next one has run for a minute; empty if it did not end."""
        return self._ends.history(time.monotonic())

    def notes(self) -> tuple[str, ...]:
        """Return everything that is wrong with the scheduler and its cluster, one sentence each."""
        state = self._state
        halted = f"planning is halted: {state.halted}" if state.halted else ""
        stalled = f"planning is stalled: {state.stalled}" if state.stalled else ""
        return (*(each for each in (self.trouble(), halted, stalled) if each), *state.notes)

    def begin(self) -> None:
        """Start the scheduler; returns at once."""
        self._thread.start()

    def until_settled(self) -> None:
        """Wait until the scheduler leads or stands by. Raises BackendUnavailable with the reason if it cannot start."""
        self._settled.result()

    def stop(self) -> None:
        """End the scheduler after the tick in progress; a standby on the same database then leads at once."""
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
        """Run one child from its start to its end; return how it ended."""
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
        """Announce how the scheduler ended, and wait before the next start."""
        pause_s = self._ends.add(how, lived_s=lived_s)
        log.error("scheduler.ended", how=how, lived_s=round(lived_s, 1), pause_s=pause_s)
        self._announce(self.trouble())
        self._stopping.wait(pause_s)
        self._ends.start_again(time.monotonic())
