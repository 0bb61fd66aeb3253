"""The lock of a state directory: one writer at a time, even if the former one is only suspended.

A file lock keeps a second service out, but a process that was stopped keeps its lock, and may go on in the middle of a
write. So each service writes through its own symbolic link in the directory, which leads to the directory. Its
successor removes that link, and from then on every path of the predecessor leads nowhere: its late writes fail.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gavel.errors import BackendUnavailable
from gavel.types import Term

LOCK = "backend.lock"
LINK = re.compile(r"writer-([0-9a-z]+)-([0-9]+)")
ALONE = "alone"  # stands for the database of a service without a term


class StateDirLock:
    """Holds the directory until `close`, or until a newer term of the same database takes over.

    A service without a term takes over from nobody. `is_current` is False if a service with another directory has had a
    term since the last one here: what is stored of gangs is then no longer true. Raises BackendUnavailable when another
    service has the directory.
    """

    def __init__(self, state_dir: Path, term: Term | None) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state_dir = state_dir
        before = [each.generation for each in self._terms() if term and each.database == term.database]
        self.is_current = term is None or term.generation <= max(before, default=term.generation) + 1
        self._lock = self._take_lock(term)
        try:
            self.path = state_dir / _name(self._enter(term or self._next_alone()))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock; calling it twice is harmless. The link stays, so that no older term can take over."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self, term: Term | None) -> int:
        """Return a descriptor whose lock keeps every other service out; its holder's death frees it."""
        path = self._state_dir / LOCK
        lock = _locked(path)
        if lock is None and term is not None and self._is_newest(term):
            path.unlink(missing_ok=True)  # a suspended holder keeps its lock on a deleted file
            lock = _locked(path)
        if lock is None:
            raise self._refusal()
        return lock

    def _enter(self, term: Term) -> Term:
        """Make this service's link, check that no newer term took over meanwhile, then remove all other links."""
        link = self._state_dir / _name(term)
        with suppress(FileExistsError):  # the same term, opened again
            link.symlink_to(".")
        if not self._has_lock() and not self._is_newest(term, but=term):
            link.unlink(missing_ok=True)
            raise self._refusal()
        for other in self._terms():
            if other != term:
                (self._state_dir / _name(other)).unlink(missing_ok=True)
        return term

    def _has_lock(self) -> bool:
        """Return True if the file that we locked is still the one in the directory: no newer service then lives."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._lock), (self._state_dir / LOCK).stat())
        return False

    def _is_newest(self, term: Term, *, but: Term | None = None) -> bool:
        """Return True if there are links of others, all of them of older terms of the same database."""
        others = [each for each in self._terms() if each != but]
        older = [each.database == term.database and each.generation < term.generation for each in others]
        return bool(older) and all(older)

    def _next_alone(self) -> Term:
        generations = (each.generation for each in self._terms() if each.database == ALONE)
        return Term(database=ALONE, generation=max(generations, default=0) + 1)

    def _terms(self) -> Iterator[Term]:
        for name in os.listdir(self._state_dir):
            if matched := LINK.fullmatch(name):
                yield Term(database=matched[1], generation=int(matched[2]))

    def _refusal(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"another service uses {self._state_dir}: stop it, or give this one its own state_dir"
        )


def _name(term: Term) -> str:
    return f"writer-{term.database}-{term.generation}"


def _locked(path: Path) -> int | None:
    """Return a descriptor of the file, locked; None if another process has the lock."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
