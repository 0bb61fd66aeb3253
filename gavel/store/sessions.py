"""Sessions of browsers: each has a random id, ends at an instant, and with the token that began it."""

from sqlalchemy import Connection, delete, insert, select

from gavel.errors import NotFound
from gavel.store import queries
from gavel.store.schema import SessionRow
from gavel.store.writer import Transaction
from gavel.types import Identity

SESSIONS_A_TOKEN = 100  # browsers that one token logs in at once; the next one ends the session that ends first


def start_session(tx: Transaction, session_hash: str, token_hash: str, now_s: float, ends_at_s: float) -> None:
    """Begin a session, and delete those that have ended. Raises NotFound if nobody holds the token."""
    if queries.identity(tx.connection, token_hash) is None:
        raise NotFound("nobody holds this token")
    tx.connection.execute(delete(SessionRow).where(SessionRow.ends_at_s <= now_s))
    others = select(SessionRow.session_hash).where(SessionRow.token_hash == token_hash)
    kept = others.order_by(SessionRow.ends_at_s.desc()).limit(SESSIONS_A_TOKEN - 1)
    of_token = SessionRow.token_hash == token_hash
    tx.connection.execute(delete(SessionRow).where(of_token, SessionRow.session_hash.not_in(kept)))
    row = {"session_hash": session_hash, "token_hash": token_hash, "ends_at_s": ends_at_s}
    tx.connection.execute(insert(SessionRow), row)


def session_holder(connection: Connection, session_hash: str, now_s: float) -> Identity | None:
    """Return who holds the token that began a session which has not ended; None if there is no such session."""
    in_force = (SessionRow.session_hash == session_hash, SessionRow.ends_at_s > now_s)
    token_hash = connection.execute(select(SessionRow.token_hash).where(*in_force)).scalar_one_or_none()
    return None if token_hash is None else queries.identity(connection, token_hash)


def end_session(tx: Transaction, session_hash: str) -> None:
    """End a session, if there is one."""
    tx.connection.execute(delete(SessionRow).where(SessionRow.session_hash == session_hash))
