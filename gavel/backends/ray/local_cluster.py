"""A bounded Ray cluster of several nodes on this machine, for demo, tests and benchmarks; stopped whole."""

import json
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from gavel.backends.local_cluster import STOP_LIMIT_S, LocalCluster, free_ports
from gavel.errors import BackendUnavailable

START_LIMIT_S = 90.0
OBJECT_STORE_BYTES = 80_000_000
REPORT_PERIOD_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to start: what `ray start` is told. Two CPUs keep its workers warm; they run nothing of a job.

    `address`: another than this machine's own; a network namespace's with `within`, the command that runs others in it.
    `options` are more arguments of `ray start`.
    """

    name: str
    resources: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    within: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments of `ray start`."""
        labels = {"gavel/node": self.name, **self.labels}
        return [
            f"--num-cpus={self.cpus}",
            f"--resources={json.dumps(dict(self.resources))}",
            "--labels=" + ",".join(f"{name}={value}" for name, value in labels.items()),
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            "--disable-usage-stats",
            "--include-log-monitor=false",
            "--block",
            *([f"--node-ip-address={self.address}"] if self.address else []),
            *self.options,
        ]


class LocalRayCluster(LocalCluster):
    """Ray nodes as processes of this machine, the first one the head; own port, token and temporary folder.

    `environment` is what a driver needs to join: give it to the service, with `address`. Raises BackendUnavailable with
    Ray's own words if a node does not start.
    """

    def __init__(self, nodes: Sequence[NodeSpec], *, report_period_s: float = REPORT_PERIOD_S) -> None:
        super().__init__("Ray", start_limit_s=START_LIMIT_S)
        self.nodes = {node.name: node for node in nodes}
        self._head = nodes[0].name
        self._host = nodes[0].address or _host()
        (self._port,) = free_ports(1, self._host)
        self._system = {
            "raylet_report_resources_period_milliseconds": round(report_period_s * 1000),
            "health_check_initial_delay_ms": 1000,
            "health_check_period_ms": 1000,
            "health_check_failure_threshold": 3,
        }
        self.environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(24)}

    @property
    def address(self) -> str:
        """Return the address at which a driver joins."""
        return f"{self._host}:{self._port}"

    def _start(self) -> None:
        """Start all nodes; the head first, the others at the same time."""
        self._spawn_node(self._head)
        self._await_node(self._head)
        others = [name for name in self.nodes if name != self._head]
        for name in others:
            self._spawn_node(name)
        for name in others:
            self._await_node(name)

    def start_node(self, name: str) -> None:
        """Start this node (again)."""
        self._spawn_node(name)
        self._await_node(name)

    def kill_node(self, name: str) -> None:
        """Kill all processes of Ray on this node, as when power is cut."""
        process = self._processes.pop(name)
        for each in _tree(process.pid):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(STOP_LIMIT_S)

    def kill_all(self) -> None:
        """Kill the whole cluster, as when power is cut."""
        for name in [*self._processes][::-1]:
            self.kill_node(name)

    def pids(self, name: str) -> list[int]:
        """Return the pids of every process of a node."""
        return [each.pid for each in _tree(self._processes[name].pid)]

    def _end(self) -> None:
        self.kill_all()  # an orderly end would take seconds and nothing needs it
        for each in self._strays():
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def _strays(self) -> list[psutil.Process]:
        """Return the processes with our folder on their command line, as all of Ray's own have."""
        processes = psutil.process_iter(["cmdline"])
        return [each for each in processes if any(str(self.folder) in word for word in each.info["cmdline"] or ())]

    def _spawn_node(self, name: str) -> None:
        spec = self.nodes[name]
        own = self.folder / str([*self.nodes].index(name))  # nodes that start in one folder would share a socket
        shutil.rmtree(own, ignore_errors=True)  # a head takes an earlier start's files for a running cluster
        program = [*spec.within, sys.executable, "-m", "ray.scripts.scripts", "start", f"--temp-dir={own}"]
        if name == self._head:
            where = ["--head", f"--port={self._port}", "--include-dashboard=false"]
            where += [f"--system-config={json.dumps(self._system)}"]
        else:
            where = [f"--address={self.address}"]
        self._log(name).unlink(missing_ok=True)  # an earlier start's words would be taken for this one's
        self._spawn(name, [*program, *where, *spec.arguments()], PYTHONUNBUFFERED="1", **spec.environment)

    def _await_node(self, name: str) -> None:
        """Wait until the node runs. On a busy machine Ray gives up after half a minute: it is tried once more."""
        if self._comes_up(name):
            return
        self.kill_node(name)
        self._spawn_node(name)
        if not self._comes_up(name):
            text = self._log(name).read_text(errors="replace").strip()
            raise BackendUnavailable(f"Ray node {name} did not start: {text[-500:]}")

    def _comes_up(self, name: str) -> bool:
        gives_up_at_s = time.monotonic() + START_LIMIT_S
        while b"Ray runtime started" not in self._log(name).read_bytes():
            if self._processes[name].poll() is not None or time.monotonic() > gives_up_at_s:
                return False
            time.sleep(0.05)
        return True


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _host() -> str:
    """The address that Ray gives this machine: that of the route outwards, since it does not work over loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return socket.gethostbyname(socket.gethostname())
        address: str = probe.getsockname()[0]
        return address
