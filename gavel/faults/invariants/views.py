"""I18: what a scheduler sees is what is stored, although it reads only what others wrote since its last look."""

from dataclasses import fields
from typing import Any

from gavel.faults.invariants.base import Evidence, Invariant
from gavel.ports import Snapshot
from gavel.store import codec
from gavel.types import RoundRecord


class Views(Invariant):
    """Each look of a scheduler agrees with the database as another process reads it at the same instant."""

    name = "I18_views"

    def after_look(self, evidence: Evidence, snapshot: Snapshot) -> None:
        """Compare the look with that of the clients' process."""
        stored = evidence.store.snapshot()
        names = [each.name for each in fields(Snapshot)]
        differs = [name for name in names if not _is_same(getattr(snapshot, name), getattr(stored, name))]
        if differs:
            raise self.fail(f"version {stored.version}: the scheduler sees other {', '.join(differs)} than are stored")


def _is_same(one: Any, other: Any) -> bool:
    """Return True if both are equal, or rounds that are written down alike: their matrices are compared as bytes."""
    if one == other:
        return True
    is_of_rounds = isinstance(one, tuple) and bool(one) and isinstance(one[0], RoundRecord)
    return is_of_rounds and [*map(codec.pack_round, one)] == [*map(codec.pack_round, other)]
