"""Reservations of sessions in SQL: decided in the transaction that stores them, after all that was written before.

A round that the scheduler decides meanwhile without knowing of a reservation might give its workers away. So what is
decided here makes the scheduler's view stale, as the commit of another scheduler would, and it decides again.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Integer, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gavel.errors import InvalidRequest
from gavel.ports import Commitments, ReservationRule
from gavel.store import codec, queries
from gavel.store.rules import ACTIVE
from gavel.store.schema import CountersRow, JobRow
from gavel.store.writer import Transaction
from gavel.types import Job, JobSpec

_JOBS = JobRow.__table__
NEWEST_ROUNDS = 2  # the one in force, and the one planned ahead


class _Preemptible(FunctionElement[int]):
    """1 for a job whose specification, which is JSON in a text, says that it may be preempted, else 0."""

    inherit_cache = True
    type = Integer()


@compiles(_Preemptible, "sqlite")
def _preemptible_in_sqlite(_element: _Preemptible, _compiler: SQLCompiler, **_options: Any) -> str:
    return "coalesce(json_extract(jobs.spec, '$.preemptible'), 1)"


@compiles(_Preemptible, "postgresql")
def _preemptible_in_postgresql(_element: _Preemptible, _compiler: SQLCompiler, **_options: Any) -> str:
    return "coalesce((jobs.spec::json ->> 'preemptible')::boolean::int, 1)"


def non_preemptible_jobs(connection: Connection) -> list[Job]:
    """Return the unfinished jobs that may not be preempted, without services, which hold no workers."""
    query = select(_JOBS).where(JobRow.state.in_([state.value for state in ACTIVE]), _Preemptible() == 0)
    jobs = [codec.job(row) for row in connection.execute(query.order_by(JobRow.id))]
    return [job for job in jobs if job.spec.service is None]


def commitments(connection: Connection, now_s: float, pending: Sequence[Job] = ()) -> Commitments:
    """Return what stands in the way of a reservation. `pending`: jobs that are not yet in a table."""
    return Commitments(
        now_s=now_s,
        cluster=codec.cluster(queries.document(connection, "cluster")),
        tiers=tuple(queries.tiers(connection).values()),
        jobs=(*non_preemptible_jobs(connection), *(job for job in pending if not job.spec.preemptible)),
        plans=queries.rounds(connection, None, NEWEST_ROUNDS),
        policy=codec.policy(queries.document(connection, "policy")),
    )


def accepted(
    tx: Transaction, rule: ReservationRule | None, specs: Sequence[JobSpec], pending: Sequence[Job], now_s: float
) -> Sequence[JobSpec]:
    """Return the specifications, each one that asks for a reservation with what it gets. Raises InvalidRequest."""
    if rule is None or all(spec.reserved_at_s is None for spec in specs):
        return specs
    if len(specs) > 1:
        raise InvalidRequest("reserved_at_s", "submit a session with a reservation alone, not in an array or a batch")
    make_stale(tx)
    return [rule.accepted(specs[0], commitments(tx.connection, now_s, pending))]


def check_extension(tx: Transaction, rule: ReservationRule | None, job: Job, longest_s: float, now_s: float) -> None:
    """Raise InvalidRequest if a session that lasts so long would be in the way of a reservation."""
    if rule is not None:
        make_stale(tx)
        rule.check_extension(job, longest_s, commitments(tx.connection, now_s))


def make_stale(tx: Transaction) -> None:
    """Let the scheduler decide again what it has decided from a view before this transaction."""
    tx.connection.execute(update(CountersRow).values(version=CountersRow.version + 1))
