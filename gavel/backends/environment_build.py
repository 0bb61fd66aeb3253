"""Builds the environment of a setup: `python -I -S -X utf8 environment_build.py GANG_DIR DIGEST LOCK`.

See environments.py. It has the lock from its beginning, and ends with the build. Standard library only.
"""

import contextlib
import os
import select
import shutil
import sys
import time
from typing import IO, Any

if __name__ == "__main__":  # run by path with -I: find the package from this file's folder
    sys.path.append(__file__.removesuffix("gavel/backends/environment_build.py"))

from gavel.backends.environments import Environment, activated
from gavel.backends.machine import boottime_s, read_json
from gavel.backends.preparing_program import end_all, make_folders
from gavel.backends.processes import Process, begin, start_task
from gavel.backends.sandbox import Sandbox
from gavel.backends.unix_users import uid_of
from gavel.child_processes import adopt_orphans, exit_text

NICENESS = 10  # what trains beside it goes first
CHUNK_BYTES = 1 << 16
POLL_S = 0.05
UV_PIP = '#!/bin/sh\nexec "{uv}" pip "$@"\n'


class Build:
    """One build: the virtual environment is made, then the setup runs in it. `folder` is where it is made."""

    def __init__(self, launch: dict[str, Any], folder: str, log: IO[bytes]) -> None:
        self._launch, self._folder, self._log = launch, folder, log
        self._env: dict[str, str] = launch["setup"]["env"]
        self._limit_s: float = launch["setup"]["limit_s"]
        self._end_boottime_s = boottime_s() + self._limit_s
        self._sandbox: Sandbox | None = None

    def run(self) -> str:
        """Build; return "" or the sentence that says how it failed."""
        problem = self._make()
        if problem:
            return f"its virtual environment could not be made: that {problem}"
        problem = self._call(["/bin/sh", "-e", "-c", self._launch["setup"]["text"]], activated(self._env, self._folder))
        return f"its setup {problem}" if problem else ""

    def _make(self) -> str:
        """Make an empty virtual environment with pip. Where uv is there, the command `pip` is uv's."""
        places = f"{self._env['PATH']}:{os.path.dirname(sys.executable)}"  # beside the service, too
        python, uv = self._launch["python"] or sys.executable, shutil.which("uv", path=places)
        problem = self._call([python, "-I", "-m", "venv", self._folder], self._env)
        if problem and uv:  # a Python without ensurepip, as Debian's
            problem = self._call(
                [uv, "venv", "--quiet", "--allow-existing", "--python", python, self._folder], self._env
            )
        for name in ("pip", "pip3") if uv and not problem else ():
            try:
                write_program(os.path.join(self._folder, "bin"), name, UV_PIP.format(uv=uv), uid_of(self._launch))
            except OSError:
                return "made no virtual environment"
        return problem

    def _call(self, argv: list[str], env: dict[str, str]) -> str:
        """Run a program to its end, and end all that it started; return "" or what happened, for a sentence."""
        self._sandbox = self._enter_sandbox()
        runs_as = self._launch["ranks"][0].get("runs_as")
        process = start_task(
            {"task": "setup", "argv": argv, "cwd": self._launch["cwd"], "cpus": [], "env": env, "runs_as": runs_as},
            self._launch["secrets"].values(),
            self._sandbox.begin if self._sandbox else begin,
        )
        if process.problem:
            return f"could not start: {process.problem}"
        while (code := self._exit_code(process)) is None:
            if boottime_s() >= self._end_boottime_s:
                break
            select.select([process.output], [], [], POLL_S)
            if not self._read(process):
                time.sleep(POLL_S)
        end_all()
        while self._read(process):
            pass
        self._log.write(process.lines(b"", is_last=True))
        if code is None:
            return f"took longer than {self._limit_s:g} s (setup_limit_s)"
        return f"failed with {exit_text(code)}" if code else ""

    def _enter_sandbox(self) -> Sandbox | None:
        """Return a sandbox that sees what the job sees, and may write the environment; None if the job has none."""
        cache = os.path.join(self._launch["setup"]["root"], "cache", self._launch["user"])
        temporary = temporary_of(self._folder)  # not the gang's, which the build outlives
        make_folders(self._launch, self._launch["setup"]["root"], self._folder, cache, temporary)
        if not self._launch.get("sandbox"):
            return None
        launch = {**self._launch, "sandbox": {**self._launch["sandbox"], "tmp": temporary}}
        return Sandbox(launch, {self._folder: "rw", cache: "rw"})

    def _exit_code(self, process: Process) -> int | None:
        """Return the exit code of the program once it has ended; reap what it left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in (process.pid, self._sandbox and self._sandbox.pid):
                process.exit_code = os.waitstatus_to_exitcode(status)
        for _, status in self._sandbox.ended() if self._sandbox else ():
            process.exit_code = os.waitstatus_to_exitcode(status)
        return process.exit_code

    def _read(self, process: Process) -> bool:
        """Copy one chunk of output into the log; return False if there is none now."""
        try:
            output = os.read(process.output, CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._log.write(process.lines(output))
        return bool(output)


def write_program(folder: str, name: str, text: str, uid: int) -> None:
    """Write a program of a user into a folder of its, whatever links it has put there meanwhile. Raises OSError."""
    bin_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=bin_folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(name, flags, 0o755, dir_fd=bin_folder), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o755)
            if os.geteuid() == 0:
                os.fchown(file.fileno(), uid, uid)
            file.write(text)
    finally:
        os.close(bin_folder)


def temporary_of(folder: str) -> str:
    """Return where a build in a sandbox has its temporary files."""
    return f"{folder}.tmp"


def main(directory: str, digest: str) -> None:
    """Build the environment of the gang's job, and store how it ended."""
    launch = read_json(os.path.join(directory, "launch.json"))
    os.nice(NICENESS)
    adopt_orphans()
    environment = Environment(launch["setup"]["root"], digest)
    folder = environment.make_folder()
    with open(environment.log_path, "ab", buffering=0) as log:
        problem = Build(launch, folder, log).run()
    shutil.rmtree(temporary_of(folder), ignore_errors=True)
    if problem:
        shutil.rmtree(folder, ignore_errors=True)
        environment.record_failure(problem)
    else:
        environment.record_built(folder)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[3]), False)  # what the setup starts must not keep the lock
    main(sys.argv[1], sys.argv[2])
