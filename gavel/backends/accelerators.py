"""Which accelerators this machine has."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from gavel.types import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAccelerator:
    """A worker of this machine: the cores its processes are pinned to, and the environment that makes it its type."""

    worker: Worker
    cpus: tuple[int, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def node_name() -> str:
    """This machine's short host name, in the letters that a resource's name may have."""
    short = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().split(".")[0].lower())
    return short[:63].strip("-") or "localhost"
