"""Runs policies in one warm subprocess: a solve that hangs, crashes or swallows memory costs one round's optimum.

The child is `python -m gavel.runner FD ..`: it holds one end of a socket pair and nothing else of its parent's.
Requests and replies are pickled: safe between these two, as the parent started the child and nobody else holds an end.
"""

import ctypes
import importlib
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from gavel.errors import InvalidRequest, SolveFailed
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem

READY = "ready"
Refusal = tuple[type[InvalidRequest] | type[SolveFailed], tuple[str, ...]]
"""The error to raise in the parent, and its arguments."""

MOST_FAILED_STARTS = 3
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
_PR_SET_PDEATHSIG = 1


class SubprocessRunner:
    """A PolicyRunner around one subprocess. For one caller at a time.

    `memory_limit_bytes` bounds what the child may map; the solvers alone take about 350 MB. `load` turns a policy's
    name with parameters into the policy, given `folder` if `policy_path` names one with policies of the operator's own;
    the child imports it by module and name. The child dies with the thread that started it.
    """

    def __init__(
        self,
        memory_limit_bytes: int,
        *,
        policy_path: Path | None = None,
        load: Callable[..., Policy] = registry.load,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._policy_path = str(policy_path.resolve()) if policy_path else ""
        self._load = f"{load.__module__}:{load.__qualname__}"
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_ready = False
        self._failed_starts = 0
        self._ended = ""

    def warm(self) -> bool:
        """Start the child if none runs; True once it has answered.

        Also True after MOST_FAILED_STARTS starts that ended before that: the next `allocate` then says why.
        """
        if self._failed_starts >= MOST_FAILED_STARTS:
            return True
        if self._process is None:
            self._start()
        return self._is_ready or self._hears_ready(wait_s=0.0)

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """A checked allocation within `time_limit_s`, the child's start included if it is not warm.

        Raises SolveFailed on time-out, memory limit or crash (the child is then gone; `warm` starts another),
        InvalidProblem or InvalidRequest as the policy does.
        """
        gives_up_at_s = time.monotonic() + time_limit_s
        self._wait_until_ready(gives_up_at_s)
        assert self._connection is not None
        try:
            self._connection.send((policy, problem, time_limit_s))
            if not self._connection.poll(max(0.0, gives_up_at_s - time.monotonic())):
                self.close()
                raise SolveFailed(f"{policy} took longer than {time_limit_s:g} s and was ended")
            reply: Allocation | Refusal = self._connection.recv()
        except (EOFError, OSError) as error:
            raise SolveFailed(f"{policy} took its process down: {self._bury()}") from error
        if isinstance(reply, Allocation):
            return reply
        kind, story = reply
        raise kind(*story)

    def close(self) -> None:
        """End the child, at once and for certain; `warm` would start another."""
        if self._process is not None:
            self._process.kill()
            self._bury()

    def _start(self) -> None:
        ours, theirs = Pipe(duplex=True)
        with theirs:
            arguments = (theirs.fileno(), os.getpid(), self._memory_limit_bytes, self._load, self._policy_path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gavel.runner", *map(str, arguments)],
                env=os.environ | _ONE_THREAD,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a Ctrl-C in the service's terminal is for the service to handle
            )
        self._connection = ours

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
        """Forget a child that has ended or is about to; says how it ended."""
        assert self._process is not None and self._connection is not None
        self._connection.close()
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process, self._connection, self._is_ready = None, None, False
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# --- inside the child -------------------------------------------------------------------------------------------


def main(descriptor: int, parent_pid: int, memory_limit_bytes: int, load: str, policy_path: str) -> None:
    """Answer requests from the parent until it closes its end."""
    die_with(parent_pid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not fill the disk
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    module, _, name = load.partition(":")
    loader = getattr(importlib.import_module(module), name)
    runner = InlineRunner(partial(loader, folder=Path(policy_path)) if policy_path else loader)
    runner.warm()
    with Connection(descriptor) as connection:
        connection.send(READY)
        while True:
            try:
                policy, problem, time_limit_s = connection.recv()
            except EOFError:
                return
            connection.send(_reply(runner, policy, problem, time_limit_s))


def _reply(runner: InlineRunner, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation | Refusal:
    try:
        return runner.allocate(policy, problem, time_limit_s)
    except InvalidRequest as error:
        return type(error), (error.field, error.message)
    except SolveFailed as error:
        return SolveFailed, (str(error),)
    except MemoryError:
        return SolveFailed, (f"{policy} needs more memory than its limit",)
    except Exception as error:  # whatever a policy raises, the parent is to hear of it
        traceback.print_exc()
        return SolveFailed, (f"{policy} raised {type(error).__name__}: {error}",)


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that comes about."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before we asked
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
