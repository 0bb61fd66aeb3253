"""Work of a leader beside the rounds: a thread that does each task again and again, and never holds up a round."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

log = structlog.get_logger("gavel.background")

JOIN_S = 10.0  # how long a task may hold up the end of a leader


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task, and the seconds from the end of one run to the next."""

    run: Callable[[], object]
    every_s: float


@contextmanager
def in_background(tasks: Sequence[Periodic]) -> Iterator[None]:
    """Run the tasks in a thread of their own while the block runs. What one raises is logged, and it is run again."""
    is_over = threading.Event()
    thread = threading.Thread(target=_run, args=(tasks, is_over), name="gavel-background", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(timeout=JOIN_S)


def _run(tasks: Sequence[Periodic], is_over: threading.Event) -> None:
    due_s = [0.0 for _ in tasks]
    while tasks and not is_over.is_set():
        for index, task in enumerate(tasks):
            if time.monotonic() >= due_s[index]:
                _attempt(task)
                due_s[index] = time.monotonic() + task.every_s
        is_over.wait(max(0.0, min(due_s) - time.monotonic()))


def _attempt(task: Periodic) -> None:
    try:
        task.run()
    except Exception as error:  # a task's trouble is its own: the scheduler goes on, and so do the other tasks
        log.warning("background.failed", task=getattr(task.run, "__qualname__", ""), error=str(error))
