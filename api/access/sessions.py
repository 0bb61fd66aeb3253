"""Sessions of browsers: a cookie with a random id, which ends after a time, at a logout, and with the token itself."""

import secrets
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response

from api.access.auth import SESSION_COOKIE, digest
from api.access.identity_cache import Credential, identify
from api.http.errors import problem
from api.http.hosts import is_encrypted, is_own_origin
from api.services import Services
from gavel.types import Identity, Scope
from gavel.types.federated import NewSession


def logged_in(services: Services, session: str | None) -> Identity | None:
    """Return who is logged in to the session with this id; None: nobody."""
    return identify(services, Credential(digest(session), is_session=True)) if session else None


def may_log_in(services: Services, token: str) -> bool:
    """Return whether the token opens the dashboard; that of a job does not."""
    holder = identify(services, Credential(digest(token))) if token else None
    return holder is not None and holder.scope not in (Scope.JOB, Scope.NODE)


def start_session(services: Services, request: Request, response: Response, token: str) -> None:
    """Begin a session and give its id to the browser. Raise NotFound if nobody holds the token."""
    session, begun = new_session(services)
    services.store.start_session(begun.digest, digest(token), now_s=begun.now_s, ends_at_s=begun.ends_at_s)
    set_session_cookie(services, request, response, session)


def new_session(services: Services) -> tuple[str, NewSession]:
    """Return the id of a session that is to begin now, and what the store keeps of it."""
    session, now_s = secrets.token_urlsafe(32), services.clock.now_s()
    ends_at_s = now_s + services.settings.session_s
    return session, NewSession(digest=digest(session), now_s=now_s, ends_at_s=ends_at_s)


def set_session_cookie(services: Services, request: Request, response: Response, session: str) -> None:
    """Set the id of a session as a cookie that no script can read and no other site sends.

    Where browsers reach the service by https, they send it by nothing else.
    """
    response.set_cookie(
        SESSION_COOKIE,
        session,
        max_age=int(services.settings.session_s),
        httponly=True,
        samesite="strict",
        path="/",
        secure=is_encrypted(request, services.settings),
    )


def end_session(services: Services, response: Response, session: str | None) -> None:
    """End a session here, not in its browser only."""
    if session and logged_in(services, session):  # nobody writes to the database without having logged in
        services.store.end_session(digest(session))
    response.delete_cookie(SESSION_COOKIE, path="/")


async def form_token(request: Request) -> str:
    """Return the field `token` of a form that one of our own pages sent. Raise a problem with status 403 or 400."""
    own_page(request)
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=10)
    except ValueError:
        raise problem(400, "send the field `token` as a form") from None
    return fields.get("token", [""])[0].strip()


def own_page(request: Request) -> None:
    """Raise a problem with status 403 if the page of another site sent the request: it logs nobody in or out."""
    if not is_own_origin(request, request.app.state.services.settings):
        raise problem(403, "this form is not of the service; open the dashboard's own page")


FormToken = Annotated[str, Depends(form_token)]
FROM_OWN_PAGE = Depends(own_page)
