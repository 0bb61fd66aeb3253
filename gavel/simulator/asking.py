"""One question answered by a process of its own, with time and memory limits: whatever it does, the service goes on.

The child is `python -m gavel.simulator.asking FUNCTION ..`; question and answer are pickled over its standard streams,
which nobody else holds. It ends with its answer.
"""

import ctypes
import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from gavel.errors import InvalidRequest, SolveFailed

Q = TypeVar("Q")
A = TypeVar("A")
Reply = tuple[bool, Any]
"""(True, the answer) or (False, the class of the error and its arguments)."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
_PR_SET_PDEATHSIG = 1


def ask(function: Callable[[Q], A], question: Q, *, time_limit_s: float, memory_limit_bytes: int) -> A:
    """`function(question)`, worked out by a new process, which imports the function by its name.

    Raises SolveFailed if it takes longer, needs more memory or ends otherwise, and InvalidRequest as the function does.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    arguments = (name, str(os.getpid()), str(memory_limit_bytes))
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "gavel.simulator.asking", *arguments],
            input=pickle.dumps(question),
            env=os.environ | _ONE_THREAD,
            capture_output=True,
            timeout=time_limit_s,
            start_new_session=True,  # a Ctrl-C in the service's terminal is for the service to handle
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SolveFailed(f"it took longer than {time_limit_s:g} s and was ended") from error
    if not child.stdout:
        last = child.stderr.decode(errors="replace").strip().rpartition("\n")[-1]
        raise SolveFailed(f"its process ended without an answer: {_end(child.returncode)} {last}".rstrip())
    is_answer, content = pickle.loads(child.stdout)  # noqa: S301  our own child wrote it
    if is_answer:
        answer: A = content
        return answer
    kind, story = content
    raise kind(*story)


def _end(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# --- inside the child -------------------------------------------------------------------------------------------


def main(name: str, parent_pid: int, memory_limit_bytes: int) -> None:
    """Read the question, write the answer; what anybody prints meanwhile goes to standard error."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before we asked
        sys.exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit_bytes, memory_limit_bytes))
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        answers.write(pickle.dumps(_reply(name)))


def _reply(name: str) -> Reply:
    module, _, function = name.partition(":")
    try:
        question = pickle.load(sys.stdin.buffer)  # noqa: S301  our own parent wrote it
        return True, getattr(importlib.import_module(module), function)(question)
    except InvalidRequest as error:
        return False, (type(error), (error.field, error.message))
    except SolveFailed as error:
        return False, (SolveFailed, (str(error),))
    except MemoryError:
        return False, (SolveFailed, ("it needs more memory than its limit",))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
