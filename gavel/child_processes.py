"""Starts child processes that end with their parent and keep to limits, and reports how they ended. Linux.

Standard library only, and quick to import: the supervisor of a gang uses it, too.
"""

import ctypes
import os
import signal
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_libc = ctypes.CDLL(None, use_errno=True)


# --- in the parent ----------------------------------------------------------------------------------------------


def numeric_threads(count: int) -> dict[str, str]:
    """Return the environment in which libraries for numbers (BLAS, OpenMP, numexpr, Rayon) use `count` threads each."""
    return dict.fromkeys(THREAD_VARIABLES, str(count))


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command line that runs a module with this Python; nothing is imported from the working folder."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def start_connected(
    module: str,
    *arguments: object,
    env: "Mapping[str, str] | None" = None,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
) -> "tuple[subprocess.Popen[bytes], Connection[Any, Any]]":
    """Start `python -m module FD PARENT_PID arguments ..` and return it with our end of the socket pair; FD is its end.

    The child has none of our other descriptors and a session of its own, so that only the service gets a Ctrl-C in
    the terminal. Its `main` calls `die_with(PARENT_PID)` first. Raises OSError if no process can be started.
    """
    import subprocess
    from multiprocessing.connection import Pipe

    ours, theirs = Pipe(duplex=True)
    try:
        with theirs:
            process = subprocess.Popen(
                module_command(module, theirs.fileno(), os.getpid(), *arguments),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return process, ours


def reap(process: "subprocess.Popen[bytes]", within_s: float) -> str:
    """Wait for the end of a process, kill it after `within_s` seconds, and return how it ended (`exit_text`)."""
    import subprocess

    try:
        return exit_text(process.wait(within_s))
    except subprocess.TimeoutExpired:
        process.kill()
        return exit_text(process.wait())


def exit_text(code: int) -> str:
    """Return how a process ended: `exit code 3`, or `signal SIGKILL` for minus the number of a signal."""
    if code >= 0:
        return f"exit code {code}"
    named = {each.value: each.name for each in signal.Signals}
    return f"signal {named.get(-code, -code)}"  # most real-time signals have no name


# --- in the child -----------------------------------------------------------------------------------------------


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends. Raises SystemExit if it has ended."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it ended before we asked
        raise SystemExit("the process that started this one has ended")


def gain_no_privileges() -> None:
    """Let no program that this process executes be more than it is: bits of set-uid and capabilities of files."""
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of every process below this one whose own parent ends; `adopt=False` ends that."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def limit_memory(limit_bytes: int) -> None:
    """Let this process map no more than `limit_bytes`, and write no core file: a crash must not fill the disk."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
