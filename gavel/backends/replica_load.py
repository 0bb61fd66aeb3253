"""Reads how many requests a replica of a service has had, from its own metrics, and writes what that is per second.

Standard library only: a part of the supervisor. What the replica answers is not trusted: its length is bounded, and
each number has to be finite and within bounds, else nothing is known of its load.
"""

import math
import re
from collections import deque
from typing import Any

from gavel.backends.health import Probe, problem_of_status
from gavel.backends.machine import boottime_s, write_json

LOAD = "load.json"  # of a gang: requests per second of its replica, and those that wait
ANSWER_BYTES = 1 << 20
PART_BYTES, PARTS_AT_ONCE = 1 << 16, 16
COUNT_MAX, DEMAND_MAX = 1e18, 1e9  # the latter as in gavel/types/services.py
WINDOW_S, WINDOW_MIN_S = 20.0, 2.0  # over which requests per second are counted
LABELS = r'(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?'


class LoadWatch:
    """The load of one replica: requests per second over the last WINDOW_S seconds, and requests that wait."""

    def __init__(self, metrics: dict[str, Any], check: dict[str, Any], where: tuple[str, int], path: str) -> None:
        """Read as often and wait as long as `check` says, once a second at most, and write to the file `path`."""
        self._metrics, self._check, self._where, self._path = metrics, check, where, path
        self._reading: Reading | None = None
        self._counts: deque[tuple[float, float]] = deque(maxlen=64)  # (boottime, requests so far)
        self._failed = 0
        self._next_boottime_s = 0.0
        self._written: dict[str, float] = {}

    def look(self) -> None:
        """Begin the next reading when it is due, or take the one under way. Raises OSError."""
        now_s = boottime_s()
        if self._reading is None:
            if now_s < self._next_boottime_s:
                return
            self._next_boottime_s = now_s + max(1.0, self._check["interval_s"])
            self._reading = Reading(self._where, self._metrics["path"], now_s + self._check["timeout_s"])
        if self._reading.look():
            load, self._reading = self._load(self._reading, now_s), None
            if load != self._written:
                write_json(self._path, load)
                self._written = load

    def _load(self, reading: "Reading", now_s: float) -> dict[str, float]:
        """The load after a reading, {} if it is not known; one that failed leaves what was known for a while."""
        count = None if reading.problem else total(reading.text, self._metrics["requests"])
        if count is None:
            self._failed += 1
            return self._written if self._failed < self._check["failures"] else {}
        self._failed = 0
        if self._counts and count < self._counts[-1][1]:  # its program began anew
            self._counts.clear()
        self._counts.append((now_s, count))
        while len(self._counts) > 2 and self._counts[1][0] <= now_s - WINDOW_S:
            self._counts.popleft()
        first_s, first = self._counts[0]
        if now_s - first_s < WINDOW_MIN_S:
            return self._written
        queue = total(reading.text, self._metrics["queue"]) if self._metrics["queue"] else 0.0
        per_s = (count - first) / (now_s - first_s)
        return {"requests_per_s": _rounded(per_s), "queue": _rounded(queue or 0.0)}


class Reading(Probe):
    """A GET of a path as the probe of a check makes it, of which the whole answer is taken: `text`."""

    version = "HTTP/1.0"  # so that the answer comes in one piece
    text = ""

    def _read(self) -> None:
        for _ in range(PARTS_AT_ONCE):
            part = self._socket.recv(PART_BYTES)  # BlockingIOError: there is no more for now
            self._received += part
            if len(self._received) > ANSWER_BYTES:
                self._end(f"its metrics are more than {ANSWER_BYTES} bytes")
                return
            if not part:
                self._take()
                return

    def _take(self) -> None:
        head, _, body = self._received.partition(b"\r\n\r\n")
        self.text = body.decode("utf-8", "replace")
        self._end(problem_of_status(head.partition(b"\r\n")[0]))


def total(text: str, name: str) -> float | None:
    """Return the sum of all samples of a metric in the text format of Prometheus; None if there is none, or a bad one.

    A bad one is not finite, below 0, or above COUNT_MAX.
    """
    sample = re.compile(rf"{re.escape(name)}{LABELS}[ \t]+(\S+)")
    values = [match[1] for line in text.splitlines() if line.startswith(name) and (match := sample.match(line))]
    try:
        numbers = [float(each) for each in values]
    except ValueError:
        return None
    is_good = numbers and all(math.isfinite(each) and 0 <= each <= COUNT_MAX for each in numbers)
    return min(COUNT_MAX, sum(numbers)) if is_good else None


def _rounded(value: float) -> float:
    """To three digits, so that a steady load is written once."""
    return float(f"{min(DEMAND_MAX, max(0.0, value)):.3g}")
