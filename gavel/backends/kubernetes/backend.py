"""A Kubernetes cluster as a `ClusterBackend`: pods for each gang, one on each of its nodes, with an agent of ours."""

from dataclasses import replace
from typing import Unpack

from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.nodes.backend import NodesBackend
from gavel.backends.nodes.of_service import OfService
from gavel.backends.nodes.protocol import NodeLink
from gavel.errors import InvalidRequest


class KubernetesBackend(NodesBackend):
    """Runs gangs on the nodes of a Kubernetes cluster; see `NodesBackend`. Raises InvalidRequest without one."""

    def __init__(self, *, kubernetes: KubernetesSettings, **of_service: Unpack[OfService]) -> None:
        grace_s = of_service["lease_grace_s"]
        super().__init__(
            cluster="Kubernetes",
            nodes=kubernetes,
            open_link=lambda store: _open(replace(kubernetes, code_store=store, lease_grace_s=grace_s)),
            **of_service,
        )


def _open(settings: KubernetesSettings) -> NodeLink:
    """Return the transport. Raises InvalidRequest without the extra or a cluster, OSError."""
    try:
        from gavel.backends.kubernetes.link import KubernetesLink
    except ImportError:
        text = "the Kubernetes backend needs its client: pip install 'gavel[kubernetes]'"
        raise InvalidRequest("backend", text) from None
    return KubernetesLink(settings)
