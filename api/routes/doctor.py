"""What `gavel doctor` finds where the service runs, and how the caller reaches it."""

from fastapi import APIRouter, Request

from api.access.auth import OperatorOnly
from api.http.errors import documented
from api.http.reached import as_reached
from api.schemas import FindingList, FindingView
from api.services import ServicesDep

router = APIRouter(prefix="/v1", tags=["service"])


@router.get("/findings", operation_id="list_findings", responses=documented(401, 403, 503))
def list_findings(request: Request, caller: OperatorOnly, services: ServicesDep) -> FindingList:
    """What the service's machine offers, and what is to be mended, as `gavel doctor` prints it there."""
    findings = (*services.findings(), as_reached(request, services.settings))
    return FindingList(items=[FindingView(about=each.about, verdict=each.verdict, text=each.text) for each in findings])
