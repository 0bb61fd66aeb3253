"""A harness over a real Slurm cluster: real daemons, allocations, agents and processes."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gavel.backends.launch import Preparation
from gavel.backends.outputs import Outputs
from gavel.backends.secret_store import SecretStore
from gavel.backends.slurm.backend import SlurmBackend
from gavel.backends.slurm.local_cluster import LocalSlurmCluster, SlurmNodeSpec
from gavel.backends.slurm.protocol import SlurmSettings
from gavel.clock import SystemClock
from tests.backends.clusters import GRACE_S, AllocationsHarness, eventually, kill


@contextmanager
def a_service_on(
    cluster: LocalSlurmCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, /, *, workers: int = 3, **settings: Any
) -> Iterator["SlurmHarness"]:
    """A service's backend on this cluster, with folders of its own; nothing of it is left afterwards."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    with closing(SlurmHarness(folder, cluster, workers=workers, settings=settings)) as made:
        yield made


class SlurmHarness(AllocationsHarness[SlurmBackend]):
    """`gavel.backends.harness.Harness` over the nodes of a Slurm cluster."""

    cannot: Mapping[str, str] = {
        "a_thousand_names_on_a_thousand_nodes_are_one_batch": "a thousand daemons of Slurm do not fit on one machine"
    }
    short_s = 25.0
    grace_s = GRACE_S + 2.0

    def __init__(
        self, folder: Path, cluster: LocalSlurmCluster, *, workers: int, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, self.cluster, self.workers = folder, cluster, workers
        self.clock = SystemClock()
        self.settings = dict(settings or {})
        self.own: LocalSlurmCluster | None = None
        self.backend = self.open()

    @property
    def state_dir(self) -> Path:  # type: ignore[override]
        return self.folder / "state"

    def outputs(self) -> Outputs:
        return Outputs(self.state_dir / "outputs")

    def slurm(self) -> SlurmSettings:
        own: dict[str, Any] = {
            "folder": str(self.folder / "shared"),
            "node_folder": str(self.folder / "nodes"),
            "outputs": str(self.state_dir / "outputs"),
            "gres": ("acc",),
        }
        return SlurmSettings(**{**own, **self.settings})

    def open(self, **over: object) -> SlurmBackend:
        """A service's backend on this cluster, once it has met the nodes."""
        given = {
            "state_dir": self.state_dir,
            "slurm": self.slurm(),
            "clock": self.clock,
            "lease_grace_s": GRACE_S,
            "log_bytes_per_job": 1 << 16,
            "preparation": Preparation(
                secrets_of=SecretStore(self.state_dir).values, shown_folders=(f"{self.folder}:rw",)
            ),
        }
        backend = SlurmBackend(**{**given, **over})  # type: ignore[arg-type]
        eventually(lambda: self.has_workers(backend), self.limit_s)
        return backend

    def spread(self, nodes: int) -> None:
        """A Slurm cluster of its own, node i with the one worker `a-i`."""
        self.backend.close()
        names = [f"node-{index}" for index in range(nodes)]
        self.own = LocalSlurmCluster([SlurmNodeSpec(name=name, gres={"acc:a": 1}) for name in names])
        self.own.start()
        os.environ.update(self.own.environment)
        self.cluster, self.workers, self.folder = self.own, nodes, self.folder / "spread"
        self.backend = self.open()

    def lose_node(self, name: str) -> None:
        """All of the node's processes are killed at once."""
        self.cluster.kill_node(name)
        kill(self.processes_on(name))

    def return_node(self, name: str) -> None:
        self.cluster.start_node(name)

    def jobs(self) -> list[str]:
        """The allocations that Slurm has not ended, each with its number, name and state."""
        return self.cluster.run("squeue", "-h", "-o", "%i %j %T").splitlines()

    def close(self) -> None:
        """Nothing is left of the gangs; the cluster of all tests stays."""
        self.backend.close()
        with suppress(Exception):
            self.cluster.run("scancel", "--me")
        while left := self.all_processes():
            kill(left)
        if self.own is not None:
            self.own.stop()
        else:
            eventually(lambda: not self.jobs(), self.limit_s)
