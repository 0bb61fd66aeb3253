"""Turns a forked process into a program of a job. Few imports: the first process of a sandbox loads this, too."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without its enums: starts sooner
import os

TYPE_CHECKING = False  # `typing` itself takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

OOM_SCORE = 500  # when memory runs out, the kernel kills a job's process before a supervisor or the service
PROBLEM_BYTES = 1 << 14


def become(
    argv: list[str],
    cwd: str,
    spec: dict[str, Any],
    ends: tuple[int | None, int, int],
    first: Callable[[], object],
    as_user: Callable[[], object] = lambda: None,
) -> NoReturn:
    """In a child: execute the program. `ends`: its input (None: nothing to read), its output, a pipe.

    It calls `first` at once, and `as_user` when it is the user that `spec` names, if it names one. An error is written
    to the pipe, which closes when the program executes.
    """
    stdin, output_end, status_end = ends
    doing = "prepare"
    try:
        os.setsid()  # a program that signals its own group must not reach the supervisor
        first()
        _offer_to_kernel()
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
        _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, 0)
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        doing = f"pin to cpus {spec['cpus']}"
        if spec["cpus"]:
            os.sched_setaffinity(0, spec["cpus"])
        if user := spec.get("runs_as"):
            doing = f"become user {user['uid']}"
            _become_user(user["uid"], user["groups"])
        as_user()
        doing = f"enter the working directory {cwd!r}"
        os.chdir(cwd)
        doing = f"run the program {argv[0]!r} (PATH is {spec['env'].get('PATH', '')!r})"
        os.execvpe(argv[0], argv, spec["env"])  # noqa: S606
    except BaseException as problem:
        reason = getattr(problem, "strerror", None) or problem
        os.write(status_end, f"cannot {doing}: {reason}".encode("utf-8", "replace")[:PROBLEM_BYTES])
    finally:
        os._exit(127)


def _become_user(uid: int, groups: list[int]) -> None:
    """Give up what this process may do as root, for good."""
    os.umask(0o077)
    os.setgroups(groups)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _offer_to_kernel() -> None:
    with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < OOM_SCORE:  # lowering it needs a privilege
            file.write(str(OOM_SCORE))
