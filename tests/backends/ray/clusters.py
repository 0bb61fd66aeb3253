"""A harness over a real Ray cluster: real nodes, agents, groups and processes."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from gavel.backends.launch import Preparation
from gavel.backends.nodes.stored_outputs import StoredOutputs
from gavel.backends.nodes.transfers import is_url
from gavel.backends.outputs import Outputs
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec
from gavel.backends.ray.protocol import RaySettings
from gavel.backends.secret_store import SecretStore
from gavel.clock import SystemClock
from tests.backends.clusters import GRACE_S, NodesHarness, eventually, kill, processes_of


@contextmanager
def a_service_on(
    cluster: LocalRayCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int = 3, address: str = ""
) -> Iterator["RayHarness"]:
    """A service's backend on this cluster, at `address` if that is another one than the cluster's own."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    with closing(RayHarness(folder, address or cluster.address, workers=workers)) as made:
        yield made


class RayHarness(NodesHarness[RayBackend]):
    """`gavel.backends.harness.Harness` over the nodes of a Ray cluster."""

    cannot: Mapping[str, str] = {
        "a_thousand_names_on_a_thousand_nodes_are_one_batch": "a Ray node takes 200 MB, a thousand do not fit here"
    }
    short_s = 3.0
    grace_s = GRACE_S + 0.8

    def __init__(self, folder: Path, address: str, *, workers: int = 3) -> None:
        self.folder = folder
        self.address = address
        self.clock = SystemClock()
        self.workers = workers
        self.own: LocalRayCluster | None = None
        self.outputs_at = str(self.state_dir / "outputs")
        self.backend = self.open()

    def outputs(self) -> Outputs | StoredOutputs:
        return StoredOutputs(self.outputs_at) if is_url(self.outputs_at) else Outputs(Path(self.outputs_at))

    @property
    def state_dir(self) -> Path:  # type: ignore[override]
        return self.folder / "state"

    def open(self, **over: object) -> RayBackend:
        """A service's backend on this cluster, once it has met the nodes."""
        given = {
            "state_dir": self.folder / "state",
            "ray": RaySettings(
                address=self.address,
                node_folder=str(self.folder / "nodes"),
                outputs=self.outputs_at,
                report_period_s=REPORT_PERIOD_S,
            ),
            "clock": self.clock,
            "lease_grace_s": GRACE_S,
            "log_bytes_per_job": 1 << 16,
            "preparation": Preparation(
                secrets_of=SecretStore(self.state_dir).values, shown_folders=(f"{self.folder}:rw",)
            ),
        }
        backend = RayBackend(**{**given, **over})  # type: ignore[arg-type]
        eventually(lambda: self.has_workers(backend), self.limit_s)
        return backend

    def spread(self, nodes: int) -> None:
        """A Ray cluster of its own; the last node is the head, so that the others may be lost."""
        self.backend.close()
        names = [f"node-{index}" for index in range(nodes)][::-1]
        self.own = LocalRayCluster([NodeSpec(name=name, resources={"gavel:a": 1}) for name in names])
        self.own.start()
        self.environ(self.own)
        self.address, self.workers, self.folder = self.own.address, nodes, self.folder / "spread"
        self.backend = self.open()

    def lose_node(self, name: str) -> None:
        assert self.own is not None, "only nodes of a cluster that is spread can be lost"
        self.own.kill_node(name)
        kill(processes_of(self.folder / "nodes" / name))

    def return_node(self, name: str) -> None:
        assert self.own is not None
        self.own.start_node(name)

    def environ(self, cluster: LocalRayCluster) -> None:
        """Drivers of this process join that cluster from now on."""
        os.environ.update(cluster.environment)

    def all_processes(self) -> list[int]:
        """Supervisors and all that runs below them, on every node of this machine."""
        nodes = (self.folder / "nodes").glob("*")
        return [pid for node in nodes for pid in processes_of(node)]

    def close(self) -> None:
        """Nothing is left of the gangs; the cluster stays."""
        self.backend.close()
        if self.own is not None:
            self.own.stop()
        while left := self.all_processes():
            kill(left)


def agent_pids(cluster: LocalRayCluster) -> list[int]:
    """Of the node agents."""
    return [pid for name in cluster.nodes for pid in cluster.pids(name) if "NodeAgent" in _command(pid)]


def _command(pid: int) -> str:
    """Its command line; "" if it is gone by now."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(psutil.Process(pid).cmdline())
    return ""
