"""Bearer tokens of people and programs: listing and revoking them. Tokens of jobs end with their jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from gavel.errors import NotFound
from gavel.store import audit
from gavel.store.rules import TOKEN_ID_DIGITS, revocation_audit_entry
from gavel.store.schema import SessionRow, TokenRow
from gavel.store.writer import Transaction
from gavel.types import BearerToken, Job, JobId, Scope

_TABLE = TokenRow.__table__
_IDS_A_QUERY = 1000  # databases bound the number of parameters


def tokens(connection: Connection, user: str) -> tuple[BearerToken, ...]:
    """Return the user's tokens and those of its jobs, oldest first."""
    of_user = select(_TABLE).where(TokenRow.user_name == user)
    rows = connection.execute(of_user.order_by(TokenRow.created_at_s, TokenRow.token_hash))
    return tuple(
        BearerToken(
            id=row.token_hash[:TOKEN_ID_DIGITS],
            user=row.user_name,
            scope=Scope(row.scope),
            created_at_s=row.created_at_s,
            job_id=row.job_id,
        )
        for row in rows
    )


def revoke_token(tx: Transaction, user: str, token_id: str, by: str, now_s: float) -> None:
    """Revoke a token: it opens nothing any more. Raises NotFound, for that of a job too: it ends with it."""
    own = (each for each in tokens(tx.connection, user) if each.scope is not Scope.JOB)
    token = next((each for each in own if each.id == token_id), None)
    if token is None:
        raise NotFound(f"user {user} has no token {token_id}")
    is_it = TokenRow.user_name == user, TokenRow.token_hash.startswith(token_id, autoescape=True)
    its_hash = select(TokenRow.token_hash).where(*is_it)
    tx.connection.execute(delete(SessionRow).where(SessionRow.token_hash.in_(its_hash)))
    tx.connection.execute(delete(TokenRow).where(*is_it))
    audit.add_audit(tx, (revocation_audit_entry(token, by, now_s),))


def add_job_tokens(tx: Transaction, tokens: Mapping[str, Job], now_s: float) -> None:
    """Store the tokens (hash: job) of scope JOB that are not stored yet. No audit entry tells of them."""
    hashes = list(tokens)
    for start in range(0, len(hashes), _IDS_A_QUERY):
        asked = hashes[start : start + _IDS_A_QUERY]
        stored = set(tx.connection.execute(select(TokenRow.token_hash).where(TokenRow.token_hash.in_(asked))).scalars())
        if new := [_job_token_row(each, tokens[each], now_s) for each in asked if each not in stored]:
            tx.connection.execute(insert(TokenRow), new)


def _job_token_row(token_hash: str, job: Job, now_s: float) -> dict[str, Any]:
    holder = {"user_name": job.spec.user, "scope": Scope.JOB.value, "job_id": job.id}
    return {"token_hash": token_hash, "created_at_s": now_s, **holder}


def delete_job_tokens(tx: Transaction, job_ids: Sequence[JobId]) -> None:
    """Delete the tokens of these jobs, which have ended."""
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        tx.connection.execute(delete(TokenRow).where(TokenRow.job_id.in_(job_ids[start : start + _IDS_A_QUERY])))
