"""The uids that the jobs of users run as, in SQL. A row is never deleted, so that no uid is given twice."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from gavel.errors import LimitReached
from gavel.store.schema import JobUserRow
from gavel.store.writer import Transaction

_TABLE: Any = JobUserRow.__table__


class JobUsers:
    """The uids of a store, safe from any thread. `read` and `write` are the store's own."""

    def __init__(
        self,
        read: Callable[[Callable[[Connection], Any]], Any],
        write: Callable[[Callable[[Transaction], Any]], Any],
    ) -> None:
        self._read, self._write = read, write

    def uid_of(self, user: str, uids: Sequence[int]) -> int:
        """Return the uid of the user's jobs, which is given to the user now if there is none. Raises LimitReached."""
        uid = self._read(lambda connection: _given(connection, user))
        return int(self._write(lambda tx: give_uid(tx, user, uids)) if uid is None else uid)


def _given(connection: Connection, user: str) -> int | None:
    return connection.execute(select(_TABLE.c.uid).where(_TABLE.c.user_name == user)).scalar_one_or_none()


def give_uid(tx: Transaction, user: str, uids: Sequence[int]) -> int:
    """Return the uid of the user's jobs, which is given to the user now if there is none. Raises LimitReached."""
    if (uid := _given(tx.connection, user)) is not None:
        return uid  # another process was faster
    taken = set(tx.connection.execute(select(_TABLE.c.uid)).scalars())
    free = next((each for each in uids if each not in taken), None)
    if free is None:
        raise LimitReached(
            f"{user} has no Unix user for its jobs yet, and all {len(uids)} uids of job_users are given; "
            "ask an operator to make that range longer"
        )
    tx.connection.execute(insert(_TABLE), {"user_name": user, "uid": free})
    return free
