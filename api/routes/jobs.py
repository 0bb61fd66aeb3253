"""Jobs: submit, list, look, cancel, and their story."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from api.auth import AnyCaller, UserOrOperator, visible_job
from api.errors import documented
from api.limits import body_hash, spec_of
from api.routes.parameters import UNCHANGED, IdempotencyKey, IfNoneMatch, JobIdPath, LimitQuery, names_version
from api.schemas import EventList, JobList, JobSubmit, JobView, Name, ShownState
from api.services import Services, ServicesDep
from api.views import core_states, event_view, job_view, leases_in_force
from gavel.ports import JobFilter
from gavel.types import Job, JobState, Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

SCANNED_PAGES = 25  # a list filtered by a shown state looks through this many pages before it answers with a short one

ETAG: dict[str, Any] = {"ETag": {"description": "The version of what is shown.", "schema": {"type": "string"}}}
LINKS: dict[str, Any] = {
    name: {"operationId": operation, "parameters": {"job_id": "$response.body#/id"}}
    for name, operation in (("look", "get_job"), ("cancel", "cancel_job"), ("story", "list_events"), ("log", "get_log"))
}
CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "description": "The job, durable.",
        "headers": ETAG
        | {
            "Location": {"description": "Where the job is.", "schema": {"type": "string"}},
            "Idempotency-Replayed": {
                "description": "`true` when the key had been seen: this is the job it made then.",
                "schema": {"type": "string"},
            },
        },
        "links": LINKS,
    }
}


@router.post(
    "", status_code=201, operation_id="submit_job", responses=CREATED | documented(400, 401, 403, 413, 422, 429, 503)
)
def submit(
    body: JobSubmit,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    idempotency_key: IdempotencyKey = None,
) -> JobView:
    """Submit a job. The answer comes after the job is durable; send the same Idempotency-Key again when in doubt."""
    spec = spec_of(body, caller, services)
    now_s = services.clock.now_s()
    answer = services.store.submit(spec, key=idempotency_key, body_hash=body_hash(body), now_s=now_s)
    response.headers["Location"] = f"/v1/jobs/{answer.job.id}"
    response.headers["ETag"] = etag(answer.job)
    if not answer.created:
        response.headers["Idempotency-Replayed"] = "true"
    return show(services, [answer.job])[0]


@router.get("", operation_id="list_jobs", responses=documented(401, 403, 422, 503))
def list_jobs(
    caller: UserOrOperator,
    services: ServicesDep,
    state: Annotated[ShownState | None, Query()] = None,
    user: Annotated[Name | None, Query()] = None,
    tier: Annotated[Name | None, Query()] = None,
    label: Annotated[
        str | None, Query(pattern=r"^[^=\u0000]+=[^\u0000]*$", max_length=192, examples=["project=vision"])
    ] = None,
    cursor: Annotated[str | None, Query(pattern=r"^[a-z0-9][-a-z0-9]*$", max_length=63)] = None,
    limit: LimitQuery = 50,
) -> JobList:
    """Jobs, newest first: your own; an operator's list holds everybody's. A page may be short: go by `next_cursor`."""
    if caller.scope is not Scope.OPERATOR:
        if user not in (None, caller.user):
            return JobList(items=[], next_cursor=None)
        user = caller.user
    key, _, value = (label or "").partition("=")
    where = JobFilter(
        states=None if state is None else core_states(state),
        user=user,
        tier=tier,
        label=(key, value) if label else None,
    )
    found: list[JobView] = []
    for _ in range(SCANNED_PAGES):
        page = services.store.jobs(where, cursor=cursor, limit=limit - len(found))
        cursor = page.next_cursor
        found += [view for view in show(services, page.jobs) if state in (None, view.state)]
        if cursor is None or len(found) >= limit:
            break
    return JobList(items=found, next_cursor=cursor)


@router.get(
    "/{job_id}",
    operation_id="get_job",
    response_model=JobView,
    responses=UNCHANGED | documented(401, 403, 404, 422, 503),
)
def get_job(
    job_id: JobIdPath, response: Response, caller: AnyCaller, services: ServicesDep, if_none_match: IfNoneMatch = None
) -> JobView | Response:
    """One job. The ETag changes with everything but the passing of time."""
    job = visible_job(services, caller, job_id)
    if names_version(if_none_match, etag(job)):
        return Response(status_code=304, headers={"ETag": etag(job)})
    response.headers["ETag"] = etag(job)
    return show(services, [job])[0]


@router.post(
    "/{job_id}/cancel", status_code=202, operation_id="cancel_job", responses=documented(401, 403, 404, 409, 422, 503)
)
def cancel(job_id: JobIdPath, response: Response, caller: UserOrOperator, services: ServicesDep) -> JobView:
    """Ask for the end of a job; asking again changes nothing. 409 when it has ended otherwise."""
    visible_job(services, caller, job_id)
    job = services.store.request_cancel(job_id, now_s=services.clock.now_s())
    response.headers["ETag"] = etag(job)
    return show(services, [job])[0]


@router.get("/{job_id}/events", operation_id="list_events", responses=documented(401, 403, 404, 422, 503))
def list_events(
    job_id: JobIdPath,
    caller: AnyCaller,
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only events with a greater sequence.")] = 0,
    limit: LimitQuery = 200,
) -> EventList:
    """The job's story, oldest first."""
    visible_job(services, caller, job_id)
    events = services.store.events(job_id, after=after, limit=limit)
    return EventList(items=[event_view(each) for each in events], next_after=events[-1].sequence if events else after)


def etag(job: Job) -> str:
    """Weak, because rho and the shown ages go on between two versions."""
    return f'W/"{job.version}"'


def show(services: Services, jobs: Sequence[Job]) -> list[JobView]:
    """The jobs as their owner sees them, with the leases they hold now."""
    known = {job.id: job for job in jobs}
    holding = any(job.state is JobState.LEASED for job in jobs)
    leases = leases_in_force(services.store.rounds(limit=2) if holding else (), known)
    now_s = services.clock.now_s()
    return [job_view(job, leases.get(job.id), now_s) for job in jobs]
