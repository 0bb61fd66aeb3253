"""Everything that is read, as functions of an open connection; and the scheduler's snapshot, cached between reads."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, Select, Text, func, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gavel.ports import JobEvent, JobFilter, Page, Snapshot
from gavel.store import audit, codec, operations
from gavel.store.rules import ACTIVE, no_job, no_round
from gavel.store.schema import (
    CountersRow,
    DocumentRow,
    EventRow,
    JobLabelRow,
    JobRow,
    RoundRow,
    TierRow,
    TokenRow,
    UserRow,
)
from gavel.types import ApplicationResource, Identity, Job, JobId, JobState, RoundPlan, RoundRecord, Scope, Tier, User
from gavel.types.copying import changed, without_defaults

_JOBS = JobRow.__table__
_ROUNDS = RoundRow.__table__
_ACTIVE = [state.value for state in ACTIVE]
PURGE = "purge"  # the document with the change of the newest commit that deleted jobs


class _Name(FunctionElement[str]):
    """The name in a job's specification, which is stored as JSON in a text."""

    inherit_cache = True
    type = Text()


@compiles(_Name, "sqlite")
def _name_in_sqlite(_element: _Name, _compiler: SQLCompiler, **_options: Any) -> str:
    return "json_extract(jobs.spec, '$.name')"


@compiles(_Name, "postgresql")
def _name_in_postgresql(_element: _Name, _compiler: SQLCompiler, **_options: Any) -> str:
    return "(jobs.spec::json ->> 'name')"


# --- jobs -------------------------------------------------------------------------------------------------------


def job(connection: Connection, job_id: JobId) -> Job:
    """Return one job; raises NotFound."""
    row = connection.execute(select(_JOBS).where(JobRow.id == job_id)).one_or_none()
    if row is None:
        raise no_job(job_id)
    return codec.job(row)


def jobs(connection: Connection, where: JobFilter, cursor: JobId | None, limit: int) -> Page:
    """Return a page of jobs with id < cursor, newest first."""
    query = _that_fit(where).order_by(JobRow.id.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(JobRow.id < cursor)
    matches = [codec.job(row) for row in connection.execute(query)]
    more = len(matches) > limit
    return Page(jobs=tuple(matches[:limit]), next_cursor=matches[limit - 1].id if more else None)


def all_jobs(connection: Connection, where: JobFilter) -> list[Job]:
    """Return every job that matches, newest first."""
    return [codec.job(row) for row in connection.execute(_that_fit(where).order_by(JobRow.id.desc()))]


def _that_fit(where: JobFilter) -> Select[Any]:
    query = select(_JOBS)
    if where.states is not None:
        query = query.where(JobRow.state.in_([state.value for state in where.states]))
    if where.user is not None:
        query = query.where(JobRow.user_name == where.user)
    if where.tier is not None:
        query = query.where(JobRow.tier == where.tier)
    if where.label is not None:
        name, value = where.label
        labelled = select(JobLabelRow.job_id).where(JobLabelRow.name == name, JobLabelRow.value == value)
        query = query.where(JobRow.id.in_(labelled))
    if where.array_id is not None:
        query = query.where(JobRow.array_id == where.array_id)
    if where.ids is not None:
        query = query.where(JobRow.id.in_(where.ids))
    if where.match is not None:
        query = query.where(or_(JobRow.id.startswith(where.match, autoescape=True), _Name() == where.match))
    return query


def count_jobs(connection: Connection) -> dict[tuple[JobState, str], int]:
    """Return the number of jobs by (state, tier)."""
    query = select(JobRow.state, JobRow.tier, func.count()).group_by(JobRow.state, JobRow.tier)
    return {(JobState(state), tier): count for state, tier, count in connection.execute(query)}


def events(connection: Connection, job_id: JobId, after: int, limit: int) -> tuple[JobEvent, ...]:
    """Return the events of a job with sequence > `after`, oldest first."""
    query = (
        select(EventRow.__table__)
        .where(EventRow.job_id == job_id, EventRow.sequence > after)
        .order_by(EventRow.sequence)
        .limit(limit)
    )
    return tuple(JobEvent(**row._mapping) for row in connection.execute(query))


# --- rounds and what was seen -----------------------------------------------------------------------------------


def rounds(connection: Connection, before: int | None, limit: int) -> tuple[RoundPlan, ...]:
    """Return the plans with round_index < `before`, newest first."""
    query = select(RoundRow.round_index, RoundRow.plan).order_by(RoundRow.round_index.desc()).limit(limit)
    if before is not None:
        query = query.where(RoundRow.round_index < before)
    return tuple(codec.plan(row) for row in connection.execute(query))


def round_record(connection: Connection, round_index: int | None) -> RoundRecord:
    """Return one whole round; raises NotFound."""
    query = select(_ROUNDS).order_by(RoundRow.round_index.desc()).limit(1)
    if round_index is not None:
        query = query.where(RoundRow.round_index == round_index)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise no_round(round_index)
    return codec.record(row)


def plan(connection: Connection, round_index: int) -> RoundPlan | None:
    """Return one round's plan; None if it is not stored."""
    query = select(RoundRow.round_index, RoundRow.plan).where(RoundRow.round_index == round_index)
    row = connection.execute(query).one_or_none()
    return None if row is None else codec.plan(row)


def newest_round(connection: Connection) -> int:
    """Return the index of the newest round; 0 if there is none yet."""
    return connection.execute(select(func.max(RoundRow.round_index))).scalar() or 0


def document(connection: Connection, name: str) -> bytes | None:
    """Return a document as it was packed."""
    return connection.execute(select(DocumentRow.body).where(DocumentRow.name == name)).scalar()


def newest_purge(connection: Connection) -> int:
    """Return the change of the newest commit that deleted jobs; 0 if none did."""
    return int(document(connection, PURGE) or 0)


# --- tenants ----------------------------------------------------------------------------------------------------


def tiers(connection: Connection) -> dict[str, Tier]:
    """Return all tiers by name, sorted here since databases differ in how they sort text."""
    stored = (Tier(**row._mapping) for row in connection.execute(select(TierRow.__table__)))
    return {tier.name: tier for tier in sorted(stored, key=lambda tier: tier.name)}


def users(connection: Connection) -> tuple[User, ...]:
    """Return all users, sorted by name."""
    rows = connection.execute(select(UserRow.name, UserRow.tiers))
    return tuple(sorted((User(name=name, tiers=tuple(tiers)) for name, tiers in rows), key=lambda user: user.name))


def user(connection: Connection, name: str) -> User | None:
    """Return a user; None if there is no such user."""
    tiers = connection.execute(select(UserRow.tiers).where(UserRow.name == name)).scalar()
    return None if tiers is None else User(name=name, tiers=tuple(tiers))


def identity(connection: Connection, token_hash: str) -> Identity | None:
    """Return who holds a token; None if nobody does."""
    row = connection.execute(select(TokenRow.__table__).where(TokenRow.token_hash == token_hash)).one_or_none()
    if row is None:
        return None
    holder = user(connection, row.user_name)
    tiers = holder.tiers if holder else ()
    return Identity(user=row.user_name, scope=Scope(row.scope), tiers=tiers, job_id=row.job_id)


# --- the snapshot -----------------------------------------------------------------------------------------------


class SnapshotCache:
    """The newest snapshot. Reading it again decodes only the rows that other processes wrote since.

    Whoever commits holds `lock` until it has told what it has written, by `remember`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._change = -1
        self._snapshot = Snapshot(version=0, jobs={}, tiers={})
        self._records: dict[int, tuple[bytes, RoundRecord]] = {}  # the newest, by index, with the packed decision
        self._written: dict[JobId, tuple[str, Job]] = {}  # by this process since the snapshot, with their progress
        self._decoded: tuple[bytes | None, tuple[ApplicationResource, ...]] = (None, ())

    def read(self, connection: Connection) -> Snapshot:
        """Return the snapshot as of this connection's transaction."""
        with self.lock:
            counters = connection.execute(select(CountersRow.__table__)).one()
            if counters.change > self._change:
                self._snapshot = Snapshot(
                    version=counters.version,
                    jobs=self._jobs(connection),
                    tiers=tiers(connection),
                    round_records=self._rounds(connection),
                    commands=operations.pending(connection),
                    usage=audit.newest_usage(connection),
                    nodes={node.name: node for node in codec.nodes(document(connection, "nodes"))},
                    resources=self._resources(connection),
                    policy=codec.policy(document(connection, "policy")),
                    autopilot=codec.autopilot(document(connection, "autopilot")),
                    preemptions=counters.preemptions,
                    startup_times=codec.startup_times(document(connection, "startup_times")),
                    infeasible=codec.infeasible(document(connection, "infeasible")),
                )
                self._change = counters.change
            return self._snapshot

    def _jobs(self, connection: Connection) -> Mapping[JobId, Job]:
        query = select(_JOBS).where(JobRow.change > self._change)
        if self._change < 0:
            query = select(_JOBS).where(JobRow.state.in_(_ACTIVE))
        rows = sorted(connection.execute(query).all(), key=attrgetter("id"))  # SQLite would read all jobs in that order
        jobs = self._snapshot.jobs
        if newest_purge(connection) > self._change >= 0:  # of a purged job there is no row that says that it has ended
            present = set(connection.execute(select(JobRow.id).where(JobRow.state.in_(_ACTIVE))).scalars())
            jobs = {job_id: job for job_id, job in jobs.items() if job_id in present}
        written, self._written = self._written, {}
        return _with_rows(jobs, rows, written) if rows else jobs

    def _resources(self, connection: Connection) -> tuple[ApplicationResource, ...]:
        body = document(connection, "resources")
        if body != self._decoded[0]:
            self._decoded = (body, codec.resources(body))
        return self._decoded[1]

    def _rounds(self, connection: Connection) -> tuple[RoundRecord, ...]:
        query = select(_ROUNDS).where(RoundRow.change > self._change).order_by(RoundRow.round_index.desc()).limit(2)
        records = {record.plan.round_index: record for record in self._snapshot.round_records}
        for row in connection.execute(query):
            self._records[row.round_index] = row.decision, self._record(row)
            records[row.round_index] = self._records[row.round_index][1]
        newest = sorted(records)[-2:]
        self._records = {index: kept for index, kept in self._records.items() if index >= newest[0]} if newest else {}
        return tuple(records[index] for index in newest)

    def _record(self, row: Row[Any]) -> RoundRecord:
        """Return the round; its large decision is decoded only if this process has not written or read it before."""
        body, record = self._records.get(row.round_index, (None, None))
        if record is None or body != row.decision:
            return codec.record(row)
        return replace(record, plan=codec.plan(row))

    def remember(self, jobs: Mapping[JobId, tuple[str, Job]], record: RoundRecord | None, decision: bytes) -> None:
        """Keep what this process has committed, so that it need not be decoded when it is read again.

        `jobs` by ID with their progress; `record`, if any, with its packed decision.
        """
        self._written = dict(jobs)
        if record is not None:
            self._records[record.plan.round_index] = decision, record


def _with_rows(
    before: Mapping[JobId, Job], rows: Sequence[Row[Any]], written: Mapping[JobId, tuple[str, Job]]
) -> Mapping[JobId, Job]:
    """Return the jobs, sorted by id, with changed rows replaced and ended jobs removed."""
    jobs = dict(before)
    last = next(reversed(jobs), "")
    is_sorted = True
    for row in rows:
        is_sorted = is_sorted and (row.id in jobs or row.id > last)
        if JobState(row.state).is_terminal:
            jobs.pop(row.id, None)
        else:
            jobs[row.id] = _as_written(row, before.get(row.id), written.get(row.id)) or codec.job(row)
    return jobs if is_sorted else dict(sorted(jobs.items()))


def _as_written(row: Row[Any], before: Job | None, written: tuple[str, Job] | None) -> Job | None:
    """Return the job in a row without decoding it, if this process alone has written the row since `before`.

    Every write of a job counts its version. A specification that is another one than before is read. Requests of users
    are as the row has them: `before` may have been read after the view that the scheduler decided on.
    """
    if before is None or written is None:
        return None
    progress, job = written
    is_own = row.version == before.version + 1 and row.progress == progress and job.spec is before.spec
    if not is_own:
        return None
    requests = {"cancel_requested": row.cancel_requested, "pause_requested": row.pause_requested}
    return without_defaults(changed(job, version=row.version, **requests))
