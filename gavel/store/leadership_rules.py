"""The rules of the leadership of the scheduler, whatever keeps its row: who may take it, and who holds it."""

import secrets
from dataclasses import dataclass
from typing import Protocol

from gavel.errors import LeadershipLost
from gavel.types import Term


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRow:
    """The row of the leader: generation 0 before anybody led, no holder after a leader resigned.

    A leader whose beat does not change for `lease_s` seconds is gone. `database` is the identifier of this database.
    """

    database: str = ""
    generation: int = 0
    holder: str = ""
    beat: int = 0
    lease_s: float = 0.0


class Election(Protocol):
    """The part of one process in the leadership; Leadership and LeadershipInMemory implement it."""

    def current(self) -> LeaderRow:
        """Return the row of the leader as it is now. Raises StoreUnavailable."""

    def blocked_by(self) -> int | None:
        """Return the pid of the process of this machine that keeps others from writing; None if none is known."""

    def take(self, holder: str, *, lease_s: float, seen: LeaderRow) -> Term | None:
        """Become the leader and return the new term; None if the row changed since `seen`. Raises StoreUnavailable."""

    def beat(self) -> None:
        """Increment the beat, which shows that the leader lives. Raises LeadershipLost, StoreUnavailable."""

    def resign(self) -> None:
        """Give up the leadership, so that the next process can lead at once; this generation commits nothing more."""


def next_row(holder: str, *, lease_s: float, seen: LeaderRow) -> LeaderRow:
    """Return the row of the leader after `seen`: its generation and its beat are higher."""
    return LeaderRow(
        database=seen.database or secrets.token_hex(8),
        generation=seen.generation + 1,
        holder=holder,
        beat=seen.beat + 1,
        lease_s=lease_s,
    )


def check_leads(now: LeaderRow, generation: int | None) -> None:
    """Raise LeadershipLost unless the process of this generation leads now.

    A process that never led (None) is alone with its database, as in a simulation.
    """
    if generation is not None and (now.generation != generation or not now.holder):
        raise lost(generation)


def lost(generation: int | None) -> LeadershipLost:
    """Return the error for a leader that another one has followed."""
    return LeadershipLost(f"generation {generation} does not lead the scheduler any more: another process took over")
