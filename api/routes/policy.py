"""Another policy for the whole cluster, while the service runs."""

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from api.auth import OperatorOnly
from api.errors import documented
from api.operations import OPERATION, Prefer, answer, ask
from api.schemas.fields import Request, example
from api.schemas.operations import OperationView
from api.services import ServicesDep

router = APIRouter(prefix="/v1", tags=["scheduling"])


class PolicyPut(Request):
    """The policy that decides from the next round on."""

    model_config = example(policy="max_min_fairness?water_filling=true")

    policy: str | None = Field(
        max_length=200, description="A name of `GET /v1/policies`, with ?parameters; null: that of the settings again."
    )


@router.put(
    "/policy",
    status_code=202,
    operation_id="put_policy",
    responses=OPERATION | documented(400, 401, 403, 413, 422, 503),
)
async def put_policy(
    body: PolicyPut, response: Response, caller: OperatorOnly, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Switch: the next round is solved by it. It outlives restarts, and is kept in the audit log.

    See first what it would do with `POST /v1/simulate`. A policy that cannot answer falls back as any failed solve.
    """
    from gavel.policies.registry import canonical

    wanted = ""
    if body.policy is not None:
        wanted = await run_in_threadpool(canonical, body.policy, services.settings.policy_path)
    operation = await ask(services, "policy.switch", "policy", {"policy": wanted}, caller)
    return await answer(services, operation, response, prefer)
