"""Keeps what one gang has done to its files from every other gang: the gang is lost, and the service goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from gavel.backends import gang_processes
from gavel.backends.folder import StateFolder
from gavel.backends.gang import GangKey, LocalGang
from gavel.backends.gang_records import SPOILT


def warn(logger: str, event: str, **about: object) -> None:
    """Log a warning; the library is loaded only then, since it takes a quarter of the time in which an agent starts."""
    import structlog

    structlog.get_logger(logger).warning(event, **about)


class Condemnable(Protocol):
    """A gang that can be killed and lost."""

    @property
    def key(self) -> GangKey:
        """Return job and generation."""

    def condemn(self, reason: str) -> None:
        """Kill all that is left of the gang; it is lost with this reason."""


@contextmanager
def isolated(gang: Condemnable, folder: StateFolder) -> Iterator[None]:
    """Condemn the gang for what goes wrong in the block, whatever it is.

    Raises OSError where no gang's files can be used: that is this machine's fault, or another service has taken over.
    """
    try:
        yield
    except Exception as problem:
        folder.check_usable()
        job_id, generation = gang.key
        warn("gavel.gangs", "gang.condemned", job=job_id, generation=generation, exc_info=True)
        gang.condemn(f"its files cannot be used: {problem}")


def adopted_gangs(folder: StateFolder, *, lease_grace_s: float) -> Iterator[LocalGang]:
    """Yield the gangs of this machine that an earlier service left, oldest first, then end what is left of others.

    A gang whose file no service has written is as if it had never been launched, and its job starts again: so nothing
    of it may run.
    """
    alive = gang_processes.homes_below(folder.gangs_dir)
    for directory, checkpoints in folder.gangs():
        has_processes = str(directory) in alive
        try:
            gang = LocalGang.adopt(
                folder.own(directory), checkpoints, lease_grace_s=lease_grace_s, has_processes=has_processes
            )
        except SPOILT as problem:
            warn("gavel.gangs", "gang.refused", folder=str(directory), error=str(problem))
            continue
        if gang is not None:
            alive.discard(str(directory))
            yield gang
    gang_processes.end_all(folder.gangs_dir, alive)
