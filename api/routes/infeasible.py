"""Accelerator types on which jobs were seen not to fit: list the marks, and clear them."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.access.auth import UserOrOperator
from api.http.errors import documented, problem
from api.routes.operations import OPERATION, Prefer, answer, ask
from api.schemas.infeasible import InfeasibleId, InfeasibleTypeList, InfeasibleTypeView
from api.schemas.operations import OperationView
from api.services import Services, ServicesDep
from gavel.types import Identity, InfeasibleType, Scope

router = APIRouter(prefix="/v1/infeasible-types", tags=["scheduling"])

IdPath = Annotated[InfeasibleId, Path(description="The id of the mark, as the list has it.")]


@router.get("", operation_id="list_infeasible_types", responses=documented(401, 403, 503))
def list_infeasible_types(caller: UserOrOperator, services: ServicesDep) -> InfeasibleTypeList:
    """Accelerator types on which the caller's jobs did not fit (operators: everybody's), the newest first.

    Jobs of the same user, kind and scale factor are not given the type any more.
    """
    marks = sorted(_visible(caller, services), key=lambda each: -each.at_s)
    return InfeasibleTypeList(items=[InfeasibleTypeView.model_validate(each, from_attributes=True) for each in marks])


@router.delete(
    "/{id}",
    status_code=202,
    operation_id="clear_infeasible_type",
    responses=OPERATION | documented(401, 403, 404, 422, 503),
)
async def clear_infeasible_type(
    id: IdPath, response: Response, caller: UserOrOperator, services: ServicesDep, prefer: Prefer = None
) -> OperationView:
    """Clear a mark of the caller (operators: any): the jobs are given the type again from the next round on."""
    if id not in {each.id for each in _visible(caller, services)}:
        raise problem(404, f"no mark {id} of an infeasible accelerator type")
    operation = await ask(services, "infeasible.clear", f"infeasible/{id}", {"id": id}, caller)
    return await answer(services, operation, response, prefer)


def _visible(caller: Identity, services: Services) -> list[InfeasibleType]:
    marks = services.store.snapshot().infeasible
    return [each for each in marks if caller.scope is Scope.OPERATOR or each.user == caller.user]
