"""Bearer tokens of a user: which there are, and taking one back."""

from typing import Annotated

from fastapi import APIRouter, Path

from api.auth import OperatorOnly
from api.errors import documented, problem
from api.routes.parameters import NamePath
from api.schemas import TokenList, TokenView
from api.services import ServicesDep
from gavel.types import BearerToken

router = APIRouter(prefix="/v1/users/{name}/tokens", tags=["tiers and users"])

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", min_length=16, max_length=16, description="A token's id.")]


@router.get("", operation_id="list_tokens", responses=documented(401, 403, 404, 422, 503))
def list_tokens(name: NamePath, caller: OperatorOnly, services: ServicesDep) -> TokenList:
    """The user's tokens, oldest first, without what they open with. Tokens of its jobs end with them."""
    held = services.store.tokens(name)
    if not held and all(user.name != name for user in services.store.users()):
        raise problem(404, f"no user {name}")
    return TokenList(items=[_view(each) for each in held])


@router.delete(
    "/{token_id}", status_code=200, operation_id="revoke_token", responses=documented(401, 403, 404, 422, 503)
)
def revoke_token(name: NamePath, token_id: TokenId, caller: OperatorOnly, services: ServicesDep) -> TokenList:
    """Take a token back, and answer those left. It opens nothing any more; other API processes know within a second."""
    services.store.revoke_token(name, token_id, by=caller.user, now_s=services.clock.now_s())
    return TokenList(items=[_view(each) for each in services.store.tokens(name)])


def _view(token: BearerToken) -> TokenView:
    return TokenView(id=token.id, user=token.user, scope=token.scope.value, created_at_s=token.created_at_s)
