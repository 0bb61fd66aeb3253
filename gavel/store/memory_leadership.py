"""The leadership of the scheduler without a database: processes of a simulation share one row."""

from dataclasses import dataclass, field, replace

from gavel.store.leadership_rules import LeaderRow, check_leads, lost, next_row
from gavel.types import Term


@dataclass(slots=True)
class SharedRow:
    """The row that all processes of a simulation see."""

    row: LeaderRow = field(default_factory=LeaderRow)


class LeadershipInMemory:
    """The part of one process in the leadership; `generation` is the one under which its commits are made."""

    def __init__(self, shared: SharedRow) -> None:
        self._shared = shared
        self.generation: int | None = None

    def current(self) -> LeaderRow:
        """Return the row of the leader as it is now."""
        return self._shared.row

    def blocked_by(self) -> int | None:
        """Return None: nobody holds a lock between two calls."""
        return None

    def take(self, holder: str, *, lease_s: float, seen: LeaderRow) -> Term | None:
        """Become the leader and return the new term; None if the row changed since `seen`."""
        if self._shared.row != seen:
            return None
        self._shared.row = row = next_row(holder, lease_s=lease_s, seen=seen)
        self.generation = row.generation
        return Term(database=row.database, generation=row.generation)

    def beat(self) -> None:
        """Increment the beat. Raises LeadershipLost."""
        row = self._shared.row
        if row.generation != self.generation:
            raise lost(self.generation)
        self._shared.row = replace(row, beat=row.beat + 1)

    def resign(self) -> None:
        """Give up the leadership; this generation commits nothing more."""
        if self._shared.row.generation == self.generation:
            self._shared.row = replace(self._shared.row, holder="")

    def check(self) -> None:
        """Raise LeadershipLost in a scheduler's commit if another process leads by now, or this one resigned."""
        check_leads(self._shared.row, self.generation)
