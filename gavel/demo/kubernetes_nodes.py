"""The demo's Kubernetes cluster: three nodes on this machine, each with an accelerator type of its own."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gavel.backends.accelerators import capped_types

if TYPE_CHECKING:
    from gavel.backends.kubernetes.local_cluster import LocalKubernetesCluster

WORKERS = (2, 2, 1)  # of the nodes: gangs of two fit on two of the types
RESOURCE = "gavel.internal/core"


def three_nodes() -> "LocalKubernetesCluster":
    """Return a cluster, not started yet, of the three CPU types of this machine that differ most."""
    from gavel.backends.kubernetes.kubelets import NodeSpec
    from gavel.backends.kubernetes.local_cluster import LocalKubernetesCluster

    types = [*capped_types()][: len(WORKERS)] or ["one", "two", "three"]  # without AVX2 they differ by name only
    return LocalKubernetesCluster(
        [
            NodeSpec(name=f"node-{name}", resources={RESOURCE: workers}, labels={"gavel.internal/type": name})
            for name, workers in zip(types, WORKERS, strict=True)
        ]
    )


def kubernetes_settings(cluster: "LocalKubernetesCluster", state_dir: Path) -> dict[str, str]:
    """Return the environment variables of a service that runs on the cluster: its pods are processes here."""
    shared, nodes = state_dir / "shared", state_dir / "nodes"
    for folder in (shared, nodes):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "GAVEL_BACKEND": "kubernetes",
        "GAVEL_KUBERNETES__SHARED_DIR": str(shared),
        "GAVEL_KUBERNETES__SHARED_VOLUME": json.dumps({"hostPath": {"path": str(shared)}}),
        "GAVEL_KUBERNETES__NODE_DIR": str(nodes),
        "GAVEL_KUBERNETES__NODE_VOLUME": json.dumps({"hostPath": {"path": str(nodes)}}),
        "GAVEL_KUBERNETES__PYTHON": sys.executable,
        "GAVEL_KUBERNETES__RESOURCES": json.dumps([RESOURCE]),
        **cluster.environment,
    }
