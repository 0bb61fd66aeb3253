"""How fast the last copies of checkpoints from one region to another were; kept in a file, so that a restart knows."""

import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog

from gavel.backends.durable import write_durable
from gavel.types.regions import LinkCopies

log = structlog.get_logger("gavel.regions")

FILE = "copies.json"  # in the folder of what is known of all regions
KEPT = 16  # copies of a link; what it was earlier says little of what it is now
COUNTED_BYTES = 10_000_000  # a smaller copy is mostly the time of its requests

Link = tuple[str, str]
"""The regions that a copy is read from and written to."""


class LinkSpeeds:
    """Bytes and seconds of the last copies of each link. Safe from any thread. `path`: its file; None: in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._copies = defaultdict[Link, deque[tuple[int, float]]](lambda: deque(maxlen=KEPT))
        for origin, target, size_bytes, seconds in _read(path):
            self._copies[origin, target].append((size_bytes, seconds))

    def add(self, origins: Iterable[str], target: str, size_bytes: int, seconds: float) -> None:
        """Count a copy from the place of these regions to the target; a small one, or one of no time, says nothing."""
        if size_bytes < COUNTED_BYTES or seconds <= 0:
            return
        with self._lock:
            for origin in origins:
                self._copies[origin, target].append((size_bytes, seconds))
            rows = [[*link, *copy] for link, copies in self._copies.items() for copy in copies]
            if self._path is not None:
                with suppress(OSError):  # it is measured again
                    write_durable(self._path, json.dumps(rows).encode())

    def sums(self) -> tuple[LinkCopies, ...]:
        """Return what the last copies of each link are together, sorted."""
        with self._lock:
            return tuple(
                LinkCopies(
                    origin=origin,
                    target=target,
                    copies=len(copies),
                    gigabytes=sum(size for size, _ in copies) / 1e9,
                    seconds=sum(seconds for _, seconds in copies),
                )
                for (origin, target), copies in sorted(self._copies.items())
            )


def _read(path: Path | None) -> list[tuple[str, str, int, float]]:
    """The copies in the file; none if it is not there or is damaged."""
    try:
        rows = [] if path is None else json.loads(path.read_bytes())
        return [(str(origin), str(target), int(size), float(seconds)) for origin, target, size, seconds in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as problem:
        log.warning("link_speeds.not_read", path=str(path), error=str(problem))
        return []
