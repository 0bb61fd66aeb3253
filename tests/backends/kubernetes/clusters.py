"""A harness over a real control plane of Kubernetes: real scheduler, agents and processes; kubelets of ours."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gavel.backends.kubernetes.api import Api, Object, items_of
from gavel.backends.kubernetes.backend import KubernetesBackend
from gavel.backends.kubernetes.kubelets import PODS, LocalKubelets, NodeSpec
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.launch import Preparation
from gavel.backends.outputs import Outputs
from gavel.backends.secret_store import SecretStore
from gavel.clock import SystemClock
from tests.backends.clusters import GRACE_S, AllocationsHarness, eventually, kill

A, B = "example.com/a", "example.com/b"
ONE_NODE = (NodeSpec(name="here", resources={A: 2, B: 1}),)


@contextmanager
def a_service_on(
    kubeconfig: Path, folder: Path, nodes: tuple[NodeSpec, ...] = ONE_NODE, /, **settings: Any
) -> Iterator["KubernetesHarness"]:
    """A service's backend on nodes of its own at this control plane; nothing of it is left afterwards."""
    with closing(KubernetesHarness(folder, kubeconfig, nodes, settings)) as made:
        yield made


class KubernetesHarness(AllocationsHarness[KubernetesBackend]):
    """`gavel.backends.harness.Harness` over the nodes of a Kubernetes cluster."""

    cannot: Mapping[str, str] = {}
    short_s = 25.0
    grace_s = GRACE_S + 2.0

    def __init__(
        self, folder: Path, kubeconfig: Path, nodes: tuple[NodeSpec, ...], settings: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, self.kubeconfig = folder, kubeconfig
        self.clock = SystemClock()
        self.settings = dict(settings or {})
        self.api = Api(str(kubeconfig), "", Counter())
        self.kubelets = self._kubelets(nodes)
        self.backend = self.open()

    def _kubelets(self, nodes: tuple[NodeSpec, ...]) -> LocalKubelets:
        self.workers = sum(sum(node.resources.values()) for node in nodes)
        made = LocalKubelets(str(self.kubeconfig), self.folder / "pods", nodes)
        made.start()
        return made

    @property
    def state_dir(self) -> Path:  # type: ignore[override]
        return self.folder / "state"

    def outputs(self) -> Outputs:
        return Outputs(self.state_dir / "outputs")

    def open(self) -> KubernetesBackend:
        """A service's backend on this cluster, once it has met the nodes."""
        backend = self.made()
        eventually(lambda: self.has_workers(backend), self.limit_s)
        return backend

    def made(self, **over: object) -> KubernetesBackend:
        """A service's backend on this cluster."""
        given = {
            "state_dir": self.state_dir,
            "kubernetes": kubernetes_settings(self.folder, self.kubeconfig, **self.settings),
            "clock": self.clock,
            "lease_grace_s": GRACE_S,
            "log_bytes_per_job": 1 << 16,
            "preparation": Preparation(
                secrets_of=SecretStore(self.state_dir).values, shown_folders=(f"{self.folder}:rw",)
            ),
        }
        return KubernetesBackend(**{**given, **over})  # type: ignore[arg-type]

    def spread(self, nodes: int) -> None:
        """Other nodes, node i with the one worker `a-i`."""
        self.backend.close()
        self.kubelets.stop()
        self.folder = self.folder / "spread"
        self.kubelets = self._kubelets(
            tuple(NodeSpec(name=f"node-{index:04}", resources={A: 1}) for index in range(nodes))
        )
        self.backend = self.open()

    def lose_node(self, name: str) -> None:
        """All of the node's processes are killed at once, and its kubelet is not heard any more."""
        self.kubelets.lose(name)
        kill(self.processes_on(name))

    def return_node(self, name: str) -> None:
        self.kubelets.come_back(name)

    def pods(self) -> list[Object]:
        """The pods that are there."""
        return list(items_of(self.api.get(PODS, limit="0")))

    def node(self, name: str) -> Object:
        """A node as the API server shows it."""
        return self.api.get(f"/api/v1/nodes/{name}")

    def close(self) -> None:
        """Nothing is left of the gangs and nodes; the control plane of all tests stays."""
        self.backend.close()
        self.kubelets.stop()
        while left := self.all_processes():
            kill(left)


def kubernetes_settings(folder: Path, kubeconfig: Path, /, **over: Any) -> KubernetesSettings:
    """Pods mount folders of this machine at their own paths."""
    for name in ("shared", "nodes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    given: dict[str, Any] = {
        "kubeconfig": str(kubeconfig),
        "folder": str(folder / "shared"),
        "shared_dir": str(folder / "shared"),
        "shared_volume": {"hostPath": {"path": str(folder / "shared")}},
        "node_folder": str(folder / "nodes"),
        "node_volume": {"hostPath": {"path": str(folder / "nodes")}},
        "outputs": str(folder / "state" / "outputs"),
        "python": sys.executable,
        "resources": (A, B),
    }
    return KubernetesSettings(**{**given, **over})
