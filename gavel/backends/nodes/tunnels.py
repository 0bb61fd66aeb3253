"""What the service asks of agents so that it reaches a port of a job on their node, which it may not reach itself.

A request is in a file of the box of each agent of the gang. The agent whose node has rank 0 connects to the service,
shows the key of the request, and carries bytes between that connection and the port (`tunnel_carrier`). Requests are
level triggered: an agent tries for as long as a request is there.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.gang import GangKey
from gavel.backends.machine import read_plain

TUNNELS_PATH = "/v1/tunnels"
FILE = "tunnels"
FILE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelWanted:
    """A port of a job that the service wants to reach; `port` is None for the job's terminal.

    `url`: the service's address, which the agent checks by `certificates` in PEM form ("": those of its system).
    `until_s`: Unix time after which the request can be deleted: the process that made it is gone.
    """

    id: str
    key: str
    url: str
    certificates: str
    job_id: str
    generation: int
    port: int | None
    until_s: float

    @property
    def gang(self) -> GangKey:
        """Return job and generation."""
        return self.job_id, self.generation


def read_tunnels(box: Path) -> bytes:
    """Return the file of requests in an agent's box; nothing if there is none."""
    try:
        return read_plain(str(box / FILE), limit_bytes=FILE_BYTES)
    except OSError:
        return b""


def tunnels_of(content: bytes) -> tuple[TunnelWanted, ...]:
    """Return the requests in such a file; none if it holds what this version has not written."""
    try:
        return tuple(TunnelWanted(**each) for each in json.loads(content)) if content else ()
    except (ValueError, TypeError):
        return ()


class TunnelFile:
    """The requests in one agent's box, as the agent reads them. The file is looked at ten times a second."""

    EVERY_S = 0.1

    def __init__(self, box: Path) -> None:
        self._box = box
        self._read_at_s = float("-inf")
        self._content, self._wanted = b"", tuple[TunnelWanted, ...]()

    def wanted(self) -> tuple[TunnelWanted, ...]:
        """Return the requests; what has not changed is not parsed again."""
        now_s = time.monotonic()
        if now_s - self._read_at_s >= self.EVERY_S:
            self._read_at_s = now_s
            content = read_tunnels(self._box)
            if content != self._content:
                self._content, self._wanted = content, tunnels_of(content)
        return self._wanted
