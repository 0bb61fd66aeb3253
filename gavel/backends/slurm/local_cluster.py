"""A bounded Slurm cluster of several nodes on this machine, for demo, tests and benchmarks; stopped whole."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from gavel.backends.local_cluster import LocalCluster, free_ports
from gavel.errors import BackendUnavailable

DAEMONS = ("munged", "slurmctld", "slurmd")
START_LIMIT_S = 60.0
WHERE = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
CONF = """ClusterName=gavel
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
SlurmdTimeout={node_timeout_s}
MessageTimeout=30
KillWait=5
MinJobAge=60
GresTypes={gres}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime={longest} DefaultTime=10 State=UP
"""


def missing_daemons() -> str:
    """Return which programs of a Slurm cluster are not installed here, separated by commas; "" if all are."""
    return ", ".join(name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=WHERE) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNodeSpec:
    """A node to start: its accelerators, as {"acc:a": 2}, and its features."""

    name: str
    gres: Mapping[str, int]
    cpus: int = 16
    memory_mb: int = 4000
    features: tuple[str, ...] = ()

    def line(self, host: str, port: int) -> str:
        """Return its line of slurm.conf."""
        gres = ",".join(f"{name}:{count}" for name, count in self.gres.items())
        own = (f" Gres={gres}" if gres else "") + (f" Feature={','.join(self.features)}" if self.features else "")
        where = f"NodeName={self.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        return f"{where} CPUs={self.cpus} RealMemory={self.memory_mb}{own} State=UNKNOWN"

    def gres_lines(self) -> str:
        """Return its lines of gres.conf: counted, without device files."""
        lines = []
        for resource, count in self.gres.items():
            name, _, kind = resource.partition(":")
            lines.append(f"NodeName={self.name} Name={name}{f' Type={kind}' if kind else ''} Count={count}\n")
        return "".join(lines)


class LocalSlurmCluster(LocalCluster):
    """A controller and several node daemons as processes of this machine, with a key, ports and a folder of their own.

    `environment` is what Slurm's commands need to find it: give it to the service. Raises BackendUnavailable if it does
    not come up.
    """

    def __init__(
        self, nodes: Sequence[SlurmNodeSpec], *, longest: str = "INFINITE", node_timeout_s: int = 10, extra: str = ""
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        super().__init__("Slurm", start_limit_s=START_LIMIT_S)
        self.folder.chmod(0o755)  # of the nodes' daemons, and of the socket
        self._settings = {"longest": longest, "node_timeout_s": node_timeout_s}
        self._extra = extra
        self.environment["SLURM_CONF"] = str(self.folder / "slurm.conf")

    def _start(self) -> None:
        self._write()
        self._start_munge()
        self.start_controller()
        for name in self.nodes:
            self._spawn_node(name)
        self._await(lambda: all(state == "idle" for state in self.states().values()), "its nodes are not idle")

    def start_controller(self) -> None:
        """Start the controller (again)."""
        self._run("slurmctld", "slurmctld", "-D")
        self._await(lambda: bool(self.states()), "its controller does not answer")

    def stop_controller(self) -> None:
        """Kill the controller; nodes and what runs there go on."""
        self._kill("slurmctld")

    def start_node(self, name: str) -> None:
        """Start the daemon of a node (again)."""
        self._spawn_node(name)
        self._await(lambda: self.states().get(name) == "idle", f"node {name} is not idle")

    def kill_node(self, name: str) -> None:
        """Kill the daemon of a node and its helpers, as when power is cut; Slurm notices after its time limit."""
        steps = self._steps(name)
        self._kill(name)
        for each in steps:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def run(self, *command: str) -> str:
        """Return what a command of Slurm's prints. Raises CalledProcessError."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

    def states(self) -> dict[str, str]:
        """Return the state of each node; none if the controller does not answer."""
        try:
            rows = self.run("sinfo", "-h", "-N", "-o", "%N %T").split()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return {}
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def _end(self) -> None:
        for name in self.nodes.keys() & self._processes.keys():
            self.kill_node(name)
        super()._end()

    def _write(self) -> None:
        ports, host = free_ports(len(self.nodes) + 1), socket.gethostname().split(".")[0]
        lines = [node.line(host, port) for node, port in zip(self.nodes.values(), ports[1:], strict=True)]
        names = sorted({name.partition(":")[0] for node in self.nodes.values() for name in node.gres})
        conf = CONF.format(
            host=host,
            port=ports[0],
            user=getpass.getuser(),
            folder=self.folder,
            gres=",".join(names) or "gpu",
            nodes="\n".join(lines),
            **self._settings,
        )
        (self.folder / "slurm.conf").write_text(conf + self._extra)
        (self.folder / "gres.conf").write_text("".join(node.gres_lines() for node in self.nodes.values()))
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "state").mkdir()

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o400)
        key.chmod(0o600)
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self._run("munged", "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files)
        self._await((self.folder / "munge.socket").exists, "munge does not start")

    def _spawn_node(self, name: str) -> None:
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        self._run(name, "slurmd", "-D", "-N", name)

    def _run(self, name: str, program: str, *arguments: str) -> None:
        path = shutil.which(program, path=WHERE)
        if path is None:
            raise BackendUnavailable(f"{program} is not installed (Debian: slurm-wlm and munge)")
        self._spawn(name, [path, *arguments])

    def _steps(self, name: str) -> list[psutil.Process]:
        """Return the helpers of a node that run its jobs, known by their sockets, and all that runs below them."""
        own, steps = f"{self.folder}/spool-{name}/", list[psutil.Process]()
        for each in psutil.process_iter(["name"]):
            with suppress(psutil.Error):
                sockets = each.net_connections("unix") if each.info["name"] == "slurmstepd" else ()
                if any(str(socket_.laddr).startswith(own) for socket_ in sockets):
                    steps += [each, *each.children(recursive=True)]
        return steps
