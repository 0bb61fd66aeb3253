"""Who plans: one row of the database says which process leads the scheduler, and under which generation.

A leader counts up the row's beat while it lives. Whoever stands by judges its silence by that count and by its own
monotonic clock, never by comparing the clocks of two hosts, and takes over by raising the generation. From then on
every commit of the leader before is refused, in the transaction that would have written it, however late it comes.
"""

import secrets
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import LeadershipLost, StoreUnavailable
from gavel.store.schema import LeadershipRow
from gavel.store.writer import Transaction, Writer
from gavel.types import Term

_ROW = LeadershipRow.__table__


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The row as it is: generation 0 before anybody led, no holder after a leader went in good order.

    A leader whose beat does not change for `lease_s` is gone. `database` is what this database calls itself.
    """

    database: str = ""
    generation: int = 0
    holder: str = ""
    beat: int = 0
    lease_s: float = 0.0


class Leadership:
    """One process's part in it. `generation` is the one that its commits are made under; None: it never led."""

    def __init__(self, write_engine: Engine, read_engine: Engine, writer: Writer) -> None:
        self._write_engine = write_engine
        self._read_engine = read_engine
        self._writer = writer
        self.generation: int | None = None

    def standing(self) -> Standing:
        """Who leads now. Raises StoreUnavailable."""
        try:
            with self._read_engine.connect() as connection:
                return _standing(connection)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be read now: {_first_line(error)}") from error

    def take(self, holder: str, *, lease_s: float, seen: Standing) -> Term | None:
        """Lead from now on; None if somebody has led or beaten since `seen`. Raises StoreUnavailable.

        It goes through the writer, as commits do: those of the leader before are in the database by now, or refused.
        """
        term = Term(database=seen.database or secrets.token_hex(8), generation=seen.generation + 1)
        row = asdict(term) | {"holder": holder, "beat": seen.beat + 1, "lease_s": lease_s}

        def apply(tx: Transaction) -> bool:
            if _standing(tx.connection, until_commit=True) != seen:
                return False
            _put(tx.connection, row)
            return True

        if not self._writer.write(apply):
            return None
        self.generation = term.generation
        return term

    def beat(self) -> None:
        """A sign of life. Raises LeadershipLost, StoreUnavailable.

        Not by the writer: a queue of submits must not look like death, and a beat is no change that anybody reads.
        """
        is_ours = _ROW.c.generation == self.generation
        try:
            with self._write_engine.begin() as connection:
                done = connection.execute(update(LeadershipRow).where(is_ours).values(beat=LeadershipRow.beat + 1))
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot take a write now: {_first_line(error)}") from error
        if done.rowcount != 1:
            raise _lost(self.generation)

    def resign(self) -> None:
        """Let the next one lead at once; nothing is committed under this generation any more."""
        is_ours = _ROW.c.generation == self.generation
        self._writer.write(lambda tx: tx.connection.execute(update(LeadershipRow).where(is_ours).values(holder="")))

    def check(self, tx: Transaction) -> None:
        """In a scheduler's commit: raises LeadershipLost if another process leads by now, or this one resigned.

        A process that never led is alone with its database, as a simulation is.
        """
        if self.generation is None:
            return
        now = _standing(tx.connection)
        if now.generation != self.generation or not now.holder:
            raise _lost(self.generation)


def _standing(connection: Connection, *, until_commit: bool = False) -> Standing:
    """The row; `until_commit`: and nobody beats before this transaction is over."""
    query = select(_ROW.c.database, _ROW.c.generation, _ROW.c.holder, _ROW.c.beat, _ROW.c.lease_s)
    row = connection.execute(query.with_for_update() if until_commit else query).one_or_none()
    return Standing() if row is None else Standing(**row._mapping)


def _put(connection: Connection, row: dict[str, object]) -> None:
    if connection.execute(update(LeadershipRow).values(row)).rowcount == 0:
        connection.execute(insert(LeadershipRow), row | {"id": 1})


def _lost(generation: int | None) -> LeadershipLost:
    return LeadershipLost(f"generation {generation} does not lead the scheduler any more: another process took over")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
