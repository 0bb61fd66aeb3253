"""The autopilot: what it does and why, what operators set of it, and its decisions (docs/autopilot.md)."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool

from api.access.auth import OperatorOnly, UserOrOperator
from api.http.errors import documented
from api.routes.operations import OPERATION, Prefer, answer, ask
from api.schemas.autopilot import (
    AutopilotDecisionList,
    AutopilotDecisionView,
    AutopilotPut,
    AutopilotVerificationView,
    AutopilotView,
)
from api.schemas.operations import OperationView
from api.services import Services, ServicesDep
from api.views.autopilot import LOOKED_AT, autopilot_view, decision_list, decision_view
from api.what_if import IsWaiting, ask_in_a_process

VERIFYING_TIMES = 10.0  # as long as a what-if: a decision is many simulations

router = APIRouter(prefix="/v1/autopilot", tags=["autopilot"])

Number = Annotated[int, Path(ge=0, le=2**53, description="The decision's number, counted from 0.")]


@router.get("", operation_id="get_autopilot", responses=documented(401, 403, 503))
def get_autopilot(caller: UserOrOperator, services: ServicesDep) -> AutopilotView:
    """What is in force and why, what the newest decision advises, when the next one is due, and the regret so far."""
    decisions = services.store.autopilot.decisions(limit=LOOKED_AT)
    snapshot, cluster = services.store.snapshot(), services.store.cluster()
    return autopilot_view(snapshot, cluster, services.settings, decisions, services.clock.now_s())


@router.put(
    "", status_code=202, operation_id="put_autopilot", responses=OPERATION | documented(400, 401, 403, 413, 422, 503)
)
async def put_autopilot(
    body: AutopilotPut, response: Response, caller: OperatorOnly, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Set mode, goal, candidates, the time between decisions, or the pinned composition; what is left out stays.

    Mode `pin` puts its composition in force from the next round on. A policy that is set by hand while the mode is
    `auto` or `pin` stays: the mode becomes `advise`.
    """
    fields = await run_in_threadpool(_checked, services, body.model_dump(exclude_none=True))
    operation = await ask(services, "autopilot.set", "autopilot", fields, caller)
    return await answer(services, operation, response, prefer)


def _checked(services: Services, fields: dict[str, Any]) -> dict[str, Any]:
    from gavel.autopilot.setting import checked

    snapshot = services.store.snapshot()
    return checked(fields, current=snapshot.autopilot, service=services.settings, tiers=snapshot.tiers)


@router.get("/decisions", operation_id="list_autopilot_decisions", responses=documented(401, 403, 422, 503))
def list_decisions(
    caller: UserOrOperator,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="Only decisions before this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 40,
) -> AutopilotDecisionList:
    """Decisions, newest first, with what was weighed, what was predicted, and what its epoch did cost."""
    later = None if before is None else before + 1  # what an epoch did cost is in the decision that came after it
    decisions = services.store.autopilot.decisions(before=later, limit=limit + 1)
    return decision_list(decisions, limit, before)


@router.get("/decisions/{number}", operation_id="get_autopilot_decision", responses=documented(401, 403, 404, 422, 503))
def get_decision(number: Number, caller: UserOrOperator, services: ServicesDep) -> AutopilotDecisionView:
    """One decision. 404 also for one that was made long ago."""
    decision = services.store.autopilot.decision(number)
    after = services.store.autopilot.decisions(before=number + 2, limit=1)
    return decision_view(decision, after[0])


@router.post(
    "/decisions/{number}/verify",
    operation_id="verify_autopilot_decision",
    responses=documented(401, 403, 404, 422, 429, 503),
)
def verify_decision(
    number: Number, caller: OperatorOnly, services: ServicesDep, is_waiting: IsWaiting
) -> AutopilotVerificationView:
    """Make a decision again from its stored question, and report what differs.

    404 also where the question is no longer stored, as those of older decisions.
    """
    from gavel.autopilot.live import verified

    decisions = services.store.autopilot
    asked = (decisions.decision(number), decisions.question(number), services.settings)
    differences = ask_in_a_process(services, caller, verified, asked, is_waiting, times=VERIFYING_TIMES)
    return AutopilotVerificationView(number=number, same=not differences, differences=list(differences))
