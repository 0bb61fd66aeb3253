"""The ranks of a gang that is to be launched soon: their programs load libraries, and wait for their lease.

Standard library only: a part of the supervisor. The service writes `warm.json` into a folder of its own for each such
gang and starts a supervisor with it. When the lease begins, the service writes the gang's launch.json and renames
`warm.json` to `go.json`. Whoever gives up first removes `warm.json`: so a gang is begun once or not at all.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from typing import Any

from gavel.backends.control_groups import group_of
from gavel.backends.environments import activate_if_built
from gavel.backends.machine import boottime_s, descendants, read_json
from gavel.backends.processes import Begin, Process, begin, ranks_of
from gavel.backends.sandbox import Sandbox
from gavel.backends.sandbox_view import environment_of, refusal
from gavel.child_processes import adopt_orphans

ENTER = "from gavel_runtime._warm import main; main()"
WAITING, GO = "warm.json", "go.json"
POLL_S = 0.01
PIPE_BYTES = 1 << 20  # more than all variables of a program may take, so that no rank holds up the next


class WarmRanks:
    """Ranks that wait, and the pipe to each, through which it gets its environment. Raises OSError."""

    def __init__(self, launch: dict[str, Any], directory: str) -> None:
        self.group = group_of(launch, directory)
        self._pipes: list[int] = []
        with self.group.entered() if self.group else contextlib.nullcontext():
            self.sandbox = Sandbox(launch, environment_of(launch)) if launch.get("sandbox") else None
            self._ranks = self._started(launch, self.sandbox.begin if self.sandbox else begin)

    def _started(self, launch: dict[str, Any], start: Begin) -> list[Process]:
        begun = []
        argv = [launch["argv"][0], "-c", ENTER, *launch["argv"][1:]]
        for spec in launch["ranks"]:
            stdin, pipe = os.pipe2(os.O_CLOEXEC)
            with contextlib.suppress(PermissionError):  # this user has many pipes
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._pipes.append(pipe)
            begun.append(start(argv, launch["cwd"], {**spec, "env": {**spec["env"], "GAVEL_WARM": "1"}}, stdin))
            os.close(stdin)
        return ranks_of(launch, begun)

    def are_whole(self) -> bool:
        """Return whether every rank loads or waits. Reaps nothing: the supervisor does that."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if self.sandbox and self.sandbox.has_ended():
            return False
        children = [self.sandbox.pid] if self.sandbox else [each.pid for each in self._ranks]
        is_alive = all(os.waitid(os.P_PID, pid, flags) is None for pid in children)
        return is_alive and not any(each.problem for each in self._ranks)

    def release(self, launch: dict[str, Any]) -> list[Process]:
        """Let every rank run its program with the environment in `launch`; return the ranks."""
        for pipe, spec in zip(self._pipes, launch["ranks"], strict=True):
            with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as file:
                file.write(json.dumps(spec["env"]).encode())
        return self._ranks

    def kill(self) -> None:
        """End every rank and what it has started."""
        with contextlib.suppress(ChildProcessError):
            while True:
                for pid in descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if self.group:
                    self.group.kill()
                os.waitpid(-1, 0)
        if self.group:
            self.group.remove()


def wait_for_lease(folder: str, directory: str) -> tuple[bool, WarmRanks | None]:
    """Start the ranks of `folder`/warm.json early, of the gang in `directory`.

    Return whether their lease has begun, and the ranks that wait for it.
    They are given up when the service has gone or has removed warm.json, at the instant that is named there, and when
    one of them has ended. Raises OSError, also if the folder is gone already.
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    adopt_orphans()
    warm = _read(folder)
    ranks = WarmRanks(warm["launch"], directory) if _is_ready(warm["launch"]) else None
    while not os.path.exists(os.path.join(folder, GO)):
        may_wait = ranks is not None and ranks.are_whole() and os.path.exists(os.path.join(folder, WAITING))
        is_due = boottime_s() < warm["until_boottime_s"] and os.getppid() == warm["service_pid"]
        if not (may_wait and is_due) and _give_up(folder):
            if ranks is not None:
                ranks.kill()
            return False, None
        time.sleep(POLL_S)
    shutil.rmtree(folder, ignore_errors=True)
    return True, ranks


def _read(folder: str) -> dict[str, Any]:
    """Return what the service wrote; it may have begun the lease already."""
    try:
        return read_json(os.path.join(folder, WAITING))
    except FileNotFoundError:
        return read_json(os.path.join(folder, GO))


def _is_ready(launch: dict[str, Any]) -> bool:
    """Return whether the job's copy of its code and its environment are there; nothing is made ahead of the lease."""
    code = launch.get("code")
    if refusal(launch):
        return False  # its supervisor says why
    if code and not os.path.isdir(code["copy"]):
        return False
    return not launch.get("setup") or activate_if_built(launch)


def _give_up(folder: str) -> bool:
    """Return True unless the service has begun the lease meanwhile; after that it cannot."""
    try:
        os.unlink(os.path.join(folder, WAITING))
    except FileNotFoundError:
        return not os.path.exists(os.path.join(folder, GO))
    return True
