"""One gang of this machine as its directory tells it: started, adopted, watched, told, forgotten."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.reports import ReportReader
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, JobId

JSON_BYTES = 1 << 20
GangKey = tuple[JobId, int]
"""A job and the token of its lease."""

SUPERVISE = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(__file__).with_name("supervisor.py")))
START_LIMIT_S = 10.0  # a supervisor that has not announced itself by then never will


class LocalGang:
    """A gang that the local backend knows. `state` moves only forward: WAITING, RUNNING, ENDED."""

    def __init__(self, instruction: LaunchGang, directory: Path, checkpoints: Path, lease_boottime_s: float) -> None:
        """`directory` may lead through a name that is only ours; the gang's processes know it by its real one."""
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
            token=instruction.token,
            start_step=instruction.start_step,
            total_steps=instruction.total_steps,
            checkpoints=checkpoints,
        )
        self._process: tuple[int, int] | None = None  # pid and start time of the supervisor
        self._announced_until_boottime_s = 0.0

    @property
    def key(self) -> GangKey:
        """Job and token."""
        return self.instruction.job_id, self.instruction.token

    # --- beginnings ---

    def remember(self) -> None:
        """A restarted service finds this gang again, even while it only waits."""
        self._home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        said = {"boot_id": machine.boot_id(), "lease_boottime_s": self.lease_boottime_s}
        self._write("gang.json", said | {"instruction": asdict(self.instruction)})

    def start(self, launch: Mapping[str, Any], environment: Mapping[str, str]) -> int:
        """Start the supervisor; its pid, at once. Raises OSError, after which nothing runs."""
        self._write("launch.json", launch)
        pid = self._spawn((*SUPERVISE, str(self._home)), environment)
        self._process = (pid, machine.start_time(pid) or 0)
        self.state = GangState.RUNNING
        return pid

    @classmethod
    def adopt(cls, directory: Path, checkpoints: Path) -> "LocalGang | None":
        """The gang that an earlier service left in this directory; None if its launch never became whole."""
        said = read_object(directory / "gang.json")
        if said is None:
            return None
        lease = read_object(directory / "lease.json") or {}
        lease_boottime_s = lease.get("expires_boottime_s", said["lease_boottime_s"])
        gang = cls(launch_from(said["instruction"]), directory, checkpoints, lease_boottime_s)
        gang.is_stopping = lease.get("stop", False)
        is_other_boot = said["boot_id"] != machine.boot_id()
        if not is_other_boot:  # another boot's instants mean nothing now
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
        """Move the lease end later; one that is over, or was told to stop, stays so."""
        is_live = self.state is not GangState.ENDED and not self.is_stopping
        if is_live and machine.boottime_s() < self.lease_boottime_s < lease_boottime_s:
            self.lease_boottime_s = lease_boottime_s
            self._write_lease()

    def stop(self, reason: str) -> None:
        """A running gang ends itself in good order; a waiting one has ended."""
        if self.state is GangState.WAITING:
            self.end(GangOutcome.PREEMPTED, reason or "stopped before it started")
        elif self.state is GangState.RUNNING and not self.is_stopping:
            self.is_stopping = True
            self._write_lease()

    def end(self, outcome: GangOutcome, message: str) -> None:
        """It ends here and now. No supervisor says so, hence we do: a restarted service must not start it after all."""
        said = {"outcome": outcome, "exit_code": 0, "message": message, "log_tail": ""}
        said |= {"boottime_s": machine.boottime_s()}
        self._write("exit.json", said)
        self._take_exit(said)

    def lose(self, message: str) -> None:
        """Its supervisor is gone and nothing of it is left."""
        self.end(GangOutcome.LOST, message)

    def forget(self) -> None:
        """Nothing is kept of it but its log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- watching ---

    def look(self) -> None:
        """See whether it ended: its supervisor said so, or died. Only then, with nothing left of it, it is ENDED."""
        if self.state is not GangState.RUNNING:
            return
        self._look_for_start()
        is_alive = self._is_supervised()  # before the exit: it is written while the supervisor is alive
        said = read_object(self.directory / "exit.json")
        if said is not None and not is_alive:
            self._take_exit(said)
        elif not is_alive and not self._kill_leftovers():
            self.lose(f"its supervisor died{self._last_words()}")

    def supervisor_pid(self) -> int | None:
        """The supervisor's process; None before it announced itself."""
        return self._process[0] if self._process else None

    def _look_for_start(self) -> None:
        if self.started_boottime_s is None:
            said = read_object(self.directory / "started.json")
            self.started_boottime_s = said["boottime_s"] if said else None

    def _is_supervised(self) -> bool:
        if self._process is None:
            said = read_object(self.directory / "supervisor.json")
            if said is None:
                return self._may_still_announce()
            self._process = (said["pid"], said["start_time"])
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
        self._write_lease()  # should it appear later, it reads this first and starts nothing
        return False

    def _take_exit(self, said: Mapping[str, Any]) -> None:
        message = str(said["message"])
        if self.reports.malformed:
            message = f"{message}; {self.reports.malformed} malformed reports were ignored".removeprefix("; ")
        self.exit = GangExit(
            outcome=GangOutcome(said["outcome"]),
            exit_code=int(said["exit_code"]),
            message=message,
            log_tail=str(said["log_tail"]),
        )
        self.ended_boottime_s = float(said["boottime_s"])
        self.state = GangState.ENDED

    def _kill_leftovers(self) -> bool:
        """Ranks die with their supervisor, what they started may not: True while something was still there."""
        left = [pid for pid in _processes_with(f"GAVEL_GANG_DIR={self._home}".encode())]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(left)

    def _last_words(self) -> str:
        """The end of what the supervisor wrote to its standard error, if anything."""
        try:
            words = (self.directory / "supervisor.err").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return ""
        return f": {words.splitlines()[-1][:200]}" if words else ""

    # --- files ---

    def _write_lease(self) -> None:
        self._write("lease.json", {"expires_boottime_s": self.lease_boottime_s, "stop": self.is_stopping})

    def _spawn(self, argv: tuple[str, ...], environment: Mapping[str, str]) -> int:
        """The program's pid; what it says itself goes to supervisor.err."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(self.directory / "supervisor.err"), flags, 0o600),
        ]
        return os.posix_spawn(argv[0], argv, dict(environment), file_actions=files, setsigmask=())

    def _write(self, name: str, value: object) -> None:
        machine.write_json(str(self.directory / name), value)


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such plain file or it holds none (power was lost while it was new)."""
    try:
        with open(path, encoding="utf-8", opener=_open_plain) as file:
            value = json.loads(file.read(JSON_BYTES))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _processes_with(variable: bytes) -> list[int]:
    """Every process that was started with this variable in its environment."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # gone, or another user's
                if variable in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def launch_from(fields: Mapping[str, Any]) -> LaunchGang:
    """What `asdict` made of a LaunchGang, as JSON kept it."""
    return LaunchGang(**{**fields, "argv": tuple(fields["argv"]), "worker_ids": tuple(fields["worker_ids"])})
