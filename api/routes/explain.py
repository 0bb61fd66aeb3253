"""Questions about decisions, which change nothing: why, when, what if, was it right (docs/explain.md).

What needs a solve or a simulation is computed in a process of its own (api/what_if.py).
"""

from typing import Annotated

from fastapi import APIRouter, Path

from api.access.auth import AnyCaller, OperatorOnly, UserOrOperator, visible_job
from api.http.errors import documented
from api.routes.parameters import JobIdPath, NamePath
from api.routes.tiers import check_rules
from api.rules import rules_of
from api.schemas import JobSubmit, TierPut
from api.schemas.explain import CalibrationView, EffectsView, ExplanationView, VerificationView, WhatIf
from api.services import Services, ServicesDep
from api.submission.specs import check_stored, spec_of
from api.views.forecasts import calibration_view, explain_view
from api.what_if import IsWaiting, ask_in_a_process, effects_view, tried, verification_view
from gavel.simulator.round_again import decided_again, stored_round
from gavel.simulator.what_if import AddedNodes, Change
from gavel.types import Identity, JobSpec, Scope, Tier

router = APIRouter(prefix="/v1", tags=["why and what if"])


@router.get("/jobs/{job_id}/explanation", operation_id="explain_job", responses=documented(401, 403, 404, 422, 503))
def explain_job(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep) -> ExplanationView:
    """Why the job does not run, which accelerator type it waits for, what would help, and when it starts and ends."""
    return explain_view(visible_job(services, caller, job_id), services.knowledge(), caller.user)


@router.get("/calibration", operation_id="get_calibration", responses=documented(401, 403, 503))
def get_calibration(caller: UserOrOperator, services: ServicesDep) -> CalibrationView:
    """How many of the last 500 completed jobs ended, and began, in the interval that was predicted first."""
    return calibration_view(services.store.predictions(limit=500))


@router.post("/what-if", operation_id="what_if", responses=documented(400, 401, 403, 404, 413, 422, 429, 503))
def what_if(body: WhatIf, caller: UserOrOperator, services: ServicesDep, is_waiting: IsWaiting) -> EffectsView:
    """What another policy, other tiers, nodes added or gone, or one more job would do; nothing is changed.

    The answer holds every tier and your jobs (an operator's: everybody's). 503 when it takes too long. Whoever closes
    the connection ends the computation.
    """
    effects = tried(services, caller, _change(body, caller, services), is_waiting, is_simulated=True)
    is_operator = caller.scope is Scope.OPERATOR
    return effects_view(effects, lambda user: is_operator or user == caller.user, services.clock.now_s())


@router.post("/tiers/{name}/preview", operation_id="preview_tier", responses=documented(400, 401, 403, 413, 422, 503))
def preview_tier(
    name: NamePath, body: TierPut, caller: OperatorOnly, services: ServicesDep, is_waiting: IsWaiting
) -> EffectsView:
    """What these rules would do to every tier's and job's allocation; nothing is changed. A new name is a new tier.

    When jobs would end is the quick estimate of `GET /v1/jobs/{id}/explanation`; `POST /v1/what-if` simulates rounds.
    """
    check_rules(services, name, body)
    change = Change(tiers=(Tier(name=name, **body.model_dump()),))
    effects = tried(services, caller, change, is_waiting, is_simulated=False)
    return effects_view(effects, lambda _: True, services.clock.now_s())


@router.post("/rounds/{index}/verify", operation_id="verify_round", responses=documented(401, 403, 404, 422, 503))
def verify_round(
    index: Annotated[int, Path(ge=0, le=2**53)], caller: OperatorOnly, services: ServicesDep, is_waiting: IsWaiting
) -> VerificationView:
    """Decide a stored round again from its stored inputs, and report whether allocation and leases are the same."""
    stored = stored_round(services.store.round, index, services.settings)
    return verification_view(ask_in_a_process(services, caller, decided_again, stored, is_waiting))


def _change(body: WhatIf, caller: Identity, services: Services) -> Change:
    from gavel.autopilot.composition import read
    from gavel.policies.registry import check_objectives

    if body.policy is not None:
        wanted = read(body.policy, services.settings, "policy")  # report a wrong name to the caller
        changed = {each.name: Tier(**each.model_dump()) for each in body.tiers}
        check_objectives(wanted.policy, (dict(services.store.snapshot().tiers) | changed).values())
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
    check_stored(body, caller, services)
    return spec_of(body, caller, rules_of(services))
