"""One gang of this machine, kept in its directory: start, adopt, watch, stop, forget."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gavel.backends import gang_processes, machine
from gavel.backends.gang_files import job_files, make_gang_folder, remove_gang_folder
from gavel.backends.gang_records import (
    ExitRecord,
    exit_record,
    gang_record,
    lease_record,
    ready_port,
    replica_load,
    started_boottime_s,
    supervisor_process,
)
from gavel.backends.lease_rules import extends, overdue_at_s
from gavel.backends.output import Mask
from gavel.backends.reports import ReportReader
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, JobId, Load

GangKey = tuple[JobId, int]
"""A job and the generation of its lease."""

SUPERVISE = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(__file__).with_name("supervisor.py")))
NOBODY = (0, 0)  # stands for a supervisor that a file names and that is none
START_LIMIT_S = 10.0  # a supervisor that is silent for so long after its start has failed


class LocalGang:
    """A gang that the local backend knows. `state` moves only forward: WAITING, RUNNING, ENDED."""

    def __init__(
        self,
        instruction: LaunchGang,
        directory: Path,
        checkpoints: Path,
        lease_boottime_s: float,
        *,
        lease_grace_s: float,
    ) -> None:
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
        self._live_boottime_s = 0.0  # when its supervisor was there last
        self.reports = ReportReader(
            job_files(directory) / "reports.jsonl",
            generation=instruction.generation,
            start_step=instruction.start_step,
            total_steps=instruction.total_steps,
            checkpoints=checkpoints,
        )
        self._process: tuple[int, int] | None = None  # pid and start time of the supervisor
        self._announced_until_boottime_s = 0.0
        self._lease_grace_s = lease_grace_s
        self._stopped_boottime_s = float("inf")  # when it was asked to stop
        self._save_asked_s = 0.0  # when a checkpoint was asked for last; 0: none was
        self._is_announced = False  # its supervisor is known by its word only
        self._may_have_processes = True
        self._condemned = ""  # why the service kills it

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.instruction.job_id, self.instruction.generation

    # --- beginnings ---

    def remember(self) -> None:
        """Write the gang's file, so that a restarted service knows the gang even while it only waits."""
        self._home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_gang_folder(self.directory)
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
    def adopt(
        cls, directory: Path, checkpoints: Path, *, lease_grace_s: float, has_processes: bool
    ) -> "LocalGang | None":
        """Return the gang that an earlier service left in this directory; None if its file is not complete.

        `has_processes`: whether any of its processes is on this machine. Raises ValueError if the file is not one that
        a service has written, and OSError.
        """
        record = machine.read_object(directory / "gang.json")
        if record is None:
            return None
        launched = gang_record(record, directory)
        gang = cls(launched.instruction, directory, checkpoints, launched.lease_boottime_s, lease_grace_s=lease_grace_s)
        gang._read_orders()
        gang._is_announced, gang._may_have_processes = True, has_processes
        if launched.boot_id != machine.boot_id():
            gang._adopt_from_other_boot()
        elif (directory / "launch.json").exists():
            gang.state = GangState.RUNNING
            gang._announced_until_boottime_s = machine.boottime_s() + START_LIMIT_S
        elif (directory / "exit.json").exists():  # it ended while it waited
            gang._take_end()
        return gang

    def _read_orders(self) -> None:
        """Read the newest lease, and the secrets that the gang's reports must not show."""
        with suppress(ValueError):
            lease = machine.read_object(self.directory / "lease.json")
            if lease is not None:
                self.lease_boottime_s, self.is_stopping = lease_record(lease)
        if self.is_stopping:
            self._stopped_boottime_s = machine.boottime_s()
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            secrets = machine.read_json(str(self.directory / "launch.json"))["secrets"].values()
            self.reports.mask = Mask(str(each) for each in secrets)

    def _adopt_from_other_boot(self) -> None:
        """Take how it ended; boottimes of another boot mean nothing."""
        ended = None
        with suppress(ValueError):
            ended = self._exit_record()
        if ended is None:
            self.lose("the machine was restarted")
        else:
            self._take_exit(replace(ended, boottime_s=machine.boottime_s()))

    # --- orders ---

    def extend(self, lease_boottime_s: float) -> None:
        """Move the lease end later; no effect once the lease is over or a stop was requested."""
        is_live = self.state is not GangState.ENDED and not self.is_stopping
        if is_live and extends(machine.boottime_s(), self.lease_boottime_s, lease_boottime_s):
            self._write_lease(lease_boottime_s, stop=self.is_stopping)  # raises: then the next order is no repetition
            self.lease_boottime_s = lease_boottime_s

    def save(self, asked_at_s: float) -> None:
        """Ask a running gang for a checkpoint, unless it was asked at that instant or later already."""
        if self.state is GangState.RUNNING and not self.is_stopping and asked_at_s > self._save_asked_s:
            self._save_asked_s = asked_at_s
            self._write_lease(self.lease_boottime_s, stop=False)

    def stop(self, reason: str) -> None:
        """Ask a running gang to end in good order; end a waiting one."""
        if self.state is GangState.WAITING:
            self.end(GangOutcome.PREEMPTED, reason or "stopped before it started")
        elif self.state is GangState.RUNNING and not self.is_stopping:
            self._write_lease(self.lease_boottime_s, stop=True)
            self.is_stopping = True
            self._stopped_boottime_s = machine.boottime_s()
            if self._process is not None and self.started_boottime_s is not None:
                with suppress(ProcessLookupError, PermissionError):  # it reads this even if its lease is overwritten
                    os.kill(self._process[0], signal.SIGTERM)

    def end(self, outcome: GangOutcome, message: str) -> None:
        """End the gang now and write its exit, as no supervisor will: a restarted service must not start it.

        Raises OSError if the disk does not take it; a folder that the job has removed or spoilt is no reason to.
        """
        ended = _ended(outcome, message)
        if self._has_folder():
            self._write("exit.json", {**asdict(ended.exit), "boottime_s": ended.boottime_s})
        self._take_exit(ended)

    def lose(self, message: str) -> None:
        """End the gang as lost: its supervisor is gone and none of its processes is left."""
        self.end(GangOutcome.LOST, message)

    def condemn(self, reason: str) -> None:
        """Kill all that is left of the gang; it is lost with this reason as soon as nothing is."""
        self._condemned = self._condemned or reason
        self._kill()

    def forget(self) -> None:
        """Delete everything of the gang but its log."""
        remove_gang_folder(self.directory)

    # --- watching ---

    def look(self) -> None:
        """Check whether the gang ended: it is ENDED once its supervisor and all its processes are gone.

        Raises OSError or ValueError for files that are not as supervisor and service write them.
        """
        if self._condemned:
            self._look_for_end()
        elif self.state is GangState.RUNNING:
            if not self._has_folder():
                raise FileNotFoundError(f"{self._home} was removed or replaced")
            self._look_for_start()
            if self._is_supervised():  # before the exit is read, which the supervisor writes while it lives
                self._live_boottime_s = machine.boottime_s()
                self._check_overdue()
            else:
                self._take_end()

    def _look_for_end(self) -> None:
        if self.state is not GangState.ENDED and not self._kill():
            with suppress(OSError):  # the folder is what it was condemned for
                self.lose(self._condemned)
            self._take_exit(_ended(GangOutcome.LOST, self._condemned))

    def _check_overdue(self) -> None:
        """Kill a gang that its supervisor should have ended long ago: one that was suspended, or whose lease lied."""
        due_s = overdue_at_s(self.lease_boottime_s, self._stopped_boottime_s, self._lease_grace_s)
        if machine.boottime_s() >= due_s:
            self.condemn("its supervisor did not end it after its lease or the request to stop, so the service did")

    def _take_end(self) -> None:
        ended = self._exit_record()
        if ended is not None and not (self._may_have_left() and self._kill()):
            self._take_exit(ended)
        elif ended is None and not self._kill():
            self.lose(f"its supervisor died{self._last_words()}")

    def _may_have_left(self) -> bool:
        """Return whether the end that is on record may be another's word than the supervisor's, or it was killed."""
        return self._is_announced or bool(self._process and gang_processes.has_left(self._home, self._process[0]))

    def supervisor_pid(self) -> int | None:
        """Return the supervisor's pid; None before the supervisor announced itself."""
        return self._process[0] if self._process else None

    def endpoint(self, address: str) -> str:
        """Return HOST:PORT of a replica that runs and is ready, HOST being `address`; "" for any other gang."""
        if not self.instruction.serving or self.state is not GangState.RUNNING or self.is_stopping:
            return ""
        record = machine.read_object(self.directory / "health.json")
        with suppress(ValueError):
            port = None if record is None else ready_port(record)
            return "" if port is None else f"{address}:{port}"
        return ""

    def load(self) -> Load | None:
        """Return the load of a replica that runs and counts its requests; None if nothing is known of it."""
        if not self.instruction.serving or self.state is not GangState.RUNNING:
            return None
        with suppress(ValueError):
            return replica_load(machine.read_object(self.directory / "load.json") or {})
        return None

    def _look_for_start(self) -> None:
        if self.started_boottime_s is None:
            record = machine.read_object(self.directory / "started.json")
            self.started_boottime_s = None if record is None else started_boottime_s(record)

    def _is_supervised(self) -> bool:
        if self._process is None:
            record = machine.read_object(self.directory / "supervisor.json")
            if record is None:
                return self._may_still_announce()
            self._is_announced = True
            pid, began = supervisor_process(record)
            is_gone = machine.start_time(pid) != began
            self._process = (pid, began) if is_gone or gang_processes.supervises(pid, self._home) else NOBODY
        pid, began = self._process
        if machine.start_time(pid) == began:
            return True
        with suppress(ChildProcessError):  # not our child: an earlier service started it, and init reaps it
            os.waitpid(pid, os.WNOHANG)
        return False

    def _may_still_announce(self) -> bool:
        if machine.boottime_s() < self._announced_until_boottime_s and not (self.directory / "exit.json").exists():
            return True
        self._write_lease(self.lease_boottime_s, stop=True)  # a supervisor that appears later starts nothing
        self.is_stopping = True
        return False

    def _exit_record(self) -> ExitRecord | None:
        record = machine.read_object(self.directory / "exit.json")
        return None if record is None else exit_record(record)

    def _take_exit(self, ended: ExitRecord) -> None:
        message = ended.exit.message
        if self.reports.malformed:
            message = f"{message}; {self.reports.malformed} malformed reports were ignored".removeprefix("; ")
        self.exit = replace(ended.exit, message=message)
        self.ended_boottime_s = max(ended.boottime_s, self._live_boottime_s)  # a job may write that it ended long ago
        self.state = GangState.ENDED

    def _kill(self) -> bool:
        """Kill the supervisor, the ranks and what they started and left; return True while there was one."""
        return self._may_have_processes and gang_processes.kill_all(self._home)

    def _last_words(self) -> str:
        """Return the end of the supervisor's standard error, if any."""
        try:
            text = machine.read_plain(str(self.directory / "supervisor.err"))
        except OSError:
            return ""
        words = text.decode("utf-8", "replace").replace("\0", "?").strip()
        return f": {self.reports.mask.beginning(words.splitlines()[-1], 200)}" if words else ""

    # --- files ---

    def _has_folder(self) -> bool:
        return self.directory.is_dir() and not self.directory.is_symlink()

    def _write_lease(self, expires_boottime_s: float, *, stop: bool) -> None:
        lease = {"expires_boottime_s": expires_boottime_s, "stop": stop, "save_asked_s": self._save_asked_s}
        self._write("lease.json", lease)

    def _write(self, name: str, value: object) -> None:
        machine.write_json(str(self.directory / name), value)


def spawn(argv: tuple[str, ...], environment: Mapping[str, str], errors: Path) -> int:
    """Start a supervisor and return its pid; its own output goes to the file `errors`. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(errors), flags, 0o600),
    ]
    return os.posix_spawn(argv[0], argv, dict(environment), file_actions=files, setsigmask=())


def _ended(outcome: GangOutcome, message: str) -> ExitRecord:
    return ExitRecord(exit=GangExit(outcome=outcome, message=message), boottime_s=machine.boottime_s())
