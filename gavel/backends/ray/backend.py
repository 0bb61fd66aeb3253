"""A Ray cluster as a `ClusterBackend`: placement groups, and one warm actor a node, reached through the bridge."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gavel.backends.launch import PREPARATION, Preparation
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.protocol import NodeLink
from gavel.backends.ray.link import Link
from gavel.backends.ray.protocol import RaySettings
from gavel.ports import Clock
from gavel.types import Term, WorkerId


class RayBackend(NodesBackend):
    """Runs gangs on the nodes of a Ray cluster; see `NodesBackend`. Raises InvalidRequest if Ray is not installed."""

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        state_dir: Path,
        ray: RaySettings,
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        output_bytes_per_job: int = 0,
        environment: Mapping[str, str] | None = None,
        term: Term | None = None,
        node_of: Mapping[WorkerId, str] = MappingProxyType({}),
        preparation: Preparation = PREPARATION,
        open_link: Callable[[RaySettings, Path], NodeLink] = Link,
    ) -> None:
        super().__init__(
            cluster="Ray",
            state_dir=state_dir,
            nodes=ray,
            open_link=lambda store: open_link(replace(ray, code_store=store), state_dir / "bridge.log"),
            clock=clock,
            lease_grace_s=lease_grace_s,
            log_bytes_per_job=log_bytes_per_job,
            output_bytes_per_job=output_bytes_per_job,
            environment=environment,
            term=term,
            node_of=node_of,
            preparation=preparation,
        )
