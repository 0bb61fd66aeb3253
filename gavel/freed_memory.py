"""Gives memory that a process has freed back to the machine. Linux."""

import ctypes
from collections.abc import Callable

EVERY_S = 30.0  # how often a process of the service does it


def _of_libc() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only


_malloc_trim = _of_libc()


def give_back() -> None:
    """Give back what this process has freed and the C library keeps; with another library than glibc, nothing.

    A round of 100,000 jobs is encoded and compared in large pieces, which are freed soon. The C library keeps their
    places between others that are in use, so that a process would hold half as much again as it uses.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)
