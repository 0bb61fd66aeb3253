"""The lease of a gang as its supervisor keeps it. Standard library only."""

import os

from gavel.backends.lease_rules import end_reason
from gavel.backends.machine import boottime_s, finite, read_json


class Lease:
    """How long the gang may run. Once over it stays over, whatever the file says later."""

    def __init__(self, directory: str, expires_boottime_s: float) -> None:
        self._path = os.path.join(directory, "lease.json")
        self.expires_boottime_s = expires_boottime_s
        self._seen: tuple[int, int] | None = None
        self._stop = False
        self.ended_by = ""

    def check(self) -> str:
        """Return why the gang has to end ("lease" or "stop"); "" while it may run."""
        if not self.ended_by:
            over = boottime_s() >= self.expires_boottime_s
            self._read()
            self.ended_by = end_reason(self.ended_by, is_over=over, is_stopped=self._stop)
        return self.ended_by

    def stop(self, *_: object) -> None:
        """Request a stop, as SIGTERM does: the same as a stop in the file."""
        self._stop = True

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        version = (status.st_ino, status.st_mtime_ns)
        if version != self._seen:
            lease = read_json(self._path)
            self._seen = version
            self._stop = self._stop or bool(lease["stop"])
            self.expires_boottime_s = finite(lease["expires_boottime_s"])
