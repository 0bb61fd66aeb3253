"""A real local cluster for tests: real processes, the machine's clock, everything below a temporary folder."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from gavel.backends import control_groups
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.code_store import CodeStore
from gavel.backends.harness import Behaviour, gang
from gavel.backends.launch import Preparation
from gavel.backends.local import LocalBackend
from gavel.backends.machine import descendants, read_json, stat_fields
from gavel.backends.nodes.stored_outputs import StoredOutputs
from gavel.backends.outputs import Outputs
from gavel.backends.secret_store import SecretStore
from gavel.clock import SystemClock
from gavel.errors import BackendUnavailable
from gavel.ports import ClusterBackend, Instruction, LaunchGang
from gavel.types import Observation, Worker
from tests.backends.code import stored

LIMIT_S = 30.0
GRACE_S = 0.4
JOBS = Path(__file__).with_name("jobs.py")


def accelerators() -> tuple[LocalAccelerator, ...]:
    """Workers a-0 and a-1 on the first core, b-0 on the last."""
    cpus = sorted(os.sched_getaffinity(0))
    last = cpus[1:][-1:]  # with one core only, b-0 is not pinned
    workers = (("a-0", "a", cpus[:1]), ("a-1", "a", cpus[:1]), ("b-0", "b", last))
    return tuple(
        LocalAccelerator(worker=Worker(id=name, node="here", accelerator_type=kind), cpus=tuple(pinned))
        for name, kind, pinned in workers
    )


def eventually(holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Return once the condition holds; fail after the limit."""
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)


def processes_of(folder: Path, gang: str = "") -> list[int]:
    """Supervisors of gangs below this folder (or of the one in this directory), and everything under them."""
    mark = (gang or f"{folder}/gangs/").encode()
    pids = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                root = Path("/proc", name)
                is_ours = mark in (root / "cmdline").read_bytes() or mark in (root / "environ").read_bytes()
                if is_ours and stat_fields(int(name))[0] not in "ZX":
                    pids |= {int(name), *descendants(int(name))}
    return sorted(pids)


def command_of(pid: int) -> bytes:
    """The command line of a process; nothing if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def pid_of(inside: str) -> int:
    """The process that calls itself NAMESPACE:PID[:START], the inode of its namespace of processes; 0: there is none.

    START is the start time of `/proc/PID/stat`: a new namespace may have the number of one that is gone.
    """
    namespace, pid, *start = inside.split(":")
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            is_in_it = str((status.parent / "ns" / "pid").stat().st_ino) == namespace
            is_in_it = is_in_it and start in ([], [stat_fields(int(status.parent.name))[19]])
            if is_in_it and fields["NSpid"].split()[-1] == pid and not fields["State"].strip().startswith("Z"):
                return int(status.parent.name)
    return 0


def is_supervisor(pid: int) -> bool:
    """Whether the process is a supervisor or a part of a gang's sandbox, and no program of a job; or is gone."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"supervisor.py" in words or b"sandbox_init" in words
    return True


def bare_python(folder: Path) -> str:
    """An interpreter whose virtual environments have no pip, and are made at once."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -I -m venv --without-pip "$@"\n')
    python.chmod(0o755)
    return str(python)


B = TypeVar("B", bound=ClusterBackend)


class Submitted:
    """What users give to a service with this state folder, whose workers have the names that checks use."""

    state_dir: Path

    def worker(self, name: str) -> str:
        return name

    @property
    def python(self) -> str:
        return bare_python(self.state_dir.parent)

    def store_code(self, files: Mapping[str, bytes]) -> str:
        return stored(CodeStore(self.state_dir, limit_bytes=1 << 30, kept_s=3600), files)

    def store_secret(self, user: str, name: str, value: str) -> None:
        SecretStore(self.state_dir).put(user, name, value)

    def outputs(self) -> Outputs | StoredOutputs:
        return Outputs(self.state_dir / "outputs")


class Restarted(Submitted, Generic[B]):
    """A service over real processes, which tests end and start again; what is the same on every cluster."""

    limit_s = LIMIT_S
    clock: SystemClock
    backend: B

    def open(self) -> B:
        """A service's backend on this folder."""
        raise NotImplementedError

    def all_processes(self) -> list[int]:
        """Supervisors and all that runs below them, on every node of this machine."""
        raise NotImplementedError

    def now_s(self) -> float:
        return self.clock.now_s()

    def argv(self, behaviour: Behaviour) -> tuple[str, ...]:
        if behaviour is Behaviour.MISSING:
            return ("no-such-program",)
        return (sys.executable, "-I", "-S", str(JOBS), behaviour)

    def wait_until(self, holds: Callable[[Observation], bool], limit_s: float = 0.0) -> Observation:
        seen = []

        def look() -> bool:
            seen[:] = [self.backend.observe()]
            return holds(seen[0])

        eventually(look, limit_s or self.limit_s)
        return seen[0]

    def wait_blindly(self, until_s: float) -> None:
        eventually(lambda: self.now_s() >= until_s)

    def crash(self) -> None:
        self.backend.close()

    def recover(self) -> None:
        self.backend = self.open()

    def processes(self) -> int:
        return sum(not is_supervisor(pid) for pid in self.all_processes())


class NodesHarness(Restarted[B]):
    """The same over the nodes of a cluster, of which so many `workers` are there at the start."""

    limit_s = 60.0
    workers: int

    def has_workers(self, backend: B) -> bool:
        try:
            return len(backend.observe().cluster.workers) == self.workers
        except BackendUnavailable:
            return False


class AllocationsHarness(NodesHarness[B]):
    """The same where each gang has an agent on each of its nodes, in a folder of its own there."""

    folder: Path

    def all_processes(self) -> list[int]:
        return [pid for node in (self.folder / "nodes").glob("*") for pid in self.processes_on(node.name)]

    def processes_on(self, node: str) -> list[int]:
        """Supervisors and all that runs below them, on one node."""
        agents = (self.folder / "nodes" / node / "agents").glob("*")
        return [pid for agent in agents for pid in processes_of(agent)]


def tolerant(harness: NodesHarness[Any], holds: Callable[[Observation], bool]) -> Callable[[], bool]:
    """`holds`, false while the cluster cannot be observed."""

    def look() -> bool:
        with suppress(BackendUnavailable):
            return holds(harness.backend.observe())
        return False

    return look


def kill(pids: Iterable[int]) -> None:
    """Kill processes that may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class LocalHarness(Restarted[LocalBackend]):
    """`gavel.backends.harness.Harness` over real processes."""

    cannot: Mapping[str, str] = {}
    short_s = 1.5
    grace_s = GRACE_S + 1.6

    def __init__(self, folder: Path) -> None:
        self.folder = self.state_dir = folder
        self.clock = SystemClock()
        self.here = accelerators()
        self.backend = self.open()

    def open(self, **over: object) -> LocalBackend:
        """A service's backend on this folder."""
        given = {
            "state_dir": self.folder,
            "accelerators": self.here,
            "clock": self.clock,
            "lease_grace_s": GRACE_S,
            "log_bytes_per_job": 1 << 16,
            "preparation": self.preparation(),
        }
        return LocalBackend(**{**given, **over})  # type: ignore[arg-type]

    def preparation(self, **over: Any) -> Preparation:
        """How jobs run here: they see and may write what a test has put beside the state folder."""
        shown = (f"{self.folder.parent}:rw",)
        return Preparation(secrets_of=SecretStore(self.folder).values, **{"shown_folders": shown, **over})

    def spread(self, nodes: int) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        self.crash()
        self.here = tuple(
            LocalAccelerator(
                worker=Worker(id=f"a-{index}", node=f"node-{index:04}", accelerator_type="a"),
                cpus=(cpus[index % len(cpus)],),
            )
            for index in range(nodes)
        )
        self.recover()

    def lose_node(self, name: str) -> None:
        """A virtual node is a part of this machine: its gangs are killed, and the service is told that it is gone."""
        self.crash()
        self._there = self.here
        gone = {each.worker.id for each in self.here if each.worker.node == name}
        self.here = tuple(each for each in self.here if each.worker.node != name)
        for path in (path for home in self.homes for path in (home / "gangs").glob("*/*/launch.json")):
            if gone & {rank["worker"] for rank in read_json(str(path))["ranks"]}:
                kill(processes_of(path.parents[2], str(path.parent)))
        self.recover()

    def return_node(self, name: str) -> None:
        self.crash()
        self.here = self._there
        self.recover()

    @property
    def homes(self) -> tuple[Path, ...]:
        """The folders below which gangs have theirs."""
        return (self.folder,)

    def all_processes(self) -> list[int]:
        return [pid for home in self.homes for pid in processes_of(home)]

    def close(self) -> None:
        """End every process of the cluster."""
        self.backend.close()
        while left := self.all_processes():
            kill(left)
        for home in self.homes:
            control_groups.remove_groups(control_groups.prefix_of_all(str(home / "gangs")))
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def script(harness: LocalHarness, text: str, *workers: str, job_id: str = "j1", **over: object) -> list[Instruction]:
    """A gang that runs this shell script."""
    set_resource, start = gang(harness, job_id, *workers)
    assert isinstance(start, LaunchGang)
    fields = {name: getattr(start, name) for name in LaunchGang.__dataclass_fields__}
    launched = LaunchGang(**{**fields, "argv": ("bash", "-c", text), "total_steps": 100, **over})
    return [set_resource, launched]


def directory(harness: LocalHarness, job_id: str, generation: int = 1) -> Path:
    return harness.folder / "gangs" / job_id / str(generation)
