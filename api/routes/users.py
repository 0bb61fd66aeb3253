"""Users, and which tiers each may submit to."""

from fastapi import APIRouter

from api.access.auth import OperatorOnly
from api.http.errors import documented, invalid, problem
from api.routes.parameters import NamePath
from api.schemas import UserList, UserPut, UserView
from api.services import Services, ServicesDep
from api.views.jobs_and_rounds import user_view
from gavel.types import User

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


def user_of(services: Services, name: str) -> User:
    """Return the user; raise a 404 problem where there is none."""
    user = next((user for user in services.store.users() if user.name == name), None)
    if user is None:
        raise problem(404, f"no user {name}; create it with PUT /v1/users/{name}")
    return user
