"""What became of a call that asked something of the scheduler."""

from fastapi import APIRouter

from api.auth import AnyCaller
from api.errors import documented, problem
from api.operations import may_see_operation, operation_view
from api.routes.parameters import OperationIdPath
from api.schemas.operations import OperationView
from api.services import ServicesDep

router = APIRouter(prefix="/v1/operations", tags=["operations"])


@router.get("/{operation_id}", operation_id="get_operation", responses=documented(401, 403, 404, 422, 503))
def get_operation(operation_id: OperationIdPath, caller: AnyCaller, services: ServicesDep) -> OperationView:
    """One of your operations (operators: any); 404 also for one that ended long ago."""
    operation = services.store.operation(operation_id)
    if not may_see_operation(caller, operation):
        raise problem(404, f"no operation {operation_id}, or no longer kept")
    return operation_view(operation)
