"""A Kubernetes cluster as a `ClusterBackend`: pods for each gang, one on each of its nodes, with an agent of ours."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.launch import PREPARATION, Preparation
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.protocol import NodeLink
from gavel.errors import InvalidRequest
from gavel.ports import Clock
from gavel.types import Term, WorkerId


class KubernetesBackend(NodesBackend):
    """Runs gangs on the nodes of a Kubernetes cluster; see `NodesBackend`. Raises InvalidRequest without one."""

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        state_dir: Path,
        kubernetes: KubernetesSettings,
        clock: Clock,
        lease_grace_s: float,
        log_bytes_per_job: int,
        output_bytes_per_job: int = 0,
        environment: Mapping[str, str] | None = None,
        term: Term | None = None,
        node_of: Mapping[WorkerId, str] = MappingProxyType({}),
        preparation: Preparation = PREPARATION,
    ) -> None:
        super().__init__(
            cluster="Kubernetes",
            state_dir=state_dir,
            nodes=kubernetes,
            open_link=lambda store: _open(replace(kubernetes, code_store=store, lease_grace_s=lease_grace_s)),
            clock=clock,
            lease_grace_s=lease_grace_s,
            log_bytes_per_job=log_bytes_per_job,
            output_bytes_per_job=output_bytes_per_job,
            environment=environment,
            term=term,
            node_of=node_of,
            preparation=preparation,
        )


def _open(settings: KubernetesSettings) -> NodeLink:
    """Return the transport. Raises InvalidRequest without the extra or a cluster, OSError."""
    try:
        from gavel.backends.kubernetes.link import KubernetesLink
    except ImportError:
        text = "the Kubernetes backend needs its client: pip install 'gavel[kubernetes]'"
        raise InvalidRequest("backend", text) from None
    return KubernetesLink(settings)
