"""One writer of a state directory at a time, even where the one before is only asleep.

A lock keeps a second service out, but a process that was stopped keeps its lock, and may go on in the middle of a
write. So whoever writes goes through a name of its own: a link in the directory, to the directory. Its successor takes
that name away, and from that instant every path of the predecessor leads nowhere: what it does late fails.
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
ALONE = "alone"  # the database of a service that has none


class Tenure:
    """Holds the directory until `close`, or until a newer term of the same database takes over.

    Without a term it takes over from nobody. Raises BackendUnavailable when another service has the directory.
    """

    def __init__(self, state_dir: Path, term: Term | None) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state_dir = state_dir
        self._lock = self._take_lock(term)
        try:
            self.path = state_dir / _name(self._enter(term or self._next_alone()))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others in. The name stays: nobody with an older term is to come after us. Twice does no harm."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self, term: Term | None) -> int:
        """A descriptor that keeps every other service out; its holder's death frees it."""
        path = self._state_dir / LOCK
        lock = _locked(path)
        if lock is None and term is not None and self._is_newest(term):
            path.unlink(missing_ok=True)  # its holder, stopped or slow, keeps a lock on a file without a name
            lock = _locked(path)
        if lock is None:
            raise self._refusal()
        return lock

    def _enter(self, term: Term) -> Term:
        """Make our name, then see that nobody newer took over meanwhile, then take away all others."""
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
        """Whether the file that we locked is still the one that others find: then a newer name is no living one's."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._lock), (self._state_dir / LOCK).stat())
        return False

    def _is_newest(self, term: Term, *, but: Term | None = None) -> bool:
        """Whether others have written here, and all of them for the same database before."""
        others = [each for each in self._terms() if each != but]
        older = [each.database == term.database and each.generation < term.generation for each in others]
        return bool(older) and all(older)

    def _next_alone(self) -> Term:
        known = (each.generation for each in self._terms() if each.database == ALONE)
        return Term(database=ALONE, generation=max(known, default=0) + 1)

    def _terms(self) -> Iterator[Term]:
        for name in os.listdir(self._state_dir):
            if found := LINK.fullmatch(name):
                yield Term(database=found[1], generation=int(found[2]))

    def _refusal(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"another service uses {self._state_dir}: stop it, or give this one its own state_dir"
        )


def _name(term: Term) -> str:
    return f"writer-{term.database}-{term.generation}"


def _locked(path: Path) -> int | None:
    """A descriptor of the file, locked; None: another process has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
