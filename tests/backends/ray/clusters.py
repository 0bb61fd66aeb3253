"""A harness over a real Ray cluster: real nodes, agents, groups and processes."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from gavel.backends.harness import Behaviour
from gavel.backends.launch import Preparation
from gavel.backends.nodes.stored_outputs import StoredOutputs
from gavel.backends.nodes.transfers import is_url
from gavel.backends.outputs import Outputs
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec
from gavel.backends.ray.protocol import RaySettings
from gavel.backends.secret_store import SecretStore
from gavel.clock import SystemClock
from gavel.errors import BackendUnavailable
from gavel.types import Observation
from tests.backends.clusters import GRACE_S, JOBS, Submitted, eventually, is_supervisor, processes_of

LIMIT_S = 60.0


@contextmanager
def a_service_on(
    cluster: LocalRayCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, *, workers: int = 3, address: str = ""
) -> Iterator["RayHarness"]:
    """A service's backend on this cluster, at `address` if that is another one than the cluster's own."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    with closing(RayHarness(folder, address or cluster.address, workers=workers)) as made:
        yield made


class RayHarness(Submitted):
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
        eventually(lambda: self._has_workers(backend), LIMIT_S)
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
        _kill(processes_of(self.folder / "nodes" / name))

    def return_node(self, name: str) -> None:
        assert self.own is not None
        self.own.start_node(name)

    def environ(self, cluster: LocalRayCluster) -> None:
        """Drivers of this process join that cluster from now on."""
        os.environ.update(cluster.environment)

    def now_s(self) -> float:
        return self.clock.now_s()

    def argv(self, behaviour: Behaviour) -> tuple[str, ...]:
        if behaviour is Behaviour.MISSING:
            return ("no-such-program",)
        return (sys.executable, "-I", "-S", str(JOBS), behaviour)

    def wait_until(self, holds: Callable[[Observation], bool], limit_s: float = LIMIT_S) -> Observation:
        seen = []

        def look() -> bool:
            seen[:] = [self.backend.observe()]
            return holds(seen[0])

        eventually(look, limit_s)
        return seen[0]

    def wait_blindly(self, until_s: float) -> None:
        eventually(lambda: self.now_s() >= until_s)

    def crash(self) -> None:
        self.backend.close()

    def recover(self) -> None:
        self.backend = self.open()

    def processes(self) -> int:
        return sum(not is_supervisor(pid) for pid in self.all_processes())

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
            _kill(left)

    def _has_workers(self, backend: RayBackend) -> bool:
        try:
            return len(backend.observe().cluster.workers) == self.workers
        except BackendUnavailable:
            return False


def agent_pids(cluster: LocalRayCluster) -> list[int]:
    """Of the node agents."""
    return [pid for name in cluster.nodes for pid in cluster.pids(name) if "NodeAgent" in _command(pid)]


def _command(pid: int) -> str:
    """Its command line; "" if it is gone by now."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
