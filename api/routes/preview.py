"""What a change of a tier would do, without doing it."""

from fastapi import APIRouter

from api.auth import OperatorOnly
from api.errors import documented
from api.routes.tiers import check_rules
from api.schemas.explain import EffectsView, TierPreview
from api.services import ServicesDep
from api.what_if import effects_view, tried
from gavel.simulator.what_if import Change
from gavel.types import Tier

router = APIRouter(prefix="/v1", tags=["why and what if"])


@router.post("/tiers:preview", operation_id="preview_tier", responses=documented(400, 401, 403, 413, 422, 503))
def preview_tier(body: TierPreview, caller: OperatorOnly, services: ServicesDep) -> EffectsView:
    """What these rules would do to every tier's and job's allocation; nothing is changed.

    When jobs would end is the quick estimate of `GET /v1/jobs/{id}/explain`; `POST /v1/simulate` replays rounds.
    """
    check_rules(services, body.name, body)
    change = Change(tiers=(Tier(**body.model_dump()),))
    return effects_view(tried(services, change, is_replayed=False), lambda _: True, services.clock.now_s())
