"""Runs policies in one warm subprocess, so that a solve that hangs, crashes or uses up memory costs one round only.

The child is `python -m gavel.runner FD ..`: it holds one end of a socket pair and nothing else of its parent's.
Requests and replies are pickled: safe between these two, as the parent started the child and nobody else holds an end.
"""

import importlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from gavel.child_processes import die_with, limit_memory, numeric_threads, reap, start_connected
from gavel.errors import InvalidProblem, InvalidRequest, SolveFailed
from gavel.freed_memory import give_back
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem

READY = "ready"
Refusal = tuple[type[InvalidRequest] | type[SolveFailed], tuple[str, ...]]
"""The error to raise in the parent, and its arguments."""

MOST_FAILED_STARTS = 3
BURY_LIMIT_S = 1.0  # how long a child may take to end after it closed its connection


class SubprocessRunner:
    """A PolicyRunner around one subprocess. For one caller at a time.

    `memory_limit_bytes` bounds what the child may map; the solvers alone take about 350 MB. `load` turns a policy's
    name with parameters into the policy, given `folder` if `policy_dir` names one with policies of the operator's own;
    the child imports it by module and name. The child dies with the thread that started it.
    """

    def __init__(
        self,
        memory_limit_bytes: int,
        *,
        policy_dir: Path | None = None,
        load: Callable[..., Policy] = registry.load,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._policy_dir = str(policy_dir.resolve()) if policy_dir else ""
        self._load = f"{load.__module__}:{load.__qualname__}"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_ready = False
        self._failed_starts = 0
        self._ended = ""

    def warm(self) -> bool:
        """Start the child if none runs; return True once it is ready.

        Also True after MOST_FAILED_STARTS starts that ended before that: the next `allocate` then says why.
        """
        if self._failed_starts >= MOST_FAILED_STARTS:
            return True
        if self._process is None:
            self._start()
        return self._is_ready or self._hears_ready(wait_s=0.0)

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """Return a checked allocation within `time_limit_s`, which includes the start of the child if it is not warm.

        Raises SolveFailed on time-out or crash (the child is then gone, and another starts), on the memory limit, and
        for whatever else a policy raises or answers; InvalidProblem or InvalidRequest as the policy does.
        """
        gives_up_at_s = time.monotonic() + time_limit_s
        self._wait_until_ready(gives_up_at_s)
        assert self._connection is not None
        try:
            self._connection.send((policy, problem, time_limit_s))
            is_in_time = self._connection.poll(max(0.0, gives_up_at_s - time.monotonic()))
            reply: Allocation | Refusal | None = self._connection.recv() if is_in_time else None
        except (EOFError, OSError) as error:
            ended = self._bury()
            self.warm()  # the next round need not wait for another
            raise SolveFailed(f"{policy} took its process down: {ended}") from error
        except Exception as error:  # nothing but pickles of our own should come this way
            self.close()
            self.warm()
            raise SolveFailed(f"{policy} sent what cannot be read: {type(error).__name__}: {error}") from error
        if isinstance(reply, Allocation):
            return reply
        if reply is None:
            self.close()
            self.warm()
            raise SolveFailed(f"{policy} took longer than {time_limit_s:g} s and was ended")
        kind, arguments = reply
        raise kind(*arguments)

    def close(self) -> None:
        """Kill the child; `warm` starts another."""
        if self._process is not None:
            self._process.kill()
            self._bury()

    def _start(self) -> None:
        self._process, self._connection = start_connected(
            "gavel.runner",
            *(self._memory_limit_bytes, self._load, self._policy_dir),
            env=os.environ | numeric_threads(1),
            stdout=subprocess.DEVNULL,
        )

    def _hears_ready(self, wait_s: float) -> bool:
        assert self._connection is not None
        try:
            self._is_ready = self._connection.poll(wait_s) and self._connection.recv() == READY
        except (EOFError, OSError):
            self._failed_starts += 1
            self._ended = self._bury()
        if self._is_ready:
            self._failed_starts = 0
        return self._is_ready

    def _wait_until_ready(self, gives_up_at_s: float) -> None:
        if self._failed_starts >= MOST_FAILED_STARTS:
            self._failed_starts -= 1  # the next `warm` tries once more
        elif self.warm() or (self._process and self._hears_ready(max(0.0, gives_up_at_s - time.monotonic()))):
            return
        elif self._process is not None:
            raise SolveFailed("the solver's process is not ready yet")
        raise SolveFailed(f"the solver's process did not start: {self._ended}")

    def _bury(self) -> str:
        """Wait for a child that has ended or is about to, forget it, and return how it ended."""
        assert self._process is not None and self._connection is not None
        self._connection.close()
        how = reap(self._process, BURY_LIMIT_S)
        self._process, self._connection, self._is_ready = None, None, False
        return how


# --- inside the child -------------------------------------------------------------------------------------------


def main(descriptor: int, parent_pid: int, memory_limit_bytes: int, load: str, policy_dir: str) -> None:
    """Answer requests from the parent until it closes its end."""
    die_with(parent_pid)
    limit_memory(memory_limit_bytes)
    module, _, name = load.partition(":")
    loader = getattr(importlib.import_module(module), name)
    runner = InlineRunner(partial(loader, folder=Path(policy_dir)) if policy_dir else loader)
    runner.warm()
    with Connection(descriptor) as connection:
        connection.send(READY)
        while True:
            try:
                policy, problem, time_limit_s = connection.recv()
            except EOFError:
                return
            connection.send(_reply(runner, policy, problem, time_limit_s))
            give_back()


def _reply(runner: InlineRunner, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation | Refusal:
    try:
        return runner.allocate(policy, problem, time_limit_s)
    except InvalidRequest as error:  # the parent knows our own two types of it only
        kind = InvalidProblem if isinstance(error, InvalidProblem) else InvalidRequest
        return kind, (str(error.field), str(error.message))
    except SolveFailed as error:
        traceback.print_exc()
        return SolveFailed, (str(error),)
    except MemoryError:
        return SolveFailed, (f"{policy} needs more memory than its limit",)
    except KeyboardInterrupt:  # of the policy's own making: nobody's Ctrl-C comes here
        return SolveFailed, (f"{policy} raised KeyboardInterrupt",)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
