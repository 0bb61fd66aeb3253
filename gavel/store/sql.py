"""`gavel.ports.Store` on SQLite or PostgreSQL.

Calls block until they are committed. All writes of a process go through one thread (writer.py), readers have
connections of their own; several processes may use one database.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import StoreUnavailable
from gavel.ports import (
    Changes,
    JobEvent,
    JobFilter,
    Page,
    Snapshot,
    Submitted,
    ThroughputEstimate,
)
from gavel.store import codec, commands, queries
from gavel.store.database import open_database
from gavel.store.rules import KEEP_ROUNDS, JobIds, check_limit, check_token_hash
from gavel.store.writer import Transaction, Writer
from gavel.types import (
    Cluster,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    User,
)

T = TypeVar("T")


def _nothing() -> None:
    """Nobody wants to hear of changes."""


class SqlStore:
    """A store in a database; safe from any thread. Opening it applies migrations.

    `on_change` is called after each change from the API's side, so that the scheduler can wake. `busy_timeout_s` bounds
    the wait for another process's write. Rounds older than the newest `keep_rounds` are dropped.
    Raises StoreUnavailable for a database that cannot be opened, is damaged, or was written by a newer Gavel.
    """

    def __init__(
        self,
        url: str,
        *,
        on_change: Callable[[], None] = _nothing,
        keep_rounds: int = KEEP_ROUNDS,
        busy_timeout_s: float = 5.0,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._write_engine, self._read_engine = open_database(url, busy_timeout_s=busy_timeout_s)
        self._writer = Writer(self._write_engine)
        self._on_change = on_change
        self._keep_rounds = keep_rounds
        self._ids = JobIds(random_bits)
        self._snapshot = queries.SnapshotCache()

    def close(self) -> None:
        """Finish what is queued, then let go of the database. Twice is harmless."""
        self._writer.close()
        self._write_engine.dispose()
        self._read_engine.dispose()

    def _read(self, query: Callable[[Connection], T]) -> T:
        try:
            with self._read_engine.connect() as connection:
                return query(connection)
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database cannot be read now: {str(error).splitlines()[0]}") from error

    def _write(self, apply: Callable[[Transaction], T]) -> T:
        """A write from the API's side."""
        result = self._writer.write(apply)
        self._on_change()
        return result

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """A consistent view for deciding; the same object as before if nothing was written since."""
        return self._read(self._snapshot.read)

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes in one transaction; the new version.

        Raises StaleVersion, NotFound (a job), InvariantViolated, StoreUnavailable.
        """
        commit = commands.Commit(expected_version, changes, keep_rounds=self._keep_rounds)
        return self._writer.write(commit.apply)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Job, event and idempotency key (one namespace per user) in one transaction. Raises KeyReused."""
        wanted = commands.Submission(spec=spec, key=key, body_hash=body_hash, now_s=now_s)
        return self._write(lambda tx: commands.submit(tx, self._ids, wanted))

    def request_cancel(self, job_id: JobId, *, now_s: float) -> Job:
        """Record the wish; idempotent. Raises NotFound, Conflict when the job has already ended otherwise."""
        return self._write(lambda tx: commands.request_cancel(tx, job_id, now_s))

    def job(self, job_id: JobId) -> Job:
        """Raises NotFound."""
        return self._read(lambda connection: queries.job(connection, job_id))

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Newest first; limit 1..200."""
        check_limit(limit, 200)
        return self._read(lambda connection: queries.jobs(connection, where, cursor, limit))

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Number of jobs by (state, tier)."""
        return self._read(queries.count_jobs)

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Events of a job (of the cluster: "") with sequence > after, oldest first; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: queries.events(connection, job_id, after, limit))

    # --- rounds and what was seen -------------------------------------------------------------------------------

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Newest first, with round_index < before; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: queries.rounds(connection, before, limit))

    def round(self, round_index: int | None = None) -> RoundRecord:
        """One round whole; None: the newest. Raises NotFound."""
        return self._read(lambda connection: queries.round_record(connection, round_index))

    def cluster(self) -> Cluster:
        """The cluster as last committed by the scheduler; empty before its first tick."""
        return codec.cluster(self._read(lambda connection: queries.document(connection, "cluster")))

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """The estimator's table as last committed."""
        return codec.throughputs(self._read(lambda connection: queries.document(connection, "throughputs")))

    # --- tenants ------------------------------------------------------------------------------------------------

    def tiers(self) -> tuple[Tier, ...]:
        """Sorted by name."""
        return tuple(self._read(queries.tiers).values())

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion, NotFound, InvalidRequest."""
        return self._write(lambda tx: commands.put_tier(tx, tier, expected_version, by, now_s))

    def users(self) -> tuple[User, ...]:
        """Sorted by name."""
        return self._read(queries.users)

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier, InvalidRequest for none."""
        return self._write(lambda tx: commands.put_user(tx, user, by, now_s))

    def add_token(self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float) -> None:
        """Remember the SHA-256 of a new token (hex). Raises InvalidRequest, Conflict if another holder has it."""
        check_token_hash(token_hash)
        self._writer.write(lambda tx: commands.add_token(tx, token_hash, user, scope, job_id, now_s))

    def identify(self, token_hash: str) -> Identity | None:
        """Who holds the token with this SHA-256 (hex); None: nobody."""
        return self._read(lambda connection: queries.identity(connection, token_hash))
