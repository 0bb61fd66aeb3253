"""A Ray cluster as a `ClusterBackend`: placement groups, and one warm actor a node, reached through the bridge."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.of_service import OfService
from gavel.backends.nodes.protocol import NodeLink
from gavel.backends.nodes.tunnel_requests import bridge_box
from gavel.backends.ray.link import Link
from gavel.backends.ray.protocol import RaySettings


class RayBackend(NodesBackend):
    """Runs gangs on the nodes of a Ray cluster; see `NodesBackend`. Raises InvalidRequest if Ray is not installed."""

    def __init__(
        self,
        *,
        ray: RaySettings,
        open_link: Callable[[RaySettings, Path], NodeLink] = Link,
        **of_service: Unpack[OfService],
    ) -> None:
        log = of_service["state_dir"] / "bridge.log"
        box = bridge_box(of_service["state_dir"].resolve())
        box.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(
            cluster="Ray",
            nodes=ray,
            open_link=lambda store: open_link(replace(ray, code_store=store, box=str(box)), log),
            **of_service,
        )
