"""Starts the processes of a gang, ranks and tasks. Standard library only: a part of the supervisor."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gavel.backends.output import Mask, shortened
from gavel.backends.program_start import become
from gavel.child_processes import die_with, gain_no_privileges

LINE_BYTES = 1 << 16
MESSAGE_CHARACTERS = 1000

Begin = Callable[..., tuple[int, int, int]]
"""Starts a program, as `begin` does, here or in a sandbox."""
BeginAll = Callable[[Sequence[tuple[list[str], str, dict[str, Any], int | None]]], list[tuple[int, int, int]]]
"""Starts programs, as `begin_all` does, here or in a sandbox."""


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


def begin(argv: list[str], cwd: str, spec: dict[str, Any], stdin: int | None = None) -> tuple[int, int, int]:
    """Fork; return pid, output, and a pipe that carries an error, or closes once the program is executing.

    `stdin`: the descriptor that the program reads from; None: it reads nothing.
    """
    output, output_end = os.pipe2(os.O_CLOEXEC)
    status, status_end = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(argv, cwd, spec, (stdin, output_end, status_end), lambda: None, lambda: _settle(spec, supervisor))
    os.close(output_end)
    os.close(status_end)
    os.set_blocking(output, False)
    return pid, output, status


def _settle(spec: dict[str, Any], supervisor: int) -> None:
    """In a child: end with the supervisor, which a change of the user undoes, and never be more than that user."""
    die_with(supervisor)
    if spec.get("runs_as"):
        gain_no_privileges()


def begin_all(
    programs: Sequence[tuple[list[str], str, dict[str, Any], int | None]],
) -> list[tuple[int, int, int]]:
    """Return what `begin` returns of each program, of which these are the arguments."""
    return [begin(*program) for program in programs]


def start_ranks(launch: dict[str, Any], start_all: BeginAll = begin_all) -> list[Process]:
    """Start every rank and return them; the `problem` of one that could not be started says why. Raises OSError.

    All are started before the first is waited for, so that they load on all cores at the same time.
    """
    programs = [(spec.get("argv", launch["argv"]), launch["cwd"], spec, None) for spec in launch["ranks"]]
    return ranks_of(launch, start_all(programs))


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


def start_task(spec: dict[str, Any], secrets: Iterable[str] = (), start: Begin = begin) -> Process:
    """Start a task of the job (a line of starts.jsonl) and return it; its `problem` says why if it does not run."""
    pid, output, status = start(spec["argv"], spec["cwd"], spec)
    task = Process(spec["task"], None, pid, output, f"[{spec['task']}] ".encode(), secrets)
    task.problem = _problem(status)
    return task


def _problem(status: int) -> str:
    with open(status, "rb") as file:
        return shortened(file.read().decode("utf-8", "replace"), MESSAGE_CHARACTERS)
