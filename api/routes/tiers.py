"""Tiers: their rules and their usage."""

import threading
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.access.auth import OperatorOnly, UserOrOperator
from api.http.errors import documented, invalid, problem
from api.routes.parameters import UNCHANGED, IfMatch, IfNoneMatch, NamePath, names_version
from api.routes.tier_promises import check_promises
from api.schemas import TierList, TierPut, TierView, UsageView
from api.services import Services, ServicesDep
from api.views.jobs_and_rounds import tier_view
from gavel.mechanism.jobs.admission_holds import used
from gavel.types import Scope, Tier, month_of

router = APIRouter(prefix="/v1", tags=["tiers and users"])

# Guarantees are checked over all tiers, so one change of a tier at a time.
_one_at_a_time = threading.Lock()
NEW: dict[int | str, dict[str, Any]] = {201: {"model": TierView, "description": "The tier, created."}}


@router.get("/tiers", operation_id="list_tiers", responses=documented(401, 403, 503))
def list_tiers(caller: UserOrOperator, services: ServicesDep) -> TierList:
    """Every tier, sorted by name."""
    return TierList(items=[tier_view(tier) for tier in services.store.tiers()])


@router.get(
    "/tiers/{name}",
    operation_id="get_tier",
    response_model=TierView,
    responses=UNCHANGED | documented(401, 403, 404, 422, 503),
)
def get_tier(
    name: NamePath, response: Response, caller: UserOrOperator, services: ServicesDep, if_none_match: IfNoneMatch = None
) -> TierView | Response:
    """One tier; send its ETag as If-Match to change it."""
    tier = _find(services, name)
    if tier is None:
        raise problem(404, f"no tier {name}")
    if names_version(if_none_match, _etag(tier)):
        return Response(status_code=304, headers={"ETag": _etag(tier)})
    response.headers["ETag"] = _etag(tier)
    return tier_view(tier)


@router.put(
    "/tiers/{name}", operation_id="put_tier", responses=NEW | documented(400, 401, 403, 412, 413, 422, 428, 503)
)
def put_tier(
    name: NamePath,
    body: TierPut,
    response: Response,
    caller: OperatorOnly,
    services: ServicesDep,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> TierView:
    """Create a tier, or change the version that If-Match names."""
    with _one_at_a_time:
        before = _find(services, name)
        _check_precondition(before, if_match, if_none_match)
        check_rules(services, name, body)
        wanted = Tier(
            name=name,
            weight=body.weight,
            objective=body.objective,
            within_user=body.within_user,
            guarantee=body.guarantee,
            cap=body.cap,
            default_priority=body.default_priority,
            max_jobs=body.max_jobs,
            accelerator_hours_per_month=body.accelerator_hours_per_month,
            budget_usd_per_month=body.budget_usd_per_month,
            non_preemptible_workers=body.non_preemptible_workers,
            session_longest_s=body.session_longest_s,
            parent=body.parent,
        )
        expected = before.version if before else None
        tier = services.store.put_tier(wanted, expected_version=expected, by=caller.user, now_s=services.clock.now_s())
    response.status_code = 200 if before else 201
    response.headers["ETag"] = _etag(tier)
    return tier_view(tier)


@router.get("/tiers/{name}/usage", operation_id="get_usage", responses=documented(401, 403, 404, 422, 503))
def get_usage(
    name: NamePath,
    caller: UserOrOperator,
    services: ServicesDep,
    month: Annotated[str | None, Query(pattern=r"^\d{4}-(0[1-9]|1[0-2])$", description="Default: this month.")] = None,
) -> UsageView:
    """What the tier and the tiers below it used in a month (UTC), with its limits."""
    tiers = {tier.name: tier for tier in services.store.tiers()}
    tier = tiers.get(name)
    if tier is None or (caller.scope is not Scope.OPERATOR and name not in caller.tiers):
        raise problem(404, f"no tier {name}")
    month = month or month_of(services.clock.now_s())
    parts = {(each.tier, month): each for each in services.store.usage(month)}
    so_far = used(name, tiers, parts, month)
    counts = services.store.count_jobs()
    return UsageView(
        tier=name,
        month=month,
        accelerator_hours=so_far.accelerator_hours,
        accelerator_hours_per_month=tier.accelerator_hours_per_month,
        cost_usd=so_far.cost_usd,
        budget_usd_per_month=tier.budget_usd_per_month,
        worker_hours=so_far.worker_hours,
        lost_gangs=so_far.lost_gangs,
        unfinished_jobs=sum(n for (state, of), n in counts.items() if of == name and not state.is_terminal),
        max_jobs=tier.max_jobs,
    )


def _find(services: Services, name: str) -> Tier | None:
    return next((tier for tier in services.store.tiers() if tier.name == name), None)


def _etag(tier: Tier) -> str:
    return f'"{tier.version}"'


def _check_precondition(before: Tier | None, if_match: str | None, if_none_match: str | None) -> None:
    """Raise 428 for a change that names no version, 412 for one that names another (RFC 9110, section 13.1)."""
    if before is None:
        if if_match is not None:
            raise problem(412, "there is no such tier any more; leave If-Match out to create it")
        return
    if if_none_match is not None:
        raise problem(412, f"tier {before.name} exists; send If-Match: {_etag(before)} to change it")
    if if_match is None:
        raise problem(428, f"tier {before.name} exists; send If-Match: {_etag(before)} to change it")
    if if_match.strip() != "*" and _etag(before) not in (each.strip() for each in if_match.split(",")):
        raise problem(412, f"tier {before.name} is at version {_etag(before)} now; read it again")


def check_rules(services: Services, name: str, body: TierPut) -> None:
    """Raise a 422 problem for an objective or order that no tier can have, or guarantees whose sum is too large."""
    from gavel.policies.registry import TIER_OBJECTIVES, WITHIN_USER

    if body.objective not in TIER_OBJECTIVES:
        raise invalid("objective", f"no tier can have {body.objective}; one of {', '.join(sorted(TIER_OBJECTIVES))}")
    if body.within_user not in WITHIN_USER:
        raise invalid("within_user", f"there is no order {body.within_user}; one of {', '.join(WITHIN_USER)}")
    stored = {tier.name: tier for tier in services.store.tiers()}
    tiers = {each: tier for each, tier in stored.items() if each != name}
    if body.parent is not None and body.parent not in tiers:
        raise invalid("parent", f"there is no other tier {body.parent}; there are {', '.join(tiers)}")
    above = tiers[body.parent].guarantee if body.parent else 1.0
    siblings = sum(tier.guarantee for tier in tiers.values() if tier.parent == body.parent)
    if siblings + body.guarantee > above + 1e-9:
        of_whom = f"tier {body.parent}'s {above:g}" if body.parent else "the cluster"
        left = max(0, above - siblings)
        raise invalid("guarantee", f"the other tiers have {siblings:g} of {of_whom}; at most {left:g} is left")
    below = sum(tier.guarantee for tier in tiers.values() if tier.parent == name)
    if below > body.guarantee + 1e-9:
        raise invalid("guarantee", f"the tiers below are promised {below:g}; give at least that, or lower theirs")
    check_promises(services, name, body, stored)
