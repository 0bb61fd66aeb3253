"""What environments and inputs have in common: each is made once on a node, by a process of its own, and then shared.

Standard library only: a part of the supervisor.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from gavel.backends.machine import read_json, write_json
from gavel.child_processes import adopt_orphans

POLL_S = 0.05


class PreparationFailed(Exception):
    """What a job needs on its node cannot be made. The text is the sentence for its user."""


def read_record(path: str) -> dict[str, Any]:
    """Return the object in a file; empty if there is none."""
    with suppress(FileNotFoundError, ValueError):
        return read_json(path)
    return {}


@contextmanager
def job_record(root: str, job_id: str, first: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what is kept of a job below `root`, and store it afterwards; `first` is what a new job has.

    The file's time says when the job was here last.
    """
    path = os.path.join(root, "jobs", job_id)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    record = read_record(path) or first()
    write_json(path, record)
    try:
        yield record
    finally:
        write_json(path, record)


def forget_jobs(root: str, unfinished: Collection[str], before_s: float) -> list[dict[str, Any]]:
    """Delete the records of jobs that have ended and were not here since `before_s`; return those that stay."""
    kept = []
    for each in scan(os.path.join(root, "jobs")):
        if each.name in unfinished or each.stat().st_mtime >= before_s:
            kept.append(read_record(each.path))
        else:
            os.unlink(each.path)
    return kept


def scan(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing if it is none."""
    return list(os.scandir(folder)) if os.path.isdir(folder) else []


@contextmanager
def locked(path: str) -> Iterator[int | None]:
    """Yield the lock of what is made at `path`, as a descriptor; None while another process holds it."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield lock if _is_taken(lock) else None
    finally:
        os.close(lock)


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start_detached(options: Sequence[str], program: str, arguments: Sequence[str], lock: int) -> None:
    """Start a program of this folder, with the lock as its last argument and `options` for its Python.

    It is nobody's child: no end of a lease or of a gang reaches it.
    """
    adopt_orphans(False)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.set_inheritable(lock, True)
                path = os.path.join(os.path.dirname(os.path.abspath(__file__)), program)
                argv = [sys.executable, "-I", *options, "-X", "utf8", path, *arguments, str(lock)]
                os.execv(sys.executable, argv)  # noqa: S606
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    adopt_orphans()
