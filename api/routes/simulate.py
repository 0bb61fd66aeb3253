"""What if: the live state with a change, worked out in a process of its own."""

from fastapi import APIRouter

from api.auth import UserOrOperator
from api.errors import documented
from api.limits import check_predecessors, spec_of
from api.routes.tiers import check_rules
from api.rules import rules_of
from api.schemas import JobSubmit
from api.schemas.explain import EffectsView, Simulate
from api.services import Services, ServicesDep
from api.what_if import effects_view, tried
from gavel.simulator.what_if import AddedNodes, Change
from gavel.types import Identity, JobSpec, Scope, Tier

router = APIRouter(prefix="/v1", tags=["why and what if"])


@router.post("/simulate", operation_id="simulate", responses=documented(400, 401, 403, 404, 413, 422, 429, 503))
def simulate(body: Simulate, caller: UserOrOperator, services: ServicesDep) -> EffectsView:
    """What another policy, other tiers, nodes added or gone, or one more job would do; nothing is changed.

    The answer holds every tier and your jobs (an operator's: everybody's). 503 when it takes too long.
    """
    found = tried(services, _change(body, caller, services), is_replayed=True)
    is_operator = caller.scope is Scope.OPERATOR
    return effects_view(found, lambda user: is_operator or user == caller.user, services.clock.now_s())


def _change(body: Simulate, caller: Identity, services: Services) -> Change:
    from gavel.policies.registry import canonical

    if body.policy is not None:
        canonical(body.policy, services.settings.policy_path)  # a wrong name is the caller's to hear of
    for each in body.tiers:
        check_rules(services, each.name, each)
    return Change(
        policy=body.policy,
        tiers=tuple(Tier(**each.model_dump()) for each in body.tiers),
        nodes_gone=tuple(dict.fromkeys(body.nodes_gone)),
        nodes_added=tuple(AddedNodes(**each.model_dump()) for each in body.nodes_added),
        job=None if body.job is None else _spec(body.job, caller, services),
    )


def _spec(body: JobSubmit, caller: Identity, services: Services) -> JobSpec:
    check_predecessors(body, caller, services)
    return spec_of(body, caller, rules_of(services))
