"""When an interactive session was last used: by the times of files, which survive a restart.

The file of its connections is in its gang's folder, or, where its agents have boxes of their own, in these, which every
process of the service that makes such connections can write.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gavel.backends.folder import log_path
from gavel.backends.gang import GangKey
from gavel.backends.several.homes import boxes_of_gang, home_of, of_region, orders_folder
from gavel.config import Settings
from gavel.types import JobId

CONNECTED = "connected"  # touched while somebody is connected to one of its ports
GANGS_MAX = 1000  # whose boxes are remembered


def sees_use(settings: Settings) -> bool:
    """Return whether it is known on every backend when a session was used."""
    return all(each.backend != "simulated" for each in settings.by_region.values())


def connected_file(home: Path, job_id: JobId, generation: int) -> Path:
    """Return the file of connections to a session whose gang is known in the state folder `home`."""
    return home / "gangs" / job_id / str(generation) / CONNECTED


def note_connection(settings: Settings, region: str, gang: GangKey, now_s: float) -> None:
    """Remember that somebody is connected to the session now, if its gang is still there."""
    own = of_region(settings, region)
    if own is not None and orders_folder(own) is not None:
        _touch((_in_box(box, gang) for box in boxes_of_gang(settings, region, gang)), now_s)
    else:
        _touch([connected_file(home_of(settings, region), *gang)], now_s)


class SessionUse:
    """Knows of each session when it was last used, and never before `since_s`."""

    def __init__(self, settings: Settings, since_s: float) -> None:
        self._settings, self._since_s = settings, since_s
        self._sees_use = sees_use(settings)
        self._boxes: dict[GangKey, list[Path]] = {}

    def last_s(self, job_id: JobId, generation: int) -> float | None:
        """Return when somebody was last connected to it or it last printed something, Unix time.

        None where that is not seen.
        """
        if not self._sees_use:
            return None
        files = [log_path(self._settings.state_dir, job_id), *self._connected((job_id, generation))]
        return max(self._since_s, *map(_changed_at_s, files))

    def _connected(self, gang: GangKey) -> Iterable[Path]:
        for region, own in self._settings.by_region.items():
            if orders_folder(own) is None:
                yield connected_file(home_of(self._settings, region), *gang)
        yield from (_in_box(box, gang) for box in self._boxes_of(gang))

    def _boxes_of(self, gang: GangKey) -> list[Path]:
        """The boxes of the gang's agents, which are looked for until there are some."""
        if gang not in self._boxes:
            regions = [region for region, own in self._settings.by_region.items() if orders_folder(own) is not None]
            boxes = [box for region in regions for box in boxes_of_gang(self._settings, region, gang)]
            if not boxes:
                return []
            if len(self._boxes) >= GANGS_MAX:
                self._boxes.clear()
            self._boxes[gang] = boxes
        return self._boxes[gang]


def _in_box(box: Path, gang: GangKey) -> Path:
    """Return the file of connections to a gang, of which two may have parts in one allocation."""
    return box / f"{CONNECTED}.{gang[0]}.{gang[1]}"


def _touch(files: Iterable[Path], now_s: float) -> None:
    for each in files:
        with suppress(OSError):  # the gang has ended, or the disk is full
            each.touch(mode=0o600)
            os.utime(each, (now_s, now_s))


def _changed_at_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
