"""Everything that is written, as functions of an open transaction; the writer's thread calls them."""

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from gavel.errors import Conflict, StaleVersion
from gavel.ports import Changes
from gavel.store import audit, codec, operations, predictions, queries
from gavel.store.metric_points import MetricRows
from gavel.store.retention import forget
from gavel.store.rules import (
    Progress,
    check_amended,
    check_progress,
    check_round,
    check_user,
    count_preemptions,
    gone_checkpoints,
    next_tier,
    no_job,
    tenant_audit_entry,
    token_audit_entries,
)
from gavel.store.schema import (
    CountersRow,
    DocumentRow,
    JobRow,
    RoundRow,
    TierRow,
    TokenRow,
    UserRow,
)
from gavel.store.submission import Books, add_made
from gavel.store.tokens import delete_job_tokens
from gavel.store.user_requests import add_events
from gavel.store.writer import Transaction
from gavel.types import Identity, Job, JobId, JobState, RoundPlan, Tier, User

_IDS_A_QUERY = 1000  # databases bound the number of parameters


# --- tenants ----------------------------------------------------------------------------------------------------


def put_tier(tx: Transaction, tier: Tier, expected_version: int | None, by: str, now_s: float) -> Tier:
    """Store the tier and return it as stored. Raises StaleVersion, NotFound (parent), InvalidRequest."""
    stored = queries.tiers(tx.connection)
    new = replace(tier, version=next_tier(tier, stored, expected_version))
    _put(tx, TierRow, asdict(new), key="name")
    audit.add_audit(tx, [tenant_audit_entry("tier", stored.get(tier.name), new, by, now_s)])
    return new


def put_user(tx: Transaction, user: User, by: str, now_s: float) -> User:
    """Store the user and return it as stored. Raises NotFound (tier), InvalidRequest."""
    check_user(user, queries.tiers(tx.connection))
    before = queries.user(tx.connection, user.name)
    _put(tx, UserRow, {"name": user.name, "tiers": list(user.tiers)}, key="name")
    audit.add_audit(tx, [tenant_audit_entry("user", before, user, by, now_s)])
    return user


def add_token(tx: Transaction, token_hash: str, holder: Identity, by: str, now_s: float) -> None:
    """Store a token. The same token of the same holder changes nothing; of another holder it raises Conflict."""
    before = tx.connection.execute(select(TokenRow.__table__).where(TokenRow.token_hash == token_hash)).one_or_none()
    row = {"user_name": holder.user, "scope": holder.scope.value, "job_id": holder.job_id}
    if before is None:
        tx.connection.execute(insert(TokenRow), row | {"token_hash": token_hash, "created_at_s": now_s})
        audit.add_audit(tx, token_audit_entries(holder, by, now_s))
    elif (before.user_name, before.scope, before.job_id) != tuple(row.values()):
        raise Conflict("this token already belongs to somebody; make a new one")


# --- the scheduler's side ---------------------------------------------------------------------------------------


class Commit:
    """One commit of the scheduler, encoded before it is queued, so that the writer's thread need not encode it."""

    def __init__(
        self, expected_version: int, changes: Changes, books: Books, *, keep_rounds: int, keep_events_s: float
    ) -> None:
        self._expected_version = expected_version
        self._books = books
        self._changes = changes
        self._keep_rounds = keep_rounds
        self._keep_events_s = keep_events_s
        self._progress = [codec.progress(job) for job in changes.jobs]
        self._metrics = MetricRows(changes.metric_points)
        self._round = codec.pack_round(changes.round) if changes.round else None
        self._amended = codec.pack_plan(changes.amended) if changes.amended else None
        documents = {
            "cluster": changes.cluster,
            "throughputs": changes.throughputs,
            "nodes": changes.nodes,
            "resources": changes.resources,
            "policy": changes.policy,
            "autopilot": changes.autopilot,
            "startup_times": changes.startup_times,
            "infeasible": changes.infeasible,
        }
        self._documents = {name: codec.pack_document(each) for name, each in documents.items() if each is not None}

    @property
    def decision(self) -> bytes:
        """Return the inputs and the result of the round's decision, packed; empty without a round."""
        return self._round[1] if self._round else b""

    @property
    def jobs(self) -> dict[JobId, tuple[str, Job]]:
        """Return the jobs that this writes, by ID, each with its progress as it is stored."""
        return {job.id: (text, job) for job, text in zip(self._changes.jobs, self._progress, strict=True)}

    def apply(self, tx: Transaction) -> int:
        """Apply the commit and return the new version. Raises StaleVersion, NotFound, InvariantViolated."""
        self._count_version(tx)
        self._update_jobs(tx, moved=self._check_jobs(tx))
        add_made(tx, self._books, self._changes.made, self._changes.made_at_s)
        delete_job_tokens(tx, [job.id for job in self._changes.jobs if job.state.is_terminal])
        add_events(tx, self._changes.events)
        self._metrics.write(tx)
        operations.update_operations(tx, self._changes.operations)
        audit.add_audit(tx, self._changes.audit)
        audit.add_usage(tx, self._changes.usage)
        predictions.add_predictions(tx, self._changes.predictions)
        predictions.settle(tx, self._changes.jobs)
        if self._changes.amended is not None:
            self._amend_round(tx, self._changes.amended)
        if self._changes.round is not None:
            self._add_round(tx, self._changes.round.plan)
        for name, body in self._documents.items():
            _put(tx, DocumentRow, {"name": name, "body": body}, key="name")
        return self._expected_version + 1

    def _count_version(self, tx: Transaction) -> None:
        expected = update(CountersRow).where(CountersRow.version == self._expected_version)
        preemptions = CountersRow.preemptions + count_preemptions(self._changes.audit)
        counted = expected.values(version=CountersRow.version + 1, preemptions=preemptions)
        if tx.connection.execute(counted).rowcount != 1:
            current = tx.connection.execute(select(CountersRow.version)).scalar_one()
            raise StaleVersion(
                f"the scheduler's version is {current}, not {self._expected_version}: another scheduler committed; "
                "take a new snapshot and decide again"
            )

    def _check_jobs(self, tx: Transaction) -> set[JobId]:
        """Return the jobs whose state or end may become another one. Raises NotFound, InvariantViolated."""
        stored = _progress_of(tx, [job.id for job in self._changes.jobs])
        gone = gone_checkpoints(self._changes.events)
        moved = set()
        for job in self._changes.jobs:
            before = stored.get(job.id)
            if before is None:
                raise no_job(job.id)
            after = replace(before, state=job.state, generation=job.generation, steps_done=job.steps_done)
            check_progress(job.id, before, after, is_gone=job.id in gone)
            stored[job.id] = after
            if job.state is not before.state or job.finished_at_s is not None:
                moved.add(job.id)
        return moved

    def _update_jobs(self, tx: Transaction, moved: Collection[JobId]) -> None:
        """Write the jobs: of those that stay in their state no column of an index but `change`, in half of the time."""
        staying: list[dict[str, Any]] = []
        moving: list[dict[str, Any]] = []
        for job, progress in zip(self._changes.jobs, self._progress, strict=True):
            row = {
                "job_id": job.id,
                "new_generation": job.generation,
                "new_steps_done": job.steps_done,
                "new_progress": progress,
            }
            if job.id in moved:
                moving.append(row | {"new_state": job.state.value, "new_finished_at_s": job.finished_at_s})
            else:
                staying.append(row)
        if staying:
            tx.connection.execute(_UPDATE_JOB.values(change=tx.change), staying)
        if moving:
            tx.connection.execute(_MOVE_JOB.values(change=tx.change), moving)

    def _add_round(self, tx: Transaction, plan: RoundPlan) -> None:
        assert self._round is not None
        check_round(plan, queries.newest_round(tx.connection))
        packed, decision = self._round
        row = {"round_index": plan.round_index, "plan": packed, "decision": decision, "change": tx.change}
        tx.connection.execute(insert(RoundRow), row)
        tx.connection.execute(delete(RoundRow).where(RoundRow.round_index <= plan.round_index - self._keep_rounds))
        forget(tx, plan.starts_at_s - self._keep_events_s)

    def _amend_round(self, tx: Transaction, plan: RoundPlan) -> None:
        check_amended(plan, queries.plan(tx.connection, plan.round_index))
        is_it = RoundRow.round_index == plan.round_index
        tx.connection.execute(update(RoundRow).where(is_it).values(plan=self._amended, change=tx.change))


_UPDATE_JOB = (
    update(JobRow.__table__)  # type: ignore[arg-type]
    .where(JobRow.id == bindparam("job_id"))
    .values(
        generation=bindparam("new_generation"),
        steps_done=bindparam("new_steps_done"),
        progress=bindparam("new_progress"),
        version=JobRow.version + 1,
    )
)
_MOVE_JOB = _UPDATE_JOB.values(state=bindparam("new_state"), finished_at_s=bindparam("new_finished_at_s"))


def _progress_of(tx: Transaction, job_ids: list[JobId]) -> dict[JobId, Progress]:
    columns = (JobRow.id, JobRow.state, JobRow.generation, JobRow.steps_done, JobRow.total_steps)
    progress = {}
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        query = select(*columns).where(JobRow.id.in_(job_ids[start : start + _IDS_A_QUERY]))
        for job_id, state, generation, steps_done, total_steps in tx.connection.execute(query):
            progress[job_id] = Progress(
                state=JobState(state), generation=generation, steps_done=steps_done, total_steps=total_steps
            )
    return progress


# --- both -------------------------------------------------------------------------------------------------------


def _put(tx: Transaction, table: Any, row: dict[str, Any], *, key: str) -> None:
    """Replace the row with this key, or insert it; no other writer runs at the same time."""
    if tx.connection.execute(update(table).where(getattr(table, key) == row[key]).values(row)).rowcount == 0:
        tx.connection.execute(insert(table), row)
