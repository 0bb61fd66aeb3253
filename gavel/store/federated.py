"""Persons at an OpenID provider and their users, in SQL.

The sessions of such a person belong to a token of the user whose text nobody has: only its digest was drawn. So they
end as others do, when the token is revoked.
"""

import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from gavel.errors import Conflict, NotFound
from gavel.ports import AuditEntry
from gavel.store import audit, commands, queries, sessions
from gavel.store.rules import DEFAULT_TIER, check_token_hash
from gavel.store.schema import FederatedIdentityRow, SessionRow, TokenRow
from gavel.store.writer import Transaction
from gavel.types import Identity, User
from gavel.types.federated import FederatedIdentity, FederatedLogin, NewSession

T = TypeVar("T")
BY_PROVIDER = "oidc"  # who changed a user, in the audit log, when its groups at the provider did

_TABLE: Any = FederatedIdentityRow.__table__


class FederatedIdentities:
    """The links of a store, safe from any thread. `read` and `write` are the store's own."""

    def __init__(
        self,
        read: Callable[[Callable[[Connection], Any]], Any],
        write: Callable[[Callable[[Transaction], Any]], Any],
    ) -> None:
        self._read, self._write = read, write

    def log_in(self, login: FederatedLogin, session: NewSession) -> str:
        """Begin a session and return the user's name. Raises Conflict if the name is another's, NotFound (tier)."""
        check_token_hash(session.digest)
        return str(self._write(lambda tx: _log_in(tx, login, session)))

    def link(self, person: FederatedIdentity, user: str, *, by: str, now_s: float) -> None:
        """Let the person log in as this user from now on. Raises NotFound (user), Conflict (is another user)."""
        self._write(lambda tx: _link(tx, person, user, by, now_s))

    def unlink(self, user: str, *, by: str, now_s: float) -> None:
        """Undo the link of the user, and end the sessions that it began. Raises NotFound if there is none."""
        self._write(lambda tx: _unlink(tx, user, by, now_s))

    def linked(self, user: str) -> FederatedIdentity | None:
        """Return who logs in as this user; None: nobody."""
        row = self._read(lambda connection: _row(connection, _TABLE.c.user_name == user))
        return None if row is None else FederatedIdentity(issuer=row.issuer, subject=row.subject)


def _log_in(tx: Transaction, login: FederatedLogin, session: NewSession) -> str:
    row = _row(tx.connection, _is(login.person))
    if row is None and queries.user(tx.connection, login.name) is not None:
        raise Conflict(f"there is a user {login.name} already")
    name = login.name if row is None else str(row.user_name)
    _put_user(tx, name, login.tiers, session.now_s)
    if row is None:
        _link(tx, login.person, name, BY_PROVIDER, session.now_s)
    token_hash = _token_of(tx, None if row is None else row.token_hash, Identity(user=name, scope=login.scope), session)
    tx.connection.execute(update(_TABLE).where(_is(login.person)).values(token_hash=token_hash))
    sessions.start_session(tx, session.digest, token_hash, session.now_s, session.ends_at_s)
    return name


def _put_user(tx: Transaction, name: str, tiers: tuple[str, ...], now_s: float) -> None:
    """Create the user, or give it these tiers; nothing is written where it has them."""
    before = queries.user(tx.connection, name)
    wanted = tiers or (before.tiers if before else (DEFAULT_TIER.name,))
    if before is None or before.tiers != wanted:
        commands.put_user(tx, User(name=name, tiers=wanted), BY_PROVIDER, now_s)


def _token_of(tx: Transaction, before: str | None, holder: Identity, session: NewSession) -> str:
    """Return the token that the user's sessions belong to: the one before, if it is in force and has that scope."""
    held = queries.identity(tx.connection, before) if before else None
    if before and held and held.scope is holder.scope:
        return before
    _end_sessions(tx, before)
    drawn = secrets.token_hex(32)
    commands.add_token(tx, drawn, holder, BY_PROVIDER, session.now_s)
    return drawn


def _link(tx: Transaction, person: FederatedIdentity, user: str, by: str, now_s: float) -> None:
    if queries.user(tx.connection, user) is None:
        raise NotFound(f"no user {user}")
    row = _row(tx.connection, _is(person))
    if row is not None and row.user_name != user:
        raise Conflict(f"this person logs in as {row.user_name}; unlink that user first")
    if row is None:
        of_user = _row(tx.connection, _TABLE.c.user_name == user)
        if of_user is not None:
            _unlink(tx, user, by, now_s)
        values = {"issuer": person.issuer, "subject": person.subject, "user_name": user, "token_hash": None}
        tx.connection.execute(insert(_TABLE), values)
        _note(tx, "user.linked", user, person, by, now_s)


def _unlink(tx: Transaction, user: str, by: str, now_s: float) -> None:
    row = _row(tx.connection, _TABLE.c.user_name == user)
    if row is None:
        raise NotFound(f"nobody at the provider logs in as {user}")
    _end_sessions(tx, row.token_hash)
    tx.connection.execute(delete(_TABLE).where(_TABLE.c.user_name == user))
    _note(tx, "user.unlinked", user, FederatedIdentity(issuer=row.issuer, subject=row.subject), by, now_s)


def _end_sessions(tx: Transaction, token_hash: str | None) -> None:
    if token_hash is not None:
        tx.connection.execute(delete(SessionRow).where(SessionRow.token_hash == token_hash))
        tx.connection.execute(delete(TokenRow).where(TokenRow.token_hash == token_hash))


def _note(tx: Transaction, action: str, user: str, person: FederatedIdentity, by: str, now_s: float) -> None:
    values = {"issuer": person.issuer, "subject": person.subject}
    before, after = (values, {}) if action == "user.unlinked" else (None, values)
    entry = AuditEntry(at_s=now_s, by=by, subject=f"user/{user}", before=before, after=after, action=action, user=user)
    audit.add_audit(tx, (entry,))


def _row(connection: Connection, where: ColumnElement[bool]) -> Any:
    return connection.execute(select(_TABLE).where(where)).one_or_none()


def _is(person: FederatedIdentity) -> ColumnElement[bool]:
    return and_(_TABLE.c.issuer == person.issuer, _TABLE.c.subject == person.subject)
