"""A bounded Kubernetes cluster of several nodes on this machine, for demo, tests and benchmarks; stopped whole."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from gavel.backends.kubernetes.control_plane import ControlPlane
from gavel.backends.kubernetes.kubelets import LocalKubelets, NodeSpec


class LocalKubernetesCluster:
    """A control plane and the kubelets of its nodes. Raises BackendUnavailable if it does not come up."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self.plane = ControlPlane()
        self._nodes = nodes
        self.environment = self.plane.environment
        self.kubelets: LocalKubelets

    def __enter__(self) -> Self:
        self.plane.start()
        try:
            self.kubelets = LocalKubelets(str(self.plane.kubeconfig), self.plane.folder / "pods", self._nodes)
            self.kubelets.start()
        except BaseException:
            self.plane.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kubelets.stop()
        self.plane.stop()
