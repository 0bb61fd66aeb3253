"""What is written, as functions of an open transaction; the writer's thread runs them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from gavel.errors import Conflict, KeyReused, StaleVersion
from gavel.ports import Changes, JobEvent, Submitted
from gavel.store import codec, queries
from gavel.store.rules import JobIds, Progress, check_progress, check_round, check_user, next_tier, no_job
from gavel.store.schema import (
    AuditRow,
    CountersRow,
    DocumentRow,
    EventRow,
    IdempotencyKeyRow,
    JobLabelRow,
    JobRow,
    RoundRow,
    TierRow,
    TokenRow,
    UserRow,
)
from gavel.store.writer import Transaction
from gavel.types import Job, JobId, JobSpec, JobState, RoundPlan, Scope, Tier, User

_IDS_A_QUERY = 1000  # databases bound the number of parameters


# --- the API's side ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A submit on its way to the writer."""

    spec: JobSpec
    key: str | None
    body_hash: str
    now_s: float


def submit(tx: Transaction, ids: JobIds, wanted: Submission) -> Submitted:
    """The job, its labels, its first event and its key; or the job that the key made before."""
    earlier = _job_of_key(tx, wanted)
    if earlier is not None:
        return Submitted(job=queries.job(tx.connection, earlier), created=False)
    job = Job(id=ids.next(wanted.now_s), spec=wanted.spec, submitted_at_s=wanted.now_s)
    tx.connection.execute(insert(JobRow), _new_row(job, tx.change))
    labels = [{"job_id": job.id, "name": name, "value": value} for name, value in job.spec.labels.items()]
    if labels:
        tx.connection.execute(insert(JobLabelRow), labels)
    if wanted.key is not None:
        key = {"user_name": job.spec.user, "key": wanted.key, "body_hash": wanted.body_hash, "job_id": job.id}
        tx.connection.execute(insert(IdempotencyKeyRow), key)
    _add_events(tx, [JobEvent(job_id=job.id, at_s=wanted.now_s, kind="job.submitted")])
    return Submitted(job=job, created=True)


def _job_of_key(tx: Transaction, wanted: Submission) -> JobId | None:
    """The job that this user's key made before; raises KeyReused if that was from another body."""
    if wanted.key is None:
        return None
    table = IdempotencyKeyRow
    query = select(table.body_hash, table.job_id).where(table.user_name == wanted.spec.user, table.key == wanted.key)
    row = tx.connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.body_hash != wanted.body_hash:
        raise KeyReused(f"key {wanted.key!r} was used for job {row.job_id} with another body; choose a new key")
    return str(row.job_id)


def _new_row(job: Job, change: int) -> dict[str, Any]:
    return {
        "id": job.id,
        "user_name": job.spec.user,
        "tier": job.spec.tier,
        "state": job.state.value,
        "submitted_at_s": job.submitted_at_s,
        "version": job.version,
        "cancel_requested": job.cancel_requested,
        "token": job.token,
        "steps_done": job.steps_done,
        "total_steps": job.spec.total_steps,
        "change": change,
        "spec": codec.dump(job.spec),
        "progress": codec.progress(job),
    }


def request_cancel(tx: Transaction, job_id: JobId, now_s: float) -> Job:
    """The job with the wish recorded; unchanged if it was there, or the job is cancelled. Raises NotFound, Conflict."""
    job = queries.job(tx.connection, job_id)
    if job.state is JobState.CANCELLED:
        return job
    if job.state.is_terminal:
        raise Conflict(f"job {job_id} is already {job.state} and cannot be cancelled")
    if job.cancel_requested:
        return job
    wish = {"cancel_requested": True, "version": job.version + 1, "change": tx.change}
    tx.connection.execute(update(JobRow).where(JobRow.id == job_id).values(wish))
    _add_events(tx, [JobEvent(job_id=job_id, at_s=now_s, kind="cancel.requested")])
    return replace(job, cancel_requested=True, version=job.version + 1)


def put_tier(tx: Transaction, tier: Tier, expected_version: int | None, by: str, now_s: float) -> Tier:
    """The tier as stored. Raises StaleVersion, NotFound (parent), InvalidRequest."""
    stored = queries.tiers(tx.connection)
    new = replace(tier, version=next_tier(tier, stored, expected_version))
    _put(tx, TierRow, asdict(new), key="name")
    _audit(tx, f"tier/{tier.name}", stored.get(tier.name), new, by, now_s)
    return new


def put_user(tx: Transaction, user: User, by: str, now_s: float) -> User:
    """The user as stored. Raises NotFound (tier), InvalidRequest."""
    check_user(user, queries.tiers(tx.connection))
    before = queries.user(tx.connection, user.name)
    _put(tx, UserRow, {"name": user.name, "tiers": list(user.tiers)}, key="name")
    _audit(tx, f"user/{user.name}", before, user, by, now_s)
    return user


def add_token(tx: Transaction, token_hash: str, user: str, scope: Scope, job_id: JobId | None, now_s: float) -> None:
    """Remember a token; the same once more changes nothing, another holder raises Conflict."""
    before = tx.connection.execute(select(TokenRow.__table__).where(TokenRow.token_hash == token_hash)).one_or_none()
    if before is None:
        row = {"token_hash": token_hash, "user_name": user, "scope": scope.value, "job_id": job_id}
        tx.connection.execute(insert(TokenRow), row | {"created_at_s": now_s})
    elif (before.user_name, before.scope, before.job_id) != (user, scope.value, job_id):
        raise Conflict("this token already belongs to somebody; make a new one")


# --- the scheduler's side ---------------------------------------------------------------------------------------


class Commit:
    """One scheduler commit, encoded before it waits for the writer, so that nobody waits for the encoding."""

    def __init__(self, expected_version: int, changes: Changes, *, keep_rounds: int) -> None:
        self._expected_version = expected_version
        self._changes = changes
        self._keep_rounds = keep_rounds
        self._progress = [codec.progress(job) for job in changes.jobs]
        self._round = codec.pack_round(changes.round) if changes.round else None
        documents = {"cluster": changes.cluster, "throughputs": changes.throughputs}
        self._documents = {name: codec.pack_document(each) for name, each in documents.items() if each is not None}

    def apply(self, tx: Transaction) -> int:
        """The new version. Raises StaleVersion, NotFound, InvariantViolated."""
        self._count_version(tx)
        self._check_jobs(tx)
        self._update_jobs(tx)
        _add_events(tx, self._changes.events)
        if self._changes.round is not None:
            self._add_round(tx, self._changes.round.plan)
        for name, body in self._documents.items():
            _put(tx, DocumentRow, {"name": name, "body": body}, key="name")
        return self._expected_version + 1

    def _count_version(self, tx: Transaction) -> None:
        expected = update(CountersRow).where(CountersRow.version == self._expected_version)
        if tx.connection.execute(expected.values(version=CountersRow.version + 1)).rowcount != 1:
            current = tx.connection.execute(select(CountersRow.version)).scalar_one()
            raise StaleVersion(
                f"the scheduler's version is {current}, not {self._expected_version}: another scheduler committed; "
                "take a new snapshot and decide again"
            )

    def _check_jobs(self, tx: Transaction) -> None:
        stored = _progress_of(tx, [job.id for job in self._changes.jobs])
        for job in self._changes.jobs:
            before = stored.get(job.id)
            if before is None:
                raise no_job(job.id)
            after = replace(before, state=job.state, token=job.token, steps_done=job.steps_done)
            check_progress(job.id, before, after)
            stored[job.id] = after

    def _update_jobs(self, tx: Transaction) -> None:
        rows = [
            {
                "job_id": job.id,
                "new_state": job.state.value,
                "new_token": job.token,
                "new_steps_done": job.steps_done,
                "new_progress": progress,
            }
            for job, progress in zip(self._changes.jobs, self._progress, strict=True)
        ]
        if rows:
            tx.connection.execute(_UPDATE_JOB.values(change=tx.change), rows)

    def _add_round(self, tx: Transaction, plan: RoundPlan) -> None:
        assert self._round is not None
        check_round(plan, queries.newest_round(tx.connection))
        packed, decision = self._round
        tx.connection.execute(insert(RoundRow), {"round_index": plan.round_index, "plan": packed, "decision": decision})
        tx.connection.execute(delete(RoundRow).where(RoundRow.round_index <= plan.round_index - self._keep_rounds))


_UPDATE_JOB = (
    update(JobRow.__table__)  # type: ignore[arg-type]
    .where(JobRow.id == bindparam("job_id"))
    .values(
        state=bindparam("new_state"),
        token=bindparam("new_token"),
        steps_done=bindparam("new_steps_done"),
        progress=bindparam("new_progress"),
        version=JobRow.version + 1,
    )
)


def _progress_of(tx: Transaction, job_ids: list[JobId]) -> dict[JobId, Progress]:
    columns = (JobRow.id, JobRow.state, JobRow.token, JobRow.steps_done, JobRow.total_steps)
    found = {}
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        query = select(*columns).where(JobRow.id.in_(job_ids[start : start + _IDS_A_QUERY]))
        for job_id, state, token, steps_done, total_steps in tx.connection.execute(query):
            found[job_id] = Progress(state=JobState(state), token=token, steps_done=steps_done, total_steps=total_steps)
    return found


# --- both -------------------------------------------------------------------------------------------------------


def _add_events(tx: Transaction, events: Iterable[JobEvent]) -> None:
    rows = [
        {
            "job_id": event.job_id,
            "at_s": event.at_s,
            "kind": event.kind,
            "message": codec.plain_text(event.message),
            "round_index": event.round_index,
        }
        for event in events
    ]
    if rows:
        tx.connection.execute(insert(EventRow), rows)


def _put(tx: Transaction, table: Any, row: dict[str, Any], *, key: str) -> None:
    """Replace the row with this key, or insert it; there is no other writer to race with."""
    if tx.connection.execute(update(table).where(getattr(table, key) == row[key]).values(row)).rowcount == 0:
        tx.connection.execute(insert(table), row)


def _audit(
    tx: Transaction, subject: str, before: Tier | User | None, after: Tier | User, by: str, now_s: float
) -> None:
    row = {"at_s": now_s, "by_name": by, "subject": subject, "after": codec.dump(after)}
    tx.connection.execute(insert(AuditRow), row | {"before": None if before is None else codec.dump(before)})
