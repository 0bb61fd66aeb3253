"""Bearer tokens of a user: create, list and revoke them."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.access.auth import OperatorOnly, digest, new_token
from api.http.errors import documented, problem
from api.routes.parameters import NamePath
from api.routes.users import user_of
from api.schemas import BearerTokenView, TokenCreate, TokenCreated, TokenList
from api.services import ServicesDep
from gavel.types import BearerToken, Scope

router = APIRouter(prefix="/v1/users/{name}/tokens", tags=["tiers and users"])

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", min_length=16, max_length=16, description="A token's id.")]


@router.post(
    "",
    status_code=201,
    operation_id="create_token",
    responses=documented(400, 401, 403, 404, 413, 422, 503),
)
def create_token(
    name: NamePath,
    response: Response,
    caller: OperatorOnly,
    services: ServicesDep,
    body: TokenCreate | None = None,
) -> TokenCreated:
    """Create a bearer token of the user. It is shown only in this answer."""
    user, token, scope = user_of(services, name), new_token(), Scope(body.scope if body else "user")
    now_s = services.clock.now_s()
    services.store.add_token(digest(token), user=user.name, scope=scope, now_s=now_s, by=caller.user)
    response.headers["Cache-Control"] = "no-store"
    return TokenCreated(user=user.name, scope=scope.value, token=token)


@router.get("", operation_id="list_tokens", responses=documented(401, 403, 404, 422, 503))
def list_tokens(name: NamePath, caller: OperatorOnly, services: ServicesDep) -> TokenList:
    """The user's tokens, oldest first, without their secrets. Tokens of its jobs are valid until the jobs end."""
    held = services.store.tokens(name)
    if not held and all(user.name != name for user in services.store.users()):
        raise problem(404, f"no user {name}")
    return TokenList(items=[_view(each) for each in held])


@router.delete(
    "/{token_id}", status_code=200, operation_id="revoke_token", responses=documented(401, 403, 404, 422, 503)
)
def revoke_token(name: NamePath, token_id: TokenId, caller: OperatorOnly, services: ServicesDep) -> TokenList:
    """Revoke a token, and answer those left. Other API processes refuse it within a second."""
    services.store.revoke_token(name, token_id, by=caller.user, now_s=services.clock.now_s())
    return TokenList(items=[_view(each) for each in services.store.tokens(name)])


def _view(token: BearerToken) -> BearerTokenView:
    return BearerTokenView(
        id=token.id, user=token.user, scope=token.scope.value, created_at_s=token.created_at_s, job_id=token.job_id
    )
