"""Whether a node sees the folder that all nodes share: a file of the service in it has a random number.

Where the folder is not mounted, its path may still be there, and a gang would lose what it writes. The file is read
in a thread, since a file system that is gone may not answer.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

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


class FolderLook:
    """Looks again and again at what a call returns, in a thread of its own, and tells when it does not answer."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._running: threading.Thread | None = None
        self._begun_at_s = -inf
        self._last = ""
        self.is_silent = False

    def newest(self) -> str:
        """Return what the last look that has ended returned, and begin the next one if it is time to."""
        now_s = time.monotonic()
        if self._running is None and now_s - self._begun_at_s >= LOOK_EVERY_S:
            self._running = threading.Thread(target=self._look, name="gavel-folder", daemon=True)
            self._running.start()
            self._running.join(FIRST_LOOK_S if self._begun_at_s == -inf else 0.0)
            self._begun_at_s = now_s
        if self._running is not None and not self._running.is_alive():
            self._running = None
        self.is_silent = self._running is not None and now_s - self._begun_at_s > SILENT_S
        return self._last

    def _look(self) -> None:
        self._last = self._read()


class OwnFolder:
    """The shared folder as the service sees it: the file is made where it is missing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._look = FolderLook(self._number)

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


class NodeFolder:
    """The shared folder as a node sees it."""

    def __init__(self) -> None:
        self._look: FolderLook | None = None
        self._path = ""

    def problem(self, wanted: SharedFolder | None) -> str:
        """Return why the node cannot be used, and what to do; "" if it sees the folder, or there is none."""
        if wanted is None or not wanted.number:
            return ""
        if self._look is None or self._path != wanted.path:
            self._path, self._look = wanted.path, FolderLook(lambda: number_or_none(wanted.path))
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
