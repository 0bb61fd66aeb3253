"""Programs of a job that make ready what it needs, beside its gang: their folders, and their end.

Standard library only: a part of the processes that build and fetch.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

from gavel.backends.machine import descendants
from gavel.backends.unix_users import give, let_pass, uid_of


def make_folders(launch: Mapping[str, Any], root: str, *folders: str) -> None:
    """Make folders below `root` for what a program writes, which belong to the job's user. Raises OSError."""
    uid = uid_of(launch)
    for folder in folders:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            give(folder, uid)
    if uid:
        let_pass((root, *map(os.path.dirname, folders)))


def end_all() -> None:
    """Kill every process below this one, and wait for its end."""
    while pids := descendants(os.getpid()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
