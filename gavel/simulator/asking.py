"""Answers one question in a process of its own, with limits of time and memory, so that no question harms the service.

The child is `python -m gavel.simulator.asking FUNCTION ..`; question and answer are pickled over its standard streams,
which no other process holds. It ends with its answer.
"""

import importlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from gavel.child_processes import die_with, exit_text, limit_memory, module_command, numeric_threads
from gavel.errors import InvalidRequest, SolveFailed

Q = TypeVar("Q")
A = TypeVar("A")
POLL_S = 0.25
Reply = tuple[bool, Any]
"""(True, the answer) or (False, the class of the error and its arguments)."""


def ask(
    function: Callable[[Q], A],
    question: Q,
    *,
    time_limit_s: float,
    memory_limit_bytes: int,
    is_wanted: Callable[[], bool] = lambda: True,
    niceness: int = 0,
) -> A:
    """Return `function(question)`, computed by a new process that imports the function by its name.

    `is_wanted` is called a few times a second; once it is false the process is ended. `niceness`, up to 19, lowers its
    priority: what else runs on the machine goes first. Raise SolveFailed then, or if the
    process takes too long, needs too much memory or ends without an answer, and InvalidRequest if the function does.
    """
    name, asked = f"{function.__module__}:{function.__qualname__}", pickle.dumps(question)
    with subprocess.Popen(
        module_command("gavel.simulator.asking", name, os.getpid(), memory_limit_bytes, niceness),
        env=os.environ | numeric_threads(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C in the service's terminal is for the service to handle
    ) as child:
        output, errors = _communicate(child, asked, time_limit_s, is_wanted)
    if not output:
        last = errors.decode(errors="replace").strip().rpartition("\n")[-1]
        raise SolveFailed(f"its process ended without an answer: {exit_text(child.returncode)} {last}".rstrip())
    is_answer, content = pickle.loads(output)  # noqa: S301  our own child wrote it
    if is_answer:
        answer: A = content
        return answer
    kind, message = content
    raise kind(*message)


def _communicate(
    child: subprocess.Popen[bytes], question: bytes, time_limit_s: float, is_wanted: Callable[[], bool]
) -> tuple[bytes, bytes]:
    """Return what the child wrote to its standard output and errors. Raise SolveFailed where that is not waited for."""
    end_s = time.monotonic() + time_limit_s
    # A thread, because a call of communicate that is repeated after its timeout does not send the rest of the question.
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(child.communicate, question)
        try:
            while True:
                left_s = end_s - time.monotonic()
                if wait([outcome], timeout=max(0.0, min(POLL_S, left_s))).done:
                    return outcome.result()
                if left_s <= POLL_S:
                    raise SolveFailed(f"it took longer than {time_limit_s:g} s and was ended")
                if not is_wanted():
                    raise SolveFailed("nobody waits for it any more, so it was ended")
        except BaseException:
            child.kill()
            raise


# --- inside the child -------------------------------------------------------------------------------------------


def main(name: str, parent_pid: int, memory_limit_bytes: int, niceness: int) -> None:
    """Read the question and write the answer. Whatever is printed meanwhile goes to standard error."""
    die_with(parent_pid)
    limit_memory(memory_limit_bytes)
    if niceness:  # the unit of an API alone refuses the call, even one that changes nothing
        os.nice(niceness)
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
    main(sys.argv[1], *map(int, sys.argv[2:]))
