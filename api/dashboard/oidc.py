"""Logging in to the dashboard at an OpenID provider: the way there, and the way back."""

import structlog
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from api.access.auth import PUBLIC
from api.access.members import member
from api.access.oidc import CALLBACK_PATH, Attempt, LoginFailed, Provider
from api.access.sessions import new_session, set_session_cookie
from api.dashboard.pages import HEADERS, login_page, render
from api.http.errors import documented, problem
from api.http.hosts import is_encrypted
from api.services import Services, ServicesDep
from gavel.errors import Conflict, NotFound
from gavel.types.federated import FederatedLogin

log = structlog.get_logger("gavel.api")

ATTEMPT_COOKIE = "gavel_login"
ATTEMPT_S = 600

router = APIRouter(include_in_schema=False, dependencies=[PUBLIC])


@router.get("/login/oidc", responses=documented(404))
async def leave(request: Request, services: ServicesDep) -> Response:
    """Redirect to the provider, with an attempt whose secrets stay in this browser."""
    attempt = Attempt.new()
    try:
        answer = RedirectResponse(await _provider(request).authorization_url(attempt), status_code=303, headers=HEADERS)
    except LoginFailed as error:
        return _refused(request, error)
    answer.set_cookie(
        ATTEMPT_COOKIE,
        attempt.cookie(),
        max_age=ATTEMPT_S,
        httponly=True,
        samesite="lax",  # it must come back with a browser that the provider's page sends
        path="/login",
        secure=is_encrypted(request, services.settings),
    )
    return answer


@router.get(CALLBACK_PATH, responses=documented(404))
async def come_back(request: Request, services: ServicesDep) -> Response:
    """Begin a session for the person whom the provider vouches for; without one, the login page says why."""
    provider, attempt = _provider(request), Attempt.of_cookie(request.cookies.get(ATTEMPT_COOKIE, ""))
    try:
        claims = await provider.claims(attempt or Attempt.new(), request.query_params)
        answer = await run_sync(_logged_in, request, services, member(provider.settings, claims))
    except LoginFailed as error:
        answer = _refused(request, error)
    answer.delete_cookie(ATTEMPT_COOKIE, path="/login")
    return answer


def _logged_in(request: Request, services: Services, login: FederatedLogin) -> Response:
    """Begin a session. The answer is a page of ours that leads on.

    A redirect would still count as coming from the provider's site, and browsers would not send the session with it.
    """
    session, begun = new_session(services)
    try:
        user = services.store.federated.log_in(login, begun)
    except (Conflict, NotFound) as error:
        raise LoginFailed(_explanation(error, login), f"{error}; issuer {login.person.issuer}") from None
    answer = render("welcome.html", request, 200, user=user)
    set_session_cookie(services, request, answer, session)
    return answer


def _explanation(error: Conflict | NotFound, login: FederatedLogin) -> str:
    if isinstance(error, Conflict):
        return (
            f"There is a user {login.name} here already. If that is you, ask an operator to run:"
            f" gavel user link {login.name} {login.person.subject}"
        )
    return "Your groups at the provider lead to a tier that is not here. Ask the operator of this service."


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.provider
    if provider is None:
        raise problem(404, "people log in to this service with tokens only")
    return provider


def _refused(request: Request, error: LoginFailed) -> Response:
    log.warning("login.refused", cause=str(error))
    return login_page(request, error.sentence, error.status)
