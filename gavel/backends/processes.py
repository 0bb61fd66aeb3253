"""Starts the processes of a gang, ranks and tasks. Standard library only: a part of the supervisor."""

import os
import signal
from collections.abc import Iterable
from typing import Any, NoReturn

from gavel.backends.output import Mask, shortened
from gavel.child_processes import die_with

LINE_BYTES = 1 << 16
MESSAGE_CHARACTERS = 1000
OOM_SCORE = 500  # when memory runs out, the kernel kills a job's process before a supervisor or the service


class Process:
    """One process of the gang and the pipe that holds its output. `rank` is its number; None for a task."""

    def __init__(
        self, name: str, rank: int | None, pid: int, output: int, prefix: bytes, secrets: Iterable[str] = ()
    ) -> None:
        self.name, self.rank, self.pid, self.output = name, rank, pid, output
        self.exit_code: int | None = None
        self.problem = ""  # why its program is not executing
        self._prefix = prefix
        self._mask = Mask(secrets)
        self._partial = b""

    def lines(self, output: bytes, *, is_last: bool = False) -> bytes:
        """Return new output for the log: masked, whole lines with the process name first unless it runs alone."""
        output = self._mask.cover(output, is_last=is_last)
        if not self._prefix:
            return output
        text = self._partial + output
        cut = text.rfind(b"\n") + 1
        if is_last or len(text) - cut > LINE_BYTES:
            cut = len(text)
        self._partial = text[cut:]
        return b"".join(self._prefix + line + b"\n" for line in text[:cut].splitlines())


def start_ranks(launch: dict[str, Any]) -> list[Process]:
    """Start every rank and return them; the `problem` of one that could not be started says why.

    All are forked before the first is waited for, so that they load on all cores at the same time.
    """
    begun = [begin(spec.get("argv", launch["argv"]), launch["cwd"], spec) for spec in launch["ranks"]]
    return ranks_of(launch, begun)


def ranks_of(launch: dict[str, Any], begun: list[tuple[int, int, int]]) -> list[Process]:
    """Return the ranks that were begun, once each of them executes its program or has said why it cannot."""
    is_alone = launch.get("world_size", len(begun)) == 1
    secrets = launch.get("secrets", {}).values()
    return [
        _rank(spec.get("rank", index), *begun[index], is_alone, secrets) for index, spec in enumerate(launch["ranks"])
    ]


def _rank(number: int, pid: int, output: int, status: int, is_alone: bool, secrets: Iterable[str]) -> Process:
    """Return the rank; `number` differs from its place in launch.json where other nodes run other ranks."""
    rank = Process(f"rank {number}", number, pid, output, b"" if is_alone else f"[{number}] ".encode(), secrets)
    rank.problem = _problem(status)
    return rank


def start_task(spec: dict[str, Any], secrets: Iterable[str] = ()) -> Process:
    """Start a task of the job (a line of starts.jsonl) and return it; its `problem` says why if it does not run."""
    pid, output, status = begin(spec["argv"], spec["cwd"], spec)
    task = Process(spec["task"], None, pid, output, f"[{spec['task']}] ".encode(), secrets)
    task.problem = _problem(status)
    return task


def begin(argv: list[str], cwd: str, spec: dict[str, Any], stdin: int | None = None) -> tuple[int, int, int]:
    """Fork; return pid, output, and a pipe that carries an error, or closes once the program is executing.

    `stdin`: the descriptor that the program reads from; None: it reads nothing.
    """
    output, output_end = os.pipe2(os.O_CLOEXEC)
    status, status_end = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(argv, cwd, spec, supervisor, (stdin, output_end, status_end))
    os.close(output_end)
    os.close(status_end)
    os.set_blocking(output, False)
    return pid, output, status


def _problem(status: int) -> str:
    with open(status, "rb") as file:
        return file.read().decode("utf-8", "replace")


def _become(
    argv: list[str], cwd: str, spec: dict[str, Any], supervisor: int, ends: tuple[int | None, int, int]
) -> NoReturn:
    """In the child: execute the program. An error is written to the last pipe, which closes at exec."""
    stdin, output_end, status_end = ends
    doing = "prepare"
    try:
        os.setsid()  # a program that signals its own group must not reach the supervisor
        die_with(supervisor)
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
            if int(file.read()) < OOM_SCORE:  # lowering it needs a privilege
                file.write(str(OOM_SCORE))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        doing = f"pin to cpus {spec['cpus']}"
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        doing = f"enter the working directory {cwd!r}"
        os.chdir(cwd)
        doing = f"run the program {argv[0]!r} (PATH is {spec['env'].get('PATH', '')!r})"
        os.execvpe(argv[0], argv, spec["env"])  # noqa: S606
    except BaseException as problem:
        reason = getattr(problem, "strerror", None) or problem
        os.write(status_end, shortened(f"cannot {doing}: {reason}", MESSAGE_CHARACTERS).encode("utf-8", "replace"))
    finally:
        os._exit(127)
