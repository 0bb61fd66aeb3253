"""Authentication: a bearer token's SHA-256 is looked up in the store; every route declares which scopes may call it.

A token is 256 random bits, so a plain digest is enough, and the time of a lookup by digest reveals nothing of the
token.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from api.access.identity_cache import Credential, identity_cache_of
from api.http.errors import problem
from api.http.hosts import is_own_origin
from api.services import Services
from gavel.errors import NotFound
from gavel.types import Identity, Job, Scope

SESSION_COOKIE = "gavel_session"
PAGE_HEADER = "X-Gavel-Page"

_bearer = HTTPBearer(auto_error=False, description="A token from `POST /v1/users/{name}/tokens`.")
_cookie = APIKeyCookie(
    name=SESSION_COOKIE,
    auto_error=False,
    description=f"The dashboard's session; it changes things only with the header `{PAGE_HEADER}: dashboard`.",
)
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
CookieDep = Annotated[str | None, Security(_cookie)]


def new_token() -> str:
    """Return a new bearer token of 256 random bits."""
    return f"gavel_{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    """Return the SHA-256 of a token in hex, which is all that the store keeps of it."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Allowed:
    """Dependency that gives the caller, if its token has one of `scopes`.

    401 without a valid token, 403 with another scope, 429 for too many requests.
    """

    scopes: frozenset[Scope]

    async def __call__(self, request: Request, bearer: BearerDep, cookie: CookieDep) -> Identity:
        """Return the caller's identity. Raise a problem with status 401, 403 or 429."""
        credential = Credential(digest(bearer.credentials)) if bearer else None
        if "authorization" not in request.headers and (request.method == "GET" or _is_from_our_page(request)):
            credential = Credential(digest(cookie), is_session=True) if cookie else None
        request.state.credential = credential
        caller = await identity_cache_of(request).identity(credential) if credential else None
        if caller is None:
            raise problem(
                401, "send `Authorization: Bearer TOKEN` with a valid token", headers={"WWW-Authenticate": "Bearer"}
            )
        if not self._admits(caller.scope, request.method):
            raise problem(403, f"a token of scope {caller.scope} may not do this; it needs {self._names()}")
        request.app.state.rates.count(caller)
        return caller

    def _admits(self, scope: Scope, method: str) -> bool:
        """Return whether tokens of the scope may call; a viewer reads what users may read."""
        if scope is Scope.VIEWER:
            return method == "GET" and not self.scopes.isdisjoint({Scope.VIEWER, Scope.USER})
        return scope in self.scopes

    async def caller(self, request: Request) -> Identity:
        """Return the caller's identity, for a route that does not declare this dependency."""
        return await self(request, await _bearer(request), await _cookie(request))

    def _names(self) -> str:
        return " or ".join(sorted(self.scopes))


def _is_from_our_page(request: Request) -> bool:
    """Return whether a script of one of our own pages sent the request.

    A page of another site, even one on another port of this host, cannot set this header: its browser first asks for
    permission (CORS), which no answer of ours gives. If the browser names the origin, that must be ours, too.
    """
    is_ours = is_own_origin(request, request.app.state.services.settings)
    return is_ours and request.headers.get(PAGE_HEADER) == "dashboard"


async def public() -> None:
    """Dependency that declares a route open to everybody."""


USER_OR_OPERATOR = Allowed(frozenset({Scope.OPERATOR, Scope.USER}))
OperatorOnly = Annotated[Identity, Depends(Allowed(frozenset({Scope.OPERATOR})))]
OperatorOrViewer = Annotated[Identity, Depends(Allowed(frozenset({Scope.OPERATOR, Scope.VIEWER})))]
UserOrOperator = Annotated[Identity, Depends(USER_OR_OPERATOR)]
AnyCaller = Annotated[Identity, Depends(Allowed(frozenset(Scope) - {Scope.NODE}))]
AnyAuthor = Annotated[Identity, Depends(Allowed(frozenset(Scope)))]
NodeReader = Annotated[Identity, Depends(Allowed(frozenset({Scope.OPERATOR, Scope.USER, Scope.NODE})))]
OperatorOrNode = Annotated[Identity, Depends(Allowed(frozenset({Scope.OPERATOR, Scope.NODE})))]
PUBLIC = Depends(public)


def may_see(caller: Identity, job: Job) -> bool:
    """Return whether the caller may see the job: operators see every job, users their own, a job's token that job."""
    if caller.scope in (Scope.OPERATOR, Scope.NODE):
        return caller.scope is Scope.OPERATOR
    return job.id == caller.job_id if caller.scope is Scope.JOB else job.spec.user == caller.user


def visible_job(services: Services, caller: Identity, job_id: str) -> Job:
    """Return the job if the caller may see it. Raise a 404 problem otherwise, as if it did not exist."""
    try:
        job = services.store.job(job_id)
    except NotFound:
        job = None
    if job is None or not may_see(caller, job):
        raise problem(404, f"no job {job_id}")
    return job
