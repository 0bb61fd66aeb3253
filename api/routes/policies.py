"""Policies: which ones there are, and which one is in use."""

from collections.abc import Sequence

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from api.access.auth import AnyCaller, OperatorOnly
from api.http.errors import documented
from api.routes.operations import OPERATION, Prefer, answer, ask
from api.schemas import PolicyList, PolicyView
from api.schemas.fields import CompositionText, Request, example
from api.schemas.operations import OperationView
from api.services import ServicesDep
from gavel.config import Settings
from gavel.types import Tier
from gavel.types.tier_objectives import AUTO, chosen_by, in_force

router = APIRouter(prefix="/v1", tags=["scheduling"])


class PolicyPut(Request):
    """The policy to use from the next round on."""

    model_config = example(policy="max_min_fairness?water_filling=true")

    policy: CompositionText | None = Field(
        description="A name of `GET /v1/policies`, with ?parameters and /parts, as fifo/backfill=false; null: that "
        "of the settings.",
    )


@router.get("/policies", operation_id="list_policies", responses=documented(401, 403, 503))
def list_policies(caller: AnyCaller, services: ServicesDep) -> PolicyList:
    """Policies for the whole cluster, and what a tier may have: objectives, and orders within one user."""
    snapshot = services.store.snapshot()
    return policy_list(services.settings, snapshot.policy, tuple(snapshot.tiers.values()))


@router.put(
    "/policies/current",
    status_code=202,
    operation_id="put_policy",
    responses=OPERATION | documented(400, 401, 403, 413, 422, 503),
)
async def put_policy(
    body: PolicyPut, response: Response, caller: OperatorOnly, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Use another policy from the next round on. The choice survives restarts, and is in the audit log.

    Parts, each /NAME=VALUE, replace settings: backfill, planner, price_moves, round_duration_s, space_sharing.
    `POST /v1/what-if` shows what it would do. If the policy fails to give an allocation, the fallback is used, as for
    any failed solve. An autopilot in mode auto or pin advises from then on, so that the choice stays.
    """
    from gavel.autopilot.composition import read
    from gavel.policies.registry import check_objectives

    wanted = ""
    if body.policy is not None:
        composition = await run_in_threadpool(read, body.policy, services.settings, "policy")
        check_objectives(composition.policy, services.store.snapshot().tiers.values())
        wanted = composition.text
    operation = await ask(services, "policy.switch", "policy", {"policy": wanted}, caller)
    return await answer(services, operation, response, prefer)


def policy_list(settings: Settings, switched_to: str = "", tiers: Sequence[Tier] = ()) -> PolicyList:
    """Return the answer of `GET /v1/policies`.

    `current` is the policy of the settings unless an operator set another one.
    """
    current = switched_to or settings.policy
    automatic = [tier for tier in tiers if tier.objective == AUTO]
    from gavel.policies.registry import TIER_OBJECTIVES, WITHIN_USER, available

    items = [
        PolicyView(
            name=each.name,
            choose_when=each.choose_when,
            formula=each.formula,
            source=each.source,
            parameters={parameter.name: parameter.default for parameter in each.parameters},
        )
        for each in available(settings.policy_dir)
    ]
    return PolicyList(
        current=current,
        items=items,
        tier_objectives=dict(TIER_OBJECTIVES),
        within_user=dict(WITHIN_USER),
        auto_objectives={tier.name: tier.objective for tier in in_force(automatic, chosen_by(current))},
    )
