"""Wakes the service as soon as a process ends, so that freed workers need not wait for the next look."""

import os
import select
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("gavel.watch")


class Watch:
    """Calls `on_change` (from a thread of its own) whenever one of the watched processes has ended."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._processes: dict[int, int] = {}  # descriptor -> pid; only this class closes them
        self._epoll = select.epoll()
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._closing, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="gavel-watch", daemon=True)
        self._thread.start()

    def add(self, pid: int) -> None:
        """Watch this process too. One that is gone, or cannot be watched, is found to have ended by the next look."""
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError as problem:  # too many descriptors, or a kernel that has no such call
            log.warning("process.unwatched", pid=pid, error=str(problem))
            return
        self._processes[process] = pid
        self._epoll.register(process, select.EPOLLIN)

    def close(self) -> None:
        """Stop watching; the processes go on. Closing twice does no harm."""
        if not self._thread.is_alive():
            return
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        for descriptor in (self._closing, *self._processes):
            os.close(descriptor)
        self._epoll.close()

    def _run(self) -> None:
        while True:
            ready = {descriptor for descriptor, _ in self._epoll.poll()}
            if self._closing in ready:
                return
            for process in ready:
                self._epoll.unregister(process)
                del self._processes[process]
                os.close(process)
            self._on_change()
