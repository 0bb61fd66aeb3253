"""Which process leads the scheduler: one row of the database names the leader and its generation.

A leader increments the row's beat while it lives. A standby process watches that counter and measures by its own
monotonic clock for how long it has not changed; clocks of two hosts are never compared. It takes over by raising the
generation. From then on every commit of the former leader is refused, in the transaction that would have written it,
however late it comes.
"""

from dataclasses import asdict

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import StoreUnavailable
from gavel.store.leadership_rules import LeaderRow, check_leads, lost, next_row
from gavel.store.lock_holder import write_lock_holder
from gavel.store.revision import check_revision
from gavel.store.schema import LeadershipRow
from gavel.store.writer import Transaction, Writer, first_line
from gavel.types import Term

_ROW = LeadershipRow.__table__


class Leadership:
    """The part of one process in the leadership.

    `generation` is the one under which its commits are made; None if the process never led.
    """

    def __init__(self, write_engine: Engine, read_engine: Engine, writer: Writer) -> None:
        self._write_engine = write_engine
        self._read_engine = read_engine
        self._writer = writer
        self.generation: int | None = None

    def current(self) -> LeaderRow:
        """Return the row of the leader as it is now. Raises StoreUnavailable."""
        try:
            with self._read_engine.connect() as connection:
                return _leader_row(connection)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be read now: {first_line(error)}") from error

    def blocked_by(self) -> int | None:
        """Return the pid of the process of this machine that keeps others from writing; None if none is known."""
        return write_lock_holder(self._write_engine)

    def take(self, holder: str, *, lease_s: float, seen: LeaderRow) -> Term | None:
        """Become the leader and return the new row; None if the row changed since `seen`. Raises StoreUnavailable.

        The writer's thread does it, after all commits that are queued: those of the former leader are in the database
        by now, or will be refused.
        """
        row = next_row(holder, lease_s=lease_s, seen=seen)

        def apply(tx: Transaction) -> bool:
            if _leader_row(tx.connection, until_commit=True) != seen:
                return False
            _put(tx.connection, asdict(row))
            return True

        if not self._writer.write(apply):
            return None
        self.generation = row.generation
        return Term(database=row.database, generation=row.generation)

    def beat(self) -> None:
        """Increment the beat, which shows that the leader lives. Raises LeadershipLost, StoreUnavailable.

        It does not go through the writer's thread: a long queue of submits must not look like a dead leader.
        """
        is_ours = _ROW.c.generation == self.generation
        try:
            with self._write_engine.begin() as connection:
                check_revision(connection)
                done = connection.execute(update(LeadershipRow).where(is_ours).values(beat=LeadershipRow.beat + 1))
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot take a write now: {first_line(error)}") from error
        if done.rowcount != 1:
            raise lost(self.generation)

    def resign(self) -> None:
        """Give up the leadership, so that the next process can lead at once; this generation commits nothing more."""
        is_ours = _ROW.c.generation == self.generation
        self._writer.write(lambda tx: tx.connection.execute(update(LeadershipRow).where(is_ours).values(holder="")))

    def check(self, tx: Transaction) -> None:
        """Raise LeadershipLost in a scheduler's commit if another process leads by now, or this one resigned.

        A process that never led is alone with its database, as in a simulation.
        """
        if self.generation is not None:
            check_leads(_leader_row(tx.connection), self.generation)


def _leader_row(connection: Connection, *, until_commit: bool = False) -> LeaderRow:
    """Return the row; with `until_commit` nobody can beat before this transaction is over."""
    query = select(_ROW.c.database, _ROW.c.generation, _ROW.c.holder, _ROW.c.beat, _ROW.c.lease_s)
    row = connection.execute(query.with_for_update() if until_commit else query).one_or_none()
    return LeaderRow() if row is None else LeaderRow(**row._mapping)


def _put(connection: Connection, row: dict[str, object]) -> None:
    if connection.execute(update(LeadershipRow).values(row)).rowcount == 0:
        connection.execute(insert(LeadershipRow), row | {"id": 1})
