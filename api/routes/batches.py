"""Many jobs at once: submitted together or as an array, cancelled by what they have in common."""

from functools import partial

from fastapi import APIRouter, Response
from fastapi_problem.error import Problem

from api.access.auth import UserOrOperator
from api.http.errors import documented, problem
from api.routes.jobs import show, submit_once
from api.routes.parameters import IdempotencyKey
from api.rules import Rules
from api.schemas import CancelBatch, CancelledView, JobArraySubmit, JobBatchSubmit, JobBatchView
from api.services import Services, ServicesDep
from api.submission.specs import check_stored, spec_of, specs_of_array
from gavel.ports import JobFilter
from gavel.types import Identity, JobSpec, Scope

router = APIRouter(prefix="/v1", tags=["jobs"])

REFUSALS = documented(400, 401, 403, 413, 422, 429, 503)


@router.post("/jobs/batch", status_code=201, operation_id="submit_batch", responses=REFUSALS)
def submit_batch(
    body: JobBatchSubmit,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> JobBatchView:
    """Submit many jobs in one transaction: all of them, or none and a 422 that names each item that is wrong."""
    make = partial(_specs, body, caller, services)
    jobs = submit_once(make, body, response, caller, services, idempotency_key, is_array=False)
    return JobBatchView(array_id=None, items=show(services, jobs))


@router.post("/jobs/array", status_code=201, operation_id="submit_array", responses=REFUSALS)
def submit_array(
    body: JobArraySubmit,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> JobBatchView:
    """Submit one job for each combination of parameters, such as a sweep, in one transaction."""
    make = partial(_array, body, caller, services)
    jobs = submit_once(make, body, response, caller, services, idempotency_key, is_array=True)
    return JobBatchView(array_id=jobs[0].spec.array_id, items=show(services, jobs))


@router.post(
    "/jobs/cancel",
    status_code=202,
    operation_id="cancel_batch",
    responses=documented(400, 401, 403, 413, 422, 503),
)
def cancel_batch(body: CancelBatch, caller: UserOrOperator, services: ServicesDep) -> CancelledView:
    """Cancel many jobs in one transaction, such as those of a sweep that lost. Operators may cancel everybody's."""
    key, _, value = (body.label or "").partition("=")
    where = JobFilter(
        user=None if caller.scope is Scope.OPERATOR else caller.user,
        label=(key, value) if body.label else None,
        array_id=body.array_id,
        ids=None if body.ids is None else tuple(body.ids),
    )
    now_s = services.clock.now_s()
    ended = services.store.request_cancel_all(where, keep=body.keep, now_s=now_s, by=caller.user)
    skipped = [each for each in dict.fromkeys(body.ids or ()) if each not in set(ended)]
    return CancelledView(cancelling=sorted(ended), skipped=skipped)


def _array(body: JobArraySubmit, caller: Identity, services: Services, rules: Rules) -> list[JobSpec]:
    check_stored(body.job, caller, services)
    return specs_of_array(body, caller, rules)


def _specs(body: JobBatchSubmit, caller: Identity, services: Services, rules: Rules) -> list[JobSpec]:
    specs: list[JobSpec] = []
    refused: list[dict[str, str]] = []
    for index, job in enumerate(body.jobs):
        try:
            specs.append(spec_of(job, caller, rules))
            check_stored(job, caller, services)
        except Problem as error:
            if error.status != 422:
                raise
            refused += [each | {"field": f"jobs.{index}.{each['field']}"} for each in error.extras["errors"]]
    if refused:
        raise problem(422, f"{refused[0]['field']}: {refused[0]['message']}", errors=refused[:50])
    return specs
