"""Submits in SQL. Submits that are queued in a row are applied together, by a few statements for all of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from sqlalchemy import Connection, func, insert, select

from gavel.errors import GavelError, KeyReused
from gavel.ports import JobEvent, JobFilter, ReservationRule, Submitted
from gavel.store import codec, queries, reservations
from gavel.store.job_users import give_uid
from gavel.store.rules import ACTIVE, JobIds, check_limits, new_jobs, unmet
from gavel.store.schema import IdempotencyKeyRow, JobRow, TierRow
from gavel.store.user_requests import add_events, add_labels
from gavel.store.writer import Together, Transaction
from gavel.types import Job, JobId, JobSpec, JobState

_IDS_A_QUERY = 1000  # databases bound the number of parameters
_INSERT_JOBS = insert(JobRow.__table__)  # type: ignore[arg-type]
_INSERT_KEYS = insert(IdempotencyKeyRow.__table__)  # type: ignore[arg-type]

Answer = tuple[Submitted, ...]


class Unfinished:
    """Counts of unfinished jobs per user and tier, kept between transactions; never lower than the true number.

    Writes of this process add jobs only here; other writes only end jobs. After a write of another process the jobs are
    counted anew.
    """

    def __init__(self) -> None:
        self._counted_at = -1
        self._users: Counter[str] = Counter()
        self._tiers: Counter[str] = Counter()

    def check(self, tx: Transaction, wanted: Sequence[JobSpec], limits: "Limits", pending: Sequence[Job]) -> None:
        """Raise LimitReached, on an exact count. `pending`: jobs of this transaction that are not yet in a table."""
        if tx.alone_since > self._counted_at:
            self._count(tx, pending)
        try:
            check_limits(wanted, self._users, self._tiers, per_user=limits.per_user, per_tier=limits.per_tier)
        except GavelError:
            if self._counted_at == tx.change:
                raise
            self._count(tx, pending)
            check_limits(wanted, self._users, self._tiers, per_user=limits.per_user, per_tier=limits.per_tier)

    def add(self, specs: Iterable[JobSpec]) -> None:
        """Count jobs that are submitted in this transaction."""
        for spec in specs:
            self._users[spec.user] += 1
            self._tiers[spec.tier] += 1

    def forget(self) -> None:
        """Count anew next time: the jobs that were added here are not in the database."""
        self._counted_at = -1

    def _count(self, tx: Transaction, pending: Sequence[Job]) -> None:
        self._users, self._tiers, self._counted_at = Counter(), Counter(), tx.change
        alive = JobRow.state.in_([state.value for state in ACTIVE])
        query = select(JobRow.user_name, JobRow.tier, func.count()).where(alive).group_by(JobRow.user_name, JobRow.tier)
        for user, tier, jobs in tx.connection.execute(query):
            self._users[user] += jobs
            self._tiers[tier] += jobs
        self.add(job.spec for job in pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many unfinished jobs a user may have (None: any number), and each tier that has a limit."""

    per_user: int | None = None
    per_tier: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.per_user is not None or bool(self.per_tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What all submits of one process share: the source of ids, and the counts of unfinished jobs."""

    ids: JobIds
    jobs_per_user: int | None = None
    uids: Sequence[int] = ()  # that jobs run as, one for each user
    reservation_rule: ReservationRule | None = None  # None: reservations are taken as they are asked for
    unfinished: Unfinished = field(default_factory=Unfinished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission(Together[Answer]):
    """One or many new jobs of one user that are to be stored, under one key."""

    books: Books
    specs: Sequence[JobSpec]
    key: str | None
    body_hash: str
    now_s: float
    is_array: bool = False

    def __call__(self, tx: Transaction) -> Answer:
        """Return the jobs, new or those that the key made before.

        Raises KeyReused, InvalidRequest (`after`, `reserved_at_s`), LimitReached.
        """
        (answer,) = self.apply_all(tx, [self])
        if isinstance(answer, Exception):
            raise answer
        return answer

    @classmethod
    def apply_all(cls, tx: Transaction, items: Sequence[Self]) -> list[Answer | Exception]:
        """Apply many submissions of one process in their order; return the result or error of each."""
        group = _Group(tx, items)  # 1. read their keys, predecessors and limits
        answers = [group.answer(each) for each in items]  # 2. in their order
        try:
            group.write()  # 3. write everything new
        except Exception:
            items[0].books.unfinished.forget()
            raise
        return answers


class _Group:
    """Decides submits one after the other, and writes their jobs together."""

    def __init__(self, tx: Transaction, items: Sequence[Submission]) -> None:
        self._tx = tx
        self._books = items[0].books
        self._keys = _keys(tx.connection, items)
        after = {job_id for each in items for spec in each.specs for job_id in spec.after}
        self._states = _states(tx.connection, after)
        self._limits = Limits(per_user=self._books.jobs_per_user, per_tier=_tier_limits(tx.connection))
        self._made: list[Job] = []
        self._key_rows: list[dict[str, Any]] = []
        self._events: list[JobEvent] = []

    def answer(self, wanted: Submission) -> Answer | Exception:
        """Return the result of one submit; a refusal is returned as an error, other errors are raised."""
        try:
            return self._earlier(wanted) or self._new(wanted)
        except GavelError as refusal:
            return refusal

    def write(self) -> None:
        """Write jobs, labels, keys and first events."""
        execute = self._tx.connection.execute
        if self._made:
            execute(_INSERT_JOBS, [_row(job, self._tx.change) for job in self._made])
            add_labels(self._tx, self._made)
            add_events(self._tx, self._events)
        if self._key_rows:
            execute(_INSERT_KEYS, self._key_rows)

    def _earlier(self, wanted: Submission) -> Answer:
        read = self._keys.get((wanted.specs[0].user, wanted.key or ""))
        if wanted.key is None or read is None:
            return ()
        return tuple(Submitted(job=job, created=False) for job in read(wanted.key, wanted.body_hash))

    def _new(self, wanted: Submission) -> Answer:
        waits = unmet({job_id for spec in wanted.specs for job_id in spec.after}, self._states)
        if self._limits:
            self._books.unfinished.check(self._tx, wanted.specs, self._limits, self._made)
        if self._books.uids:
            give_uid(self._tx, wanted.specs[0].user, self._books.uids)
        ids, now_s, rule = self._books.ids, wanted.now_s, self._books.reservation_rule
        specs = reservations.accepted(self._tx, rule, wanted.specs, self._made, now_s)
        jobs = new_jobs(specs, ids, now_s, waits_for=waits, is_array=wanted.is_array)
        self._books.unfinished.add(specs)
        self._made += jobs
        self._states |= {job.id: job.state for job in jobs}
        self._events += [JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted") for job in jobs]
        if wanted.key is not None:
            self._remember(wanted, wanted.key, jobs)
        return tuple(Submitted(job=job, created=True) for job in jobs)

    def _remember(self, wanted: Submission, key: str, jobs: Sequence[Job]) -> None:
        first, *more = (job.id for job in jobs)
        row = {"user_name": jobs[0].spec.user, "key": key, "body_hash": wanted.body_hash, "job_id": first}
        self._key_rows.append(row | {"more_job_ids": more or None})
        self._keys[jobs[0].spec.user, key] = _Kept(wanted.body_hash, first, lambda: jobs)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A key that was used before: the hash of its request, and a way to read its jobs."""

    body_hash: str
    job_id: JobId
    jobs: Callable[[], Sequence[Job]]

    def __call__(self, key: str, body_hash: str) -> Sequence[Job]:
        """Return the jobs that the key made; raise KeyReused if the request had another body."""
        if self.body_hash != body_hash:
            raise KeyReused(f"key {key!r} was used for job {self.job_id} with another body; choose a new key")
        return self.jobs()


def add_made(tx: Transaction, books: Books, specs: Sequence[JobSpec], now_s: float) -> None:
    """Store jobs that the scheduler makes: they have a place whatever the limits on submissions say."""
    if not specs:
        return
    jobs = new_jobs(specs, books.ids, now_s, waits_for=(), is_array=False)
    tx.connection.execute(_INSERT_JOBS, [_row(job, tx.change) for job in jobs])
    add_labels(tx, jobs)
    add_events(tx, [JobEvent(job_id=job.id, at_s=now_s, kind="job.submitted") for job in jobs])
    books.unfinished.add(specs)


def submitted(connection: Connection, user: str, key: str, body_hash: str) -> Sequence[Job]:
    """Return the jobs that a user's key made before; raise KeyReused if the request had another body."""
    stored = _keys_of(connection, user, [key])
    return stored[user, key](key, body_hash) if stored else ()


def _keys(connection: Connection, items: Sequence[Submission]) -> dict[tuple[str, str], _Kept]:
    """Return the keys among those of `items` that were used before; one query per user."""
    wanted: dict[str, list[str]] = {}
    for each in items:
        if each.key is not None:
            wanted.setdefault(each.specs[0].user, []).append(each.key)
    return {used: kept for user, keys in wanted.items() for used, kept in _keys_of(connection, user, keys).items()}


def _keys_of(connection: Connection, user: str, keys: Sequence[str]) -> dict[tuple[str, str], _Kept]:
    table = IdempotencyKeyRow.__table__.c
    query = select(table.key, table.body_hash, table.job_id, table.more_job_ids)
    return {
        (user, row.key): _Kept(row.body_hash, row.job_id, _reader(connection, (row.job_id, *(row.more_job_ids or ()))))
        for row in connection.execute(query.where(table.user_name == user, table.key.in_(keys)))
    }


def _reader(connection: Connection, job_ids: Sequence[JobId]) -> Callable[[], tuple[Job, ...]]:
    """Return a function that reads those of the jobs that are still stored: some may have been purged."""
    where = JobFilter(ids=tuple(job_ids))
    return lambda: tuple(sorted(queries.all_jobs(connection, where), key=lambda job: job_ids.index(job.id)))


def _states(connection: Connection, job_ids: Iterable[JobId]) -> dict[JobId, JobState]:
    wanted = sorted(job_ids)
    states: dict[JobId, JobState] = {}
    for start in range(0, len(wanted), _IDS_A_QUERY):
        query = select(JobRow.id, JobRow.state).where(JobRow.id.in_(wanted[start : start + _IDS_A_QUERY]))
        states |= {job_id: JobState(state) for job_id, state in connection.execute(query)}
    return states


def _tier_limits(connection: Connection) -> dict[str, int]:
    query = select(TierRow.name, TierRow.max_jobs).where(TierRow.max_jobs.is_not(None))
    return {name: limit for name, limit in connection.execute(query) if limit is not None}


def _row(job: Job, change: int) -> dict[str, Any]:
    return {
        "id": job.id,
        "user_name": job.spec.user,
        "tier": job.spec.tier,
        "state": job.state.value,
        "submitted_at_s": job.submitted_at_s,
        "version": job.version,
        "cancel_requested": job.cancel_requested,
        "pause_requested": job.pause_requested,
        "array_id": job.spec.array_id,
        "generation": job.generation,
        "steps_done": job.steps_done,
        "total_steps": job.spec.total_steps or 0,
        "change": change,
        "spec": codec.dump(job.spec),
        "progress": codec.progress(job),
    }
