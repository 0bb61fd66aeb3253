"""One gang of this machine, kept in its directory: start, adopt, watch, stop, forget."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.output import Mask
from gavel.backends.reports import ReportReader
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, JobId

JSON_BYTES = 1 << 20
GangKey = tuple[JobId, int]
"""A job and the generation of its lease."""

SUPERVISE = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(__file__).with_name("supervisor.py")))
START_LIMIT_S = 10.0  # a supervisor that is silent for so long after its start has failed


class LocalGang:
    """A gang that the local backend knows. `state` moves only forward: WAITING, RUNNING, ENDED."""

    def __init__(self, instruction: LaunchGang, directory: Path, checkpoints: Path, lease_boottime_s: float) -> None:
        """`directory` may lead through this service's own link; the gang's processes get the resolved path."""
        self.instruction = instruction
        self.directory = directory
        self._home = directory.resolve()
        self.state = GangState.WAITING
        self.lease_boottime_s = lease_boottime_s
        self.is_stopping = False
        self.exit: GangExit | None = None
        self.started_boottime_s: float | None = None
        self.ended_boottime_s: float | None = None
        self.reports = ReportReader(
            directory / "reports.jsonl",
            generation=instruction.generation,
            start_step=instruction.start_step,
            total_steps=instruction.total_steps,
            checkpoints=checkpoints,
        )
        self._process: tuple[int, int] | None = None  # pid and start time of the supervisor
        self._announced_until_boottime_s = 0.0

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.instruction.job_id, self.instruction.generation

    # --- beginnings ---

    def remember(self) -> None:
        """Write the gang's file, so that a restarted service knows the gang even while it only waits."""
        self._home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        record = {"boot_id": machine.boot_id(), "lease_boottime_s": self.lease_boottime_s}
        self._write("gang.json", record | {"instruction": asdict(self.instruction)})

    def start(self, launch: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        """Start the supervisor and return its pid at once. Raises OSError, after which nothing runs."""
        self._write_launch(launch)
        pid = spawn((*SUPERVISE, str(self._home)), environment, self.directory / "supervisor.err")
        self._is_run_by(pid)
        return pid

    def start_warm(self, launch: Mapping[str, Any], begin: Callable[[], int | None]) -> int | None:
        """Let `begin` begin the lease of a supervisor that waits for it; return its pid, None if there is none."""
        self._write_launch(launch)
        pid = begin()
        if pid is not None:
            self._is_run_by(pid)
        return pid

    def _write_launch(self, launch: Mapping[str, Any]) -> None:
        self._write("launch.json", launch)
        self.reports.mask = Mask(launch.get("secrets", {}).values())

    def _is_run_by(self, pid: int) -> None:
        self._process = (pid, machine.start_time(pid) or 0)
        self.state = GangState.RUNNING

    @classmethod
    def adopt(cls, directory: Path, checkpoints: Path) -> "LocalGang | None":
        """Return the gang that an earlier service left in this directory; None if its file is not complete."""
        record = read_object(directory / "gang.json")
        if record is None:
            return None
        lease = read_object(directory / "lease.json") or {}
        lease_boottime_s = lease.get("expires_boottime_s", record["lease_boottime_s"])
        gang = cls(launch_from(record["instruction"]), directory, checkpoints, lease_boottime_s)
        gang.is_stopping = lease.get("stop", False)
        with suppress(FileNotFoundError, ValueError, KeyError):
            gang.reports.mask = Mask(machine.read_json(str(directory / "launch.json"))["secrets"].values())
        is_other_boot = record["boot_id"] != machine.boot_id()
        if not is_other_boot:  # boottimes of another boot mean nothing
            gang._look_for_start()
        exit_ = read_object(directory / "exit.json")
        if exit_ is not None:
            gang._take_exit({**exit_, "boottime_s": machine.boottime_s()} if is_other_boot else exit_)
        elif is_other_boot:
            gang.lose("the machine was restarted")
        elif (directory / "launch.json").exists():
            gang.state = GangState.RUNNING
            gang._announced_until_boottime_s = machine.boottime_s() + START_LIMIT_S
        return gang

    # --- orders ---

    def extend(self, lease_boottime_s: float) -> None:
        """Move the lease end later; no effect once the lease is over or a stop was requested."""
        is_live = self.state is not GangState.ENDED and not self.is_stopping
        if is_live and machine.boottime_s() < self.lease_boottime_s < lease_boottime_s:
            self.lease_boottime_s = lease_boottime_s
            self._write_lease()

    def stop(self, reason: str) -> None:
        """Ask a running gang to end in good order; end a waiting one."""
        if self.state is GangState.WAITING:
            self.end(GangOutcome.PREEMPTED, reason or "stopped before it started")
        elif self.state is GangState.RUNNING and not self.is_stopping:
            self.is_stopping = True
            self._write_lease()

    def end(self, outcome: GangOutcome, message: str) -> None:
        """End the gang now and write its exit, as no supervisor will: a restarted service must not start it."""
        exit_record = {"outcome": outcome, "exit_code": 0, "message": message, "log_tail": ""}
        exit_record |= {"boottime_s": machine.boottime_s()}
        self._write("exit.json", exit_record)
        self._take_exit(exit_record)

    def lose(self, message: str) -> None:
        """End the gang as lost: its supervisor is gone and none of its processes is left."""
        self.end(GangOutcome.LOST, message)

    def forget(self) -> None:
        """Delete everything of the gang but its log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- watching ---

    def look(self) -> None:
        """Check whether the gang ended: it is ENDED once its supervisor and all its processes are gone."""
        if self.state is not GangState.RUNNING:
            return
        self._look_for_start()
        is_alive = self._is_supervised()  # checked before the exit, which the supervisor writes while it lives
        exit_record = read_object(self.directory / "exit.json")
        if exit_record is not None and not is_alive:
            self._take_exit(exit_record)
        elif not is_alive and not self._kill_leftovers():
            self.lose(f"its supervisor died{self._last_words()}")

    def supervisor_pid(self) -> int | None:
        """Return the supervisor's pid; None before the supervisor announced itself."""
        return self._process[0] if self._process else None

    def _look_for_start(self) -> None:
        if self.started_boottime_s is None:
            record = read_object(self.directory / "started.json")
            self.started_boottime_s = record["boottime_s"] if record else None

    def _is_supervised(self) -> bool:
        if self._process is None:
            record = read_object(self.directory / "supervisor.json")
            if record is None:
                return self._may_still_announce()
            self._process = (record["pid"], record["start_time"])
        pid, began = self._process
        if machine.start_time(pid) == began:
            return True
        with suppress(ChildProcessError):  # not our child: an earlier service started it, and init reaps it
            os.waitpid(pid, os.WNOHANG)
        return False

    def _may_still_announce(self) -> bool:
        if machine.boottime_s() < self._announced_until_boottime_s:
            return True
        self.is_stopping = True
        self._write_lease()  # a supervisor that appears later reads this first and starts nothing
        return False

    def _take_exit(self, exit_record: Mapping[str, Any]) -> None:
        message = str(exit_record["message"])
        if self.reports.malformed:
            message = f"{message}; {self.reports.malformed} malformed reports were ignored".removeprefix("; ")
        self.exit = GangExit(
            outcome=GangOutcome(exit_record["outcome"]),
            exit_code=int(exit_record["exit_code"]),
            message=message,
            log_tail=str(exit_record["log_tail"]),
        )
        self.ended_boottime_s = float(exit_record["boottime_s"])
        self.state = GangState.ENDED

    def _kill_leftovers(self) -> bool:
        """Kill processes that the ranks started and left; return True while there was one."""
        left = [pid for pid in _processes_with(f"GAVEL_GANG_DIR={self._home}".encode())]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(left)

    def _last_words(self) -> str:
        """Return the end of the supervisor's standard error, if any."""
        try:
            words = (self.directory / "supervisor.err").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""
        return f": {self.reports.mask.beginning(words.splitlines()[-1], 200)}" if words else ""

    # --- files ---

    def _write_lease(self) -> None:
        self._write("lease.json", {"expires_boottime_s": self.lease_boottime_s, "stop": self.is_stopping})

    def _write(self, name: str, value: object) -> None:
        machine.write_json(str(self.directory / name), value)


def spawn(argv: tuple[str, ...], environment: Mapping[str, str], errors: Path) -> int:
    """Start a supervisor and return its pid; its own output goes to the file `errors`. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(errors), flags, 0o600),
    ]
    return os.posix_spawn(argv[0], argv, dict(environment), file_actions=files, setsigmask=())


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None without a plain file or if it holds none (power was lost while it was new)."""
    try:
        with open(path, encoding="utf-8", opener=_open_plain) as file:
            value = json.loads(file.read(JSON_BYTES))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _processes_with(variable: bytes) -> list[int]:
    """Return the pids of all processes that were started with this variable in their environment."""
    pids = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # gone, or another user's
                if variable in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def launch_from(fields: Mapping[str, Any]) -> LaunchGang:
    """Return the LaunchGang that `asdict` turned into JSON."""
    lists = {name: tuple(fields.get(name, ())) for name in ("argv", "worker_ids", "secrets")}
    return LaunchGang(**{**fields, **lists})
