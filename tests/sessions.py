"""A browser's session without the login page."""

import secrets

from api.access.auth import digest
from gavel.store.sql import SqlStore

NEVER_S = 1e12


def a_session(store: SqlStore, token: str) -> str:
    """Begin a session with a token; return its id, the value of the cookie."""
    session = secrets.token_urlsafe(32)
    store.start_session(digest(session), digest(token), now_s=0.0, ends_at_s=NEVER_S)
    return session
