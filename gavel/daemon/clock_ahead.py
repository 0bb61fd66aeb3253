"""Whether the wall clock was set far ahead: what is kept for some time after an end would be deleted at once.

A clock that a machine starts with can be years off. Who looks after it sees the warning in the log, and has a day.
"""

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from gavel.backends.machine import boot_id, write_json
from gavel.ports import Clock

FAR_S = 86_400.0  # a clock that is set ahead by less than this makes nothing look old
WAITS_S = 86_400.0  # of a clock that nobody sets

log = structlog.get_logger("gavel.clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    now_s: float
    steady_s: float
    boot_id: str
    waits_s: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(each) for each in (self.now_s, self.steady_s, self.waits_s)):
            raise ValueError("no instant")


class ClockAhead:
    """Compares the wall clock with one that nobody sets, from look to look; `path` is where the last look is kept.

    After a boot nobody knows for how long the machine was off: longer than FAR_S looks the same.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock, self._boot_id = path, clock, boot_id()

    def waits_s(self) -> float:
        """Return for how many more seconds nothing should be deleted by its age; 0: the clock can be believed."""
        now_s, steady_s = self._clock.now_s(), self._clock.steady_s()
        last = self._last() or _Look(now_s=now_s, steady_s=steady_s, boot_id=self._boot_id)
        elapsed_s = max(0.0, steady_s - last.steady_s) if last.boot_id == self._boot_id else 0.0
        ahead_s, waits_s = now_s - last.now_s - elapsed_s, max(0.0, last.waits_s - elapsed_s)
        if ahead_s > FAR_S:
            waits_s = WAITS_S
            log.warning("clock.far_ahead", by_s=round(ahead_s), nothing_is_deleted_for_s=WAITS_S)
        elif ahead_s < -FAR_S:  # it was wrong before, and somebody has seen to that
            waits_s = 0.0
        look = _Look(now_s=now_s, steady_s=steady_s, boot_id=self._boot_id, waits_s=waits_s)
        with suppress(OSError):  # without a file the next look knows nothing, as the first one of a service
            write_json(str(self._path), asdict(look))
        return waits_s

    def _last(self) -> _Look | None:
        try:
            return _Look(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
