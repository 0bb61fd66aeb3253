"""Submitting a job again."""

from functools import partial

from fastapi import APIRouter, Response
from pydantic import ValidationError

from api.access.auth import UserOrOperator, visible_job
from api.http.errors import documented, problem
from api.routes.jobs import etag, show, submit_once
from api.routes.parameters import IdempotencyKey, JobIdPath
from api.rules import Rules
from api.schemas import JobResubmit, JobView
from api.services import Services, ServicesDep
from api.submission.resubmission import owner_of, spec_again
from gavel.types import Identity, Job, JobSpec

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


@router.post(
    "/{job_id}/resubmit",
    status_code=201,
    operation_id="resubmit_job",
    responses=documented(400, 401, 403, 404, 413, 422, 429, 503),
)
def resubmit(
    job_id: JobIdPath,
    body: JobResubmit,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> JobView:
    """Submit a job again as a new one: same program, code and environment, but for the fields that are given.

    It starts at its first step, or with the accepted checkpoint of the old job. Who made it belongs to the job's user,
    also when an operator asks.
    """
    job = visible_job(services, caller, job_id)
    make = partial(_specs, job, body, caller, services)
    again = _Resubmit(of=job_id, **body.model_dump(exclude_unset=True))
    (made,) = submit_once(make, again, response, owner_of(job, caller), services, idempotency_key, is_array=False)
    response.headers["Location"] = f"/v1/jobs/{made.id}"
    response.headers["ETag"] = etag(made)
    return show(services, [made])[0]


class _Resubmit(JobResubmit):
    """What an Idempotency-Key stands for: the changes, and the job. A key that was used for another job is refused."""

    of: str


def _specs(job: Job, body: JobResubmit, caller: Identity, services: Services, rules: Rules) -> list[JobSpec]:
    try:
        return [spec_again(job, body, caller, services, rules)]
    except ValidationError as error:  # a job of an older version, whose fields are no longer accepted
        first = error.errors()[0]
        raise problem(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
