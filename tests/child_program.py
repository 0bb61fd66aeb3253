"""A child of tests/test_child_processes.py: says what it may use, until its parent closes its end."""

import os
import resource
import sys
from multiprocessing.connection import Connection

from gavel.child_processes import die_with, limit_memory


def main(descriptor: int, parent_pid: int, memory_bytes: int) -> None:
    die_with(parent_pid)
    limit_memory(memory_bytes)
    with Connection(descriptor) as parent:
        while True:
            try:
                parent.recv()
            except EOFError:
                return
            descriptors = [_target(name) for name in os.listdir("/proc/self/fd")]
            limits = (resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_AS))
            parent.send((*limits, os.getsid(0), descriptors))


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
