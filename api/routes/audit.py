"""The audit log: every decision that touches a user."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access.auth import OperatorOnly
from api.http.errors import documented
from api.routes.parameters import BeforeQuery, LimitQuery
from api.schemas import AuditList, Name
from api.services import ServicesDep
from api.views.jobs_and_rounds import audit_list

router = APIRouter(prefix="/v1", tags=["tiers and users"])

Subject = Annotated[
    str | None,
    Query(pattern=r"^[a-z]+/[-_.A-Za-z0-9]+$", max_length=300, description="`tier/NAME`, `job/ID`, `user/NAME`, .."),
]


@router.get("/audit", operation_id="list_audit", responses=documented(401, 403, 422, 503))
def list_audit(
    caller: OperatorOnly,
    services: ServicesDep,
    subject: Subject = None,
    user: Annotated[Name | None, Query(description="Whom the decision touches.")] = None,
    before: BeforeQuery = None,
    limit: LimitQuery = 50,
) -> AuditList:
    """Changes and who made them, and preemptions with their round and policy, newest first."""
    return audit_list(services.store.audit(subject=subject, user=user, before=before, limit=limit), limit)
