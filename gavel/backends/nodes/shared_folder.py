"""Whether a node sees the folder that all nodes share: a file of the service in it has a random number.

Where the folder is not mounted, its path may still be there, and a gang would lose what it writes. The file is read
in a thread, since a file system that is gone may not answer.
"""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.background_look import BackgroundLook
from gavel.backends.durable import write_durable

MARKER = ".gavel-folder"
LOOK_EVERY_S = 5.0
FIRST_LOOK_S = 0.2  # seconds that the first look may take before it counts as slow
SILENT_S = 10.0  # seconds without an answer, after which the folder counts as gone
MARKER_BYTES = 64
NO_NUMBER = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFolder:
    """A folder that every node sees under this path, and the number in the service's file there ("": not known)."""

    path: str
    number: str = ""


def _looking(read: Callable[[], str]) -> BackgroundLook[str]:
    return BackgroundLook(read, "", every_s=LOOK_EVERY_S, first_s=FIRST_LOOK_S, silent_s=SILENT_S)


class OwnFolder:
    """The shared folder as the service sees it: the file is made where it is missing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._look = _looking(self._number)

    def wanted(self) -> SharedFolder:
        """Return what every node has to see."""
        return SharedFolder(path=self._path, number=self._look.newest())

    def _number(self) -> str:
        try:
            number = read_number(self._path)
            if number:
                return number
            write_durable(Path(self._path) / MARKER, secrets.token_hex(16).encode(), replace=False)
            (Path(self._path) / MARKER).chmod(0o644)
            return read_number(self._path)
        except OSError:
            return ""  # the service says elsewhere that its disk fails


def is_mounted(path: str) -> bool:
    """Return whether the folder at the path has a number, and answers at once."""
    return _looking(lambda: number_or_none(path)).newest() not in ("", NO_NUMBER)


class NodeFolder:
    """The shared folder as a node sees it."""

    def __init__(self) -> None:
        self._look: BackgroundLook[str] | None = None
        self._path = ""

    def problem(self, wanted: SharedFolder | None) -> str:
        """Return why the node cannot be used, and what to do; "" if it sees the folder, or there is none."""
        if wanted is None or not wanted.number:
            return ""
        if self._look is None or self._path != wanted.path:
            self._path, self._look = wanted.path, _looking(lambda: number_or_none(wanted.path))
        number = self._look.newest()
        if self._look.is_silent:
            return f"the shared folder {wanted.path} does not answer there: check its server and its mount"
        if number == wanted.number:
            return ""
        if not number:  # the first look goes on
            return ""
        what = "is not mounted there" if number == NO_NUMBER else "is another one there than for the service"
        return f"the shared folder {wanted.path} {what}: mount it, and the node is used again"


def number_or_none(path: str) -> str:
    """Return the number of the folder, or NO_NUMBER where it has none or cannot be read."""
    try:
        return read_number(path) or NO_NUMBER
    except OSError:
        return NO_NUMBER


def read_number(path: str) -> str:
    """Return the number of the folder; "" if it has none. Raises OSError."""
    try:
        file = os.open(os.path.join(path, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        return os.read(file, MARKER_BYTES).decode("ascii", "replace").strip()
    finally:
        os.close(file)
