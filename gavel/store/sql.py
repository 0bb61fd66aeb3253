"""All the stores' ports (gavel/ports/store.py) on SQLite or PostgreSQL.

Calls block until they are committed. All writes of a process go through one thread (writer.py), readers have
connections of their own; several processes may use one database.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gavel.errors import StoreUnavailable
from gavel.ports import (
    AuditEntry,
    Changes,
    Feed,
    JobEdit,
    JobEvent,
    JobFilter,
    Page,
    ReservationRule,
    Snapshot,
    Submitted,
    ThroughputEstimate,
)
from gavel.store import (
    audit,
    codec,
    commands,
    operations,
    predictions,
    purging,
    queries,
    reservations,
    sessions,
    tokens,
    user_requests,
)
from gavel.store.autopilot import AutopilotDecisions
from gavel.store.database import open_database
from gavel.store.federated import FederatedIdentities
from gavel.store.feed import feed
from gavel.store.job_users import JobUsers
from gavel.store.leadership import Leadership
from gavel.store.metric_points import metric_points
from gavel.store.notices import Listener
from gavel.store.notifications import Notifications
from gavel.store.rules import KEEP_EVENTS_S, KEEP_ROUNDS, JobIds, check_limit, check_token_hash
from gavel.store.submission import Books, Submission, submitted
from gavel.store.writer import Transaction, Writer
from gavel.types import (
    ApplicationResource,
    BearerToken,
    Cluster,
    Identity,
    Job,
    JobId,
    JobSpec,
    JobState,
    MetricPoint,
    NodeStatus,
    Operation,
    OperationId,
    Prediction,
    RoundPlan,
    RoundRecord,
    Scope,
    Tier,
    Usage,
    User,
)

T = TypeVar("T")


def _nothing() -> None:
    """Do nothing: the default where nobody needs to know of changes."""


class SqlStore:
    """A store in a database; safe from any thread. Opening it applies migrations.

    `on_change` is called after each commit of changes from the API's side, so that the scheduler can wake; it must
    neither wait nor raise, since it is the writer's thread that calls it. `busy_timeout_s` bounds
    the wait for another process's write. Rounds older than the newest `keep_rounds` are dropped, and so
    are events and decisions of rounds after `keep_events_s`. A user may have `jobs_per_user` unfinished jobs (None: any
    number). A user who submits a job is given one of `job_uids`, if there are any. `reservation_rule` decides which
    sessions may have workers from an instant on; None: all that ask. `cache_version`: see `gavel.ports.ApiStore`.
    Raises StoreUnavailable for a database that cannot be opened, is damaged, or was written by a newer Gavel.
    """

    def __init__(  # noqa: PLR0913  what may be stored and for how long
        self,
        url: str,
        *,
        on_change: Callable[[], None] = _nothing,
        keep_rounds: int = KEEP_ROUNDS,
        keep_events_s: float = KEEP_EVENTS_S,
        jobs_per_user: int | None = None,
        job_uids: Sequence[int] = (),
        reservation_rule: ReservationRule | None = None,
        busy_timeout_s: float = 5.0,
        random_bits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._write_engine, self._read_engine = open_database(url, busy_timeout_s=busy_timeout_s)
        self._writer = Writer(self._write_engine, on_change=on_change)
        self.leadership = Leadership(self._write_engine, self._read_engine, self._writer)
        self.autopilot = AutopilotDecisions(self._read, self._writer.write, self.leadership.check)
        self.notifications = Notifications(self._read, self._writer.write)
        self.federated = FederatedIdentities(self._read, self._write)
        self.job_users = JobUsers(self._read, self._writer.write)
        self._keep_rounds = keep_rounds
        self._keep_events_s = keep_events_s
        self._ids = JobIds(random_bits)
        self._books = Books(
            ids=self._ids, jobs_per_user=jobs_per_user, uids=job_uids, reservation_rule=reservation_rule
        )
        self.cache_version = 0
        self._snapshot = queries.SnapshotCache()
        hears_others = on_change is not _nothing and self._write_engine.dialect.name == "postgresql"
        self._listener = Listener(url, on_change) if hears_others else None

    def close(self) -> None:
        """Write what is queued, then close the database. Calling it twice is harmless."""
        if self._listener:
            self._listener.close()
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
        """Write for the API: this wakes the scheduler, in whichever process it is.

        It changes `cache_version`, unlike a submit.
        """
        try:
            return self._writer.write(apply, signals_change=True)
        finally:
            self.cache_version += 1

    # --- the scheduler's side -----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return a consistent view; the same object as before if nothing was written since."""
        return self._read(self._snapshot.read)

    def commit(self, expected_version: int, changes: Changes) -> int:
        """Write all changes in one transaction; the new version.

        Raises StaleVersion, NotFound (a job), InvariantViolated, StoreUnavailable, and LeadershipLost once another
        process leads the scheduler.
        """
        commit = commands.Commit(
            expected_version,
            changes,
            self._books,
            keep_rounds=self._keep_rounds,
            keep_events_s=self._keep_events_s,
        )

        def apply(tx: Transaction) -> int:
            self.leadership.check(tx)
            return commit.apply(tx)

        try:
            with self._snapshot.lock:  # who reads meanwhile waits, and need not decode what is written here
                version = self._writer.write(apply)
                self._snapshot.remember(commit.jobs, changes.round, commit.decision)
        finally:
            self.cache_version += changes.cluster is not None
        return version

    # --- jobs ---------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float) -> Submitted:
        """Store job, event and idempotency key (one namespace per user) in one transaction. Raises KeyReused."""
        return self.submit_many([spec], key=key, body_hash=body_hash, now_s=now_s)[0]

    def submit_many(
        self, specs: Sequence[JobSpec], *, key: str | None, body_hash: str, now_s: float, is_array: bool = False
    ) -> tuple[Submitted, ...]:
        """Store all jobs, of one user, or none, in one transaction. Raises KeyReused, InvalidRequest (`after`)."""
        wanted = Submission(
            books=self._books, specs=specs, key=key, body_hash=body_hash, now_s=now_s, is_array=is_array
        )
        return self._writer.write(wanted, signals_change=True)

    def start_submit(
        self, spec: JobSpec, *, key: str | None, body_hash: str, now_s: float
    ) -> "Future[tuple[Submitted, ...]]":
        """Queue a submit; another thread sets the result. Raises StoreUnavailable when it cannot be queued."""
        wanted = Submission(books=self._books, specs=[spec], key=key, body_hash=body_hash, now_s=now_s)
        return self._writer.send(wanted, signals_change=True)

    def submitted(self, user: str, key: str, *, body_hash: str) -> tuple[Job, ...]:
        """Return the jobs that this key made before; empty if none. Raises KeyReused for another body."""
        return self._read(lambda connection: tuple(submitted(connection, user, key, body_hash)))

    def request_cancel(self, job_id: JobId, *, now_s: float, by: str = "") -> Job:
        """Store the request to cancel the job; idempotent. Raises NotFound, Conflict for one that ended otherwise."""
        return self._write(lambda tx: user_requests.request_cancel(tx, job_id, now_s, by))

    def request_cancel_all(
        self, where: JobFilter, *, keep: Sequence[JobId] = (), now_s: float, by: str = ""
    ) -> tuple[JobId, ...]:
        """Ids of the unfinished jobs that match, except those in `keep`: a request to cancel each is stored."""
        return self._write(lambda tx: user_requests.request_cancel_all(tx, where, keep, now_s, by))

    def request_pause(self, job_id: JobId, *, is_paused: bool, now_s: float, by: str = "") -> Job:
        """Store the request to pause or resume a job; idempotent. Raises NotFound, Conflict when the job has ended."""
        return self._write(lambda tx: user_requests.request_pause(tx, job_id, is_paused, now_s, by))

    def edit_job(
        self, job_id: JobId, edit: JobEdit, *, expected_version: int | None, now_s: float, by: str = ""
    ) -> Job:
        """Change a job's weight, priority or labels. Raises NotFound, StaleVersion, Conflict when the job has ended."""
        rule = self._books.reservation_rule
        return self._write(lambda tx: user_requests.edit_job(tx, job_id, edit, expected_version, now_s, by, rule))

    def purge_job(self, job_id: JobId, *, by: str, now_s: float) -> Job:
        """Delete an ended job with all that is stored of it; return it. Raises NotFound, Conflict while it lives."""
        return self._write(lambda tx: purging.purge_job(tx, job_id, by, now_s))

    def ended_jobs(self, before_s: float) -> tuple[JobId, ...]:
        """Return ids of jobs that ended before the instant, oldest first, a bounded number; () if there are none."""
        return self._read(lambda connection: purging.ended_jobs(connection, before_s))

    def delete_ended(self, job_ids: Sequence[JobId]) -> None:
        """Delete these jobs of `ended_jobs` with all that is stored of them."""
        self._writer.write(lambda tx: purging.delete_jobs(tx, job_ids))

    def forget_keys(self, before_s: float) -> int:
        """Delete some of the idempotency keys of jobs submitted before the instant; return how many, 0 if none is."""
        return self._writer.write(lambda tx: purging.forget_keys(tx, before_s))

    def non_preemptible_jobs(self) -> tuple[Job, ...]:
        """Return the unfinished jobs that may not be preempted, without services."""
        return tuple(self._read(reservations.non_preemptible_jobs))

    def job(self, job_id: JobId) -> Job:
        """Return the job. Raises NotFound."""
        return self._read(lambda connection: queries.job(connection, job_id))

    def jobs(self, where: JobFilter, *, cursor: JobId | None = None, limit: int = 50) -> Page:
        """Return a page of jobs, newest first; limit 1..200."""
        check_limit(limit, 200)
        return self._read(lambda connection: queries.jobs(connection, where, cursor, limit))

    def count_jobs(self) -> Mapping[tuple[JobState, str], int]:
        """Return the number of jobs by (state, tier)."""
        return self._read(queries.count_jobs)

    def events(self, job_id: JobId, *, after: int = 0, limit: int = 200) -> tuple[JobEvent, ...]:
        """Return a job's events (the cluster's: "") with sequence > `after`, oldest first; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: queries.events(connection, job_id, after, limit))

    def metric_points(self, job_id: JobId) -> tuple[MetricPoint, ...]:
        """Return the points of the curves of a job's metrics, at most about 1,000, by their steps."""
        return self._read(lambda connection: metric_points(connection, job_id))

    # --- rounds and what was seen -------------------------------------------------------------------------------

    def feed(self, *, after: int | None = None, limit: int = 200) -> Feed:
        """Return jobs and rounds written after a position; with None only the newest position; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: feed(connection, after, limit))

    def rounds(self, *, before: int | None = None, limit: int = 40) -> tuple[RoundPlan, ...]:
        """Return the plans with round_index < `before`, newest first; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: queries.rounds(connection, before, limit))

    def round(self, round_index: int | None = None) -> RoundRecord:
        """Return one whole round; with None the newest. Raises NotFound."""
        return self._read(lambda connection: queries.round_record(connection, round_index))

    def cluster(self) -> Cluster:
        """Return the cluster as last committed by the scheduler; empty before its first tick."""
        return codec.cluster(self._read(lambda connection: queries.document(connection, "cluster")))

    def throughputs(self) -> tuple[ThroughputEstimate, ...]:
        """Return the estimator's table as last committed."""
        return codec.throughputs(self._read(lambda connection: queries.document(connection, "throughputs")))

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return the status of each node as last committed by the scheduler, sorted by name."""
        return codec.nodes(self._read(lambda connection: queries.document(connection, "nodes")))

    def resources(self) -> tuple[ApplicationResource, ...]:
        """Return the ephemeral resources of applications, as last committed by the scheduler."""
        return codec.resources(self._read(lambda connection: queries.document(connection, "resources")))

    # --- commands -----------------------------------------------------------------------------------------------

    def add_command(self, kind: str, *, subject: str, body: Mapping[str, Any], by: str, now_s: float) -> Operation:
        """The new operation, stored and pending; the scheduler is woken. Raises StoreUnavailable when too many wait."""
        command = operations.NewCommand(kind=kind, subject=subject, body=body, by=by, now_s=now_s)
        return self._write(lambda tx: operations.add_command(tx, self._ids.next(now_s), command))

    def operation(self, operation_id: OperationId) -> Operation:
        """Return a command's operation, with its result once it has ended. Raises NotFound, also long after its end."""
        return self._read(lambda connection: operations.operation(connection, operation_id))

    # --- decisions and usage ------------------------------------------------------------------------------------

    def audit(
        self, *, subject: str | None = None, user: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Return the audit entries of a subject or a user (None: any), newest first; limit 1..200."""
        check_limit(limit, 200)
        return self._read(lambda connection: audit.audit(connection, subject, user, before, limit))

    def predictions(self, *, limit: int = 500) -> tuple[Prediction, ...]:
        """What was expected of the jobs that completed last, and what became of it; newest first; limit 1..1000."""
        check_limit(limit, 1000)
        return self._read(lambda connection: predictions.predictions(connection, limit))

    def usage(self, month: str) -> tuple[Usage, ...]:
        """Return what tiers used in a month (`2026-11`), sorted by tier."""
        return self._read(lambda connection: audit.usage(connection, month))

    # --- tenants ------------------------------------------------------------------------------------------------

    def tiers(self) -> tuple[Tier, ...]:
        """Return the tiers, sorted by name."""
        return tuple(self._read(queries.tiers).values())

    def put_tier(self, tier: Tier, *, expected_version: int | None, by: str, now_s: float) -> Tier:
        """Create (expected_version None and no such tier) or replace. Raises StaleVersion, NotFound, InvalidRequest."""
        return self._write(lambda tx: commands.put_tier(tx, tier, expected_version, by, now_s))

    def users(self) -> tuple[User, ...]:
        """Return the users, sorted by name."""
        return self._read(queries.users)

    def put_user(self, user: User, *, by: str, now_s: float) -> User:
        """Create or replace. Raises NotFound for an unknown tier, InvalidRequest for none."""
        return self._write(lambda tx: commands.put_user(tx, user, by, now_s))

    def add_token(
        self, token_hash: str, *, user: str, scope: Scope, job_id: JobId | None = None, now_s: float, by: str = ""
    ) -> None:
        """Store the SHA-256 of a new token (hex). Raises InvalidRequest, Conflict if another holder has it."""
        check_token_hash(token_hash)
        holder = Identity(user=user, scope=scope, job_id=job_id)
        self._writer.write(lambda tx: commands.add_token(tx, token_hash, holder, by, now_s))

    def add_job_tokens(self, jobs: Mapping[str, Job], *, now_s: float) -> None:
        """Store the SHA-256 (hex) of tokens that jobs' programs call the API with; those stored change nothing."""
        self._writer.write(lambda tx: tokens.add_job_tokens(tx, jobs, now_s))

    def identify(self, token_hash: str) -> Identity | None:
        """Return who holds the token with this SHA-256 (hex); None if nobody does."""
        return self._read(lambda connection: queries.identity(connection, token_hash))

    def start_session(self, session_hash: str, token_hash: str, *, now_s: float, ends_at_s: float) -> None:
        """Begin a session of a browser by the SHA-256 of its id. Raises NotFound if nobody holds the token."""
        check_token_hash(session_hash)
        self._writer.write(lambda tx: sessions.start_session(tx, session_hash, token_hash, now_s, ends_at_s))

    def session_holder(self, session_hash: str, now_s: float) -> Identity | None:
        """Return who logged in to the session; None if it has ended, or the token has, or there is none."""
        return self._read(lambda connection: sessions.session_holder(connection, session_hash, now_s))

    def end_session(self, session_hash: str) -> None:
        """End a session, if there is one."""
        self._write(lambda tx: sessions.end_session(tx, session_hash))

    def tokens(self, user: str) -> tuple[BearerToken, ...]:
        """Return the user's bearer tokens and those of its unfinished jobs, oldest first."""
        return self._read(lambda connection: tokens.tokens(connection, user))

    def revoke_token(self, user: str, token_id: str, *, by: str, now_s: float) -> None:
        """Revoke a token: it opens nothing any more. Raises NotFound."""
        self._write(lambda tx: tokens.revoke_token(tx, user, token_id, by, now_s))
