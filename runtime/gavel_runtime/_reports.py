"""The reports of rank 0 to the service, in reports.jsonl: the gang's speed, each checkpoint, and the end."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

METRICS_MAX = 16
METRIC_NAME_LENGTH_MAX = 64
_NEWEST_WEIGHT = 0.2

Measured = tuple[int, float, float]
"""Steps of training, their seconds, and their units of work: 0 if the program does not say them."""


class Meter:
    """Counts steps and their seconds since the last report, and averages the seconds of an update (a step, or several).

    It leaves out the first step after a start (caches are cold, libraries load), the time from a step to `resume`, and
    that in phases besides training. `work` is the units of work of the steps that it counts, if the program says them.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.work = 0.0
        self.seconds = 0.0
        self.step_s = 0.0
        self._mark_s = 0.0
        self._is_warm = False

    def resume(self, now_s: float) -> None:
        """Start counting at this instant: the time since the last step was not training."""
        self._mark_s = now_s

    def step_done(self, now_s: float, outside_s: float = 0.0, work: float = 0.0, steps: int = 1) -> float | None:
        """Count one update of the whole gang, which ended at `now_s`; `outside_s` seconds of it were no training.

        It brought so many `steps`. Return its seconds of training; None if it is not counted: the first one, and one
        that was nothing else.
        """
        elapsed_s, self._mark_s = max(0.0, now_s - self._mark_s), now_s
        if not self._is_warm:
            self._is_warm = True
            return None
        weight = _NEWEST_WEIGHT if self.step_s else 1.0
        self.step_s += weight * (elapsed_s - self.step_s)
        if 0 < outside_s >= elapsed_s:
            return None
        trained_s = elapsed_s - max(0.0, outside_s)
        self.steps, self.seconds, self.work = self.steps + steps, self.seconds + trained_s, self.work + work
        return trained_s

    def take(self) -> Measured:
        """Return the steps since the last call, their seconds, and their units of work."""
        taken = (self.steps, self.seconds, self.work)
        self.steps, self.seconds, self.work = 0, 0.0, 0.0
        return taken


def merged_metrics(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """Return `old` updated with `new`; a value that is not finite removes its name, as JSON has no such number.

    Raises ValueError for more than 16 names or a name longer than 64 characters.
    """
    merged = {name: float(value) for name, value in {**old, **new}.items()}
    if len(merged) > METRICS_MAX:
        raise ValueError(f"metrics: {len(merged)} names ({', '.join(sorted(merged))}); report at most {METRICS_MAX}")
    for name in merged:
        if not 0 < len(name) <= METRIC_NAME_LENGTH_MAX:
            raise ValueError(f"metrics: name {name!r}; use 1 to {METRIC_NAME_LENGTH_MAX} characters")
    return {name: value for name, value in merged.items() if math.isfinite(value)}


class Reports:
    """Appends numbered lines to reports.jsonl, each with one write; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o600)
        self._sequence = 0

    def write(
        self,
        kind: str,
        step: int,
        *,
        steps: int,
        seconds: float,
        more: Mapping[str, object] = MappingProxyType({}),
        durable: bool = False,
    ) -> None:
        """Append one line, with the fields of `more`, too; flush it to disk if `durable`.

        Raises OSError, also if only a part could be written.
        """
        if self._file is None:
            return
        self._sequence += 1
        line = {"sequence": self._sequence, "kind": kind, "step": step, "steps": steps, "seconds": round(seconds, 6)}
        encoded = json.dumps({**line, **more}).encode() + b"\n"
        if os.write(self._file, encoded) != len(encoded):
            raise OSError(f"reports.jsonl: report {self._sequence} was cut short, the disk is full")
        if durable:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
