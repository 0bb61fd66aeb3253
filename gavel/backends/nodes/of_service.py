"""The arguments that the backends on clusters of nodes have alike."""

from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from gavel.backends.launch import Preparation
from gavel.ports import Clock
from gavel.types import Term, WorkerId


class OfService(TypedDict):
    """What a service gives its backend on nodes, whatever their cluster is; see `NodesBackend`."""

    state_dir: Path
    clock: Clock
    lease_grace_s: float
    log_bytes_per_job: int
    output_bytes_per_job: NotRequired[int]
    environment: NotRequired[Mapping[str, str] | None]
    term: NotRequired[Term | None]
    node_of: NotRequired[Mapping[WorkerId, str]]
    preparation: NotRequired[Preparation]
    kept: NotRequired[Path | None]
