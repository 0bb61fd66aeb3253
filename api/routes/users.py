"""Users, and which tiers each may submit to."""

from fastapi import APIRouter

from api.access.auth import OperatorOnly
from api.http.errors import documented, invalid, problem
from api.routes.parameters import NamePath
from api.schemas import UserLinkPut, UserLinkView, UserList, UserPut, UserView
from api.services import Services, ServicesDep
from api.views.jobs_and_rounds import user_view
from gavel.types import User
from gavel.types.federated import FederatedIdentity

router = APIRouter(prefix="/v1", tags=["tiers and users"])


@router.get("/users", operation_id="list_users", responses=documented(401, 403, 503))
def list_users(caller: OperatorOnly, services: ServicesDep) -> UserList:
    """Every user, sorted by name."""
    return UserList(items=[user_view(user) for user in services.store.users()])


@router.get("/users/{name}", operation_id="get_user", responses=documented(401, 403, 404, 422, 503))
def get_user(name: NamePath, caller: OperatorOnly, services: ServicesDep) -> UserView:
    """One user."""
    return user_view(user_of(services, name))


@router.put("/users/{name}", operation_id="put_user", responses=documented(400, 401, 403, 413, 422, 503))
def put_user(name: NamePath, body: UserPut, caller: OperatorOnly, services: ServicesDep) -> UserView:
    """Create a user, or replace the tiers it may submit to."""
    names = [tier.name for tier in services.store.tiers()]
    for index, tier in enumerate(body.tiers):
        if tier not in names:
            raise invalid(f"tiers.{index}", f"no tier {tier}; there are {', '.join(names)}")
    user = User(name=name, tiers=tuple(dict.fromkeys(body.tiers)))
    return user_view(services.store.put_user(user, by=caller.user, now_s=services.clock.now_s()))


@router.get("/users/{name}/link", operation_id="get_user_link", responses=documented(401, 403, 404, 422, 503))
def get_user_link(name: NamePath, caller: OperatorOnly, services: ServicesDep) -> UserLinkView:
    """Who at the OpenID provider logs in as this user."""
    person = services.store.federated.linked(name)
    if person is None:
        raise problem(404, f"nobody at a provider logs in as {name}")
    return UserLinkView(user=name, issuer=person.issuer, subject=person.subject)


@router.put(
    "/users/{name}/link", operation_id="link_user", responses=documented(400, 401, 403, 404, 409, 413, 422, 503)
)
def link_user(name: NamePath, body: UserLinkPut, caller: OperatorOnly, services: ServicesDep) -> UserLinkView:
    """Let a person at the OpenID provider log in as this user, and nobody else there."""
    oidc = services.settings.oidc
    if oidc is None:
        raise problem(409, "this service has no OpenID provider: set oidc first")
    person = FederatedIdentity(issuer=oidc.issuer_url, subject=body.subject)
    services.store.federated.link(person, name, by=caller.user, now_s=services.clock.now_s())
    return get_user_link(name, caller, services)


@router.delete(
    "/users/{name}/link", status_code=200, operation_id="unlink_user", responses=documented(401, 403, 404, 422, 503)
)
def unlink_user(name: NamePath, caller: OperatorOnly, services: ServicesDep) -> UserView:
    """Let nobody at the OpenID provider log in as this user any more, and end the sessions that began so."""
    services.store.federated.unlink(name, by=caller.user, now_s=services.clock.now_s())
    return user_view(user_of(services, name))


def user_of(services: Services, name: str) -> User:
    """Return the user; raise a 404 problem where there is none."""
    user = next((user for user in services.store.users() if user.name == name), None)
    if user is None:
        raise problem(404, f"no user {name}; create it with PUT /v1/users/{name}")
    return user
