"""Jobs: submit, list, show, change, cancel, and their history."""

from asyncio import wrap_future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Response
from fastapi import Request as HttpRequest
from fastapi.routing import APIRoute
from fastapi_problem.error import Problem
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from api.access.auth import USER_OR_OPERATOR, AnyCaller, UserOrOperator, visible_job
from api.access.identity_cache import identity_cache_of
from api.http.errors import documented, problem
from api.routes.parameters import (
    UNCHANGED,
    BeforeQuery,
    IdempotencyKey,
    IfNoneMatch,
    JobIdPath,
    JobIfMatch,
    LimitQuery,
    names_version,
    version_in,
)
from api.rules import Rules, rules_of
from api.schemas import AuditList, EventList, JobList, JobPatch, JobSubmit, JobView, Name, SessionExtend, ShownState
from api.schemas.fields import JOB_ID_PATTERN, LABEL_PATTERN, Request, View
from api.services import Services, ServicesDep
from api.submission.inference import check_places, checked_change
from api.submission.quotas import any_metered, check_hours
from api.submission.sessions import check_extension
from api.submission.specs import body_hash, check_stored, checked_priority, refers_to_stored, spec_of
from api.views.deadlines import deadline_view
from api.views.jobs_and_rounds import audit_list, core_states, event_view, job_view, leases_in_force
from gavel.ports import JobEdit, JobFilter
from gavel.types import Identity, Job, JobSpec, JobState, Scope

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

REPLAYED = {"Idempotency-Replayed": "true"}
_KEY: TypeAdapter[str | None] = TypeAdapter(IdempotencyKey)
SCANNED_PAGES = 25  # a list filtered by a shown state reads this many pages at most, then answers with fewer items

ETAG: dict[str, Any] = {"ETag": {"description": "The version of what is shown.", "schema": {"type": "string"}}}
LINKS: dict[str, Any] = {
    name: {"operationId": operation, "parameters": {"job_id": "$response.body#/id"}}
    for name, operation in (
        ("look", "get_job"),
        ("pause", "pause_job"),
        ("cancel", "cancel_job"),
        ("story", "list_events"),
        ("log", "get_log"),
    )
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


class SubmitRoute(APIRoute):
    """A route that serves a valid submit without FastAPI's dependency resolution, which costs more than all the rest.

    A request with anything unusual is passed on to FastAPI, which reports what is wrong.
    """

    def get_route_handler(self) -> Callable[[HttpRequest], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        careful = super().get_route_handler()

        async def handle(request: HttpRequest) -> Response:
            asked = await _submit_in(request)
            if asked is None:
                return await careful(request)
            body, key = asked
            return await submit(body, await USER_OR_OPERATOR.caller(request), request, key)

        return handle


async def _submit_in(request: HttpRequest) -> tuple[JobSubmit, str | None] | None:
    """Return body and key of a submit; None if FastAPI has to check the request."""
    if request.headers.get("content-type") != "application/json":
        return None
    try:
        body = JobSubmit.model_validate_json(await request.body())
        return body, _KEY.validate_python(request.headers.get("idempotency-key"))
    except (ValidationError, ClientDisconnect):
        return None


async def submit(
    body: JobSubmit,
    caller: UserOrOperator,
    request: HttpRequest,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Submit a job. The answer comes once the job is durable; without one, send the same Idempotency-Key again."""
    recent = identity_cache_of(request)
    digest, rules, services = body_hash(body), await recent.rules(), recent.services
    try:
        spec = spec_of(body, caller, rules)
        if refers_to_stored(body) or any_metered([spec], rules):  # only these need the disk
            await run_sync(_check_further, body, spec, caller, services, rules)
    except Problem:
        stored = await run_sync(_stored, services, caller, idempotency_key, digest)
        if not stored:
            raise
        return await _created(services, stored[0], created=False)
    now_s = services.clock.now_s()
    (answer,) = await wrap_future(services.store.start_submit(spec, key=idempotency_key, body_hash=digest, now_s=now_s))
    return await _created(services, answer.job, created=answer.created)


router.add_api_route(
    "",
    submit,
    methods=["POST"],
    status_code=201,
    operation_id="submit_job",
    response_model=JobView,
    responses=CREATED | documented(400, 401, 403, 413, 422, 429, 503),
    route_class_override=SubmitRoute,
)


def _check_further(body: JobSubmit, spec: JobSpec, caller: Identity, services: Services, rules: Rules) -> None:
    check_stored(body, caller, services)
    check_hours([spec], rules, services)


async def _created(services: Services, job: Job, *, created: bool) -> Response:
    """Return the answer to a submit. The database is read only if something there can affect the answer."""
    is_plain = job.state is JobState.QUEUED and job.spec.deadline_at_s is None
    view = job_view(job, None, services.clock.now_s()) if is_plain else (await run_sync(show, services, [job]))[0]
    headers = {"Location": f"/v1/jobs/{job.id}", "ETag": etag(job)} | ({} if created else REPLAYED)
    return written(view, 201, headers)


def submit_once(
    specs_of: Callable[[Rules], list[JobSpec]],
    body: Request,
    response: Response,
    caller: Identity,
    services: Services,
    key: str | None,
    *,
    is_array: bool,
) -> list[Job]:
    """Return the jobs of a body.

    If the key was used before, return the jobs of that time, even if quotas or the cluster have changed since.
    """
    digest, rules = body_hash(body), rules_of(services)
    try:
        specs = specs_of(rules)
        check_hours(specs, rules, services)
    except Problem:
        jobs = _stored(services, caller, key, digest)
        if not jobs:
            raise
    else:
        now_s = services.clock.now_s()
        answers = services.store.submit_many(specs, key=key, body_hash=digest, now_s=now_s, is_array=is_array)
        jobs = tuple(each.job for each in answers)
        if all(each.created for each in answers):
            return list(jobs)
    response.headers.update(REPLAYED)
    return list(jobs)


def _stored(services: Services, caller: Identity, key: str | None, digest: str) -> Sequence[Job]:
    return services.store.submitted(caller.user, key, body_hash=digest) if key else ()


@router.get("", operation_id="list_jobs", response_model=JobList, responses=documented(401, 403, 422, 503))
def list_jobs(  # noqa: PLR0913, PLR0917  one parameter a filter
    caller: UserOrOperator,
    services: ServicesDep,
    state: Annotated[ShownState | None, Query()] = None,
    user: Annotated[Name | None, Query()] = None,
    tier: Annotated[Name | None, Query()] = None,
    label: Annotated[str | None, Query(pattern=LABEL_PATTERN, max_length=192, examples=["project=vision"])] = None,
    array_id: Annotated[str | None, Query(pattern=JOB_ID_PATTERN, max_length=63)] = None,
    match: Annotated[
        str | None,
        Query(pattern=JOB_ID_PATTERN, max_length=63, description="Whose id begins with it, or whose name it is."),
    ] = None,
    cursor: Annotated[str | None, Query(pattern=r"^[a-z0-9][-a-z0-9]*$", max_length=63)] = None,
    limit: LimitQuery = 50,
) -> Response:
    """Jobs, newest first: your own; for an operator everybody's. A page may be short: follow `next_cursor`."""
    if caller.scope is not Scope.OPERATOR:
        if user not in (None, caller.user):
            return written(JobList(items=[], next_cursor=None))
        user = caller.user
    key, _, value = (label or "").partition("=")
    where = JobFilter(
        states=None if state is None else core_states(state),
        user=user,
        tier=tier,
        label=(key, value) if label else None,
        array_id=array_id,
        match=match,
    )
    views: list[JobView] = []
    for _ in range(SCANNED_PAGES):
        page = services.store.jobs(where, cursor=cursor, limit=limit - len(views))
        cursor = page.next_cursor
        views += [view for view in show(services, page.jobs) if state in (None, view.state)]
        if cursor is None or len(views) >= limit:
            break
    return written(JobList(items=views, next_cursor=cursor))


@router.get(
    "/{job_id}",
    operation_id="get_job",
    response_model=JobView,
    responses=UNCHANGED | documented(401, 403, 404, 422, 503),
)
def get_job(job_id: JobIdPath, caller: AnyCaller, services: ServicesDep, if_none_match: IfNoneMatch = None) -> Response:
    """One job. The ETag changes with everything except values that change with time alone."""
    job = visible_job(services, caller, job_id)
    if names_version(if_none_match, etag(job)):
        return Response(status_code=304, headers={"ETag": etag(job)})
    return written(show(services, [job])[0], headers={"ETag": etag(job)})


@router.post(
    "/{job_id}/cancel", status_code=202, operation_id="cancel_job", responses=documented(401, 403, 404, 409, 422, 503)
)
def cancel(job_id: JobIdPath, response: Response, caller: UserOrOperator, services: ServicesDep) -> JobView:
    """Request that a job ends. Repeating it changes nothing. 409 when the job has ended otherwise."""
    visible_job(services, caller, job_id)
    job = services.store.request_cancel(job_id, now_s=services.clock.now_s(), by=caller.user)
    response.headers["ETag"] = etag(job)
    return show(services, [job])[0]


@router.post(
    "/{job_id}/pause", status_code=202, operation_id="pause_job", responses=documented(401, 403, 404, 409, 422, 503)
)
def pause(job_id: JobIdPath, response: Response, caller: UserOrOperator, services: ServicesDep) -> JobView:
    """Stop the job after a checkpoint; it waits until it is resumed. 409 when it has ended."""
    return _pause(job_id, True, response, caller, services)


@router.post(
    "/{job_id}/resume", status_code=202, operation_id="resume_job", responses=documented(401, 403, 404, 409, 422, 503)
)
def resume(job_id: JobIdPath, response: Response, caller: UserOrOperator, services: ServicesDep) -> JobView:
    """Let a paused job go on from its checkpoint. 409 when it has ended."""
    return _pause(job_id, False, response, caller, services)


def _pause(job_id: str, is_paused: bool, response: Response, caller: Identity, services: Services) -> JobView:
    visible_job(services, caller, job_id)
    now_s = services.clock.now_s()
    job = services.store.request_pause(job_id, is_paused=is_paused, now_s=now_s, by=caller.user)
    response.headers["ETag"] = etag(job)
    return show(services, [job])[0]


@router.patch(
    "/{job_id}", operation_id="edit_job", responses=documented(400, 401, 403, 404, 409, 412, 413, 422, 428, 503)
)
def edit(
    job_id: JobIdPath,
    body: JobPatch,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    if_match: JobIfMatch = None,
) -> JobView:
    """Change weight, priority or labels of an unfinished job; of a service its replicas, demand, rate or program."""
    job = visible_job(services, caller, job_id)
    if if_match is None:
        raise problem(428, f"send If-Match: {etag(job)} to change the job as it is now, or If-Match: *")
    if body.priority is not None:
        tiers = {tier.name: tier for tier in services.store.tiers()}
        checked_priority(body.priority, tiers[job.spec.tier], caller)
    of_service = checked_change(job, body)
    change = JobEdit(weight=body.weight, priority=body.priority, labels=body.labels, **of_service)
    check_places(job, change, services.store.cluster)
    return _edited(job, change, if_match, response, caller, services)


@router.post(
    "/{job_id}/extend",
    operation_id="extend_session",
    responses=documented(400, 401, 403, 404, 409, 412, 413, 422, 428, 503),
)
def extend(
    job_id: JobIdPath,
    body: SessionExtend,
    response: Response,
    caller: UserOrOperator,
    services: ServicesDep,
    if_match: JobIfMatch = None,
) -> JobView:
    """Let an interactive session last longer, up to the most that its tier allows. 409 when it has ended."""
    job = visible_job(services, caller, job_id)
    if if_match is None:
        raise problem(428, f"send If-Match: {etag(job)} to extend the session as it is now, so that it is done once")
    tier = next(tier for tier in services.store.tiers() if tier.name == job.spec.tier)
    change = JobEdit(longest_s=check_extension(job, body.by_s, tier))
    return _edited(job, change, if_match, response, caller, services)


def _edited(
    job: Job, change: JobEdit, if_match: str, response: Response, caller: Identity, services: Services
) -> JobView:
    """Store the change and return the job after it. Raise Conflict, StaleVersion."""
    now_s, expected = services.clock.now_s(), version_in(if_match)
    after = services.store.edit_job(job.id, change, expected_version=expected, now_s=now_s, by=caller.user)
    response.headers["ETag"] = etag(after)
    return show(services, [after])[0]


@router.get("/{job_id}/audit", operation_id="list_job_audit", responses=documented(401, 403, 404, 422, 503))
def list_audit(
    job_id: JobIdPath, caller: UserOrOperator, services: ServicesDep, before: BeforeQuery = None, limit: LimitQuery = 50
) -> AuditList:
    """Decisions about the job, newest first: by its user, by operators, and by the policy that preempted it."""
    visible_job(services, caller, job_id)
    entries = services.store.audit(subject=f"job/{job_id}", before=before, limit=limit)
    return audit_list(entries, limit)


@router.get("/{job_id}/events", operation_id="list_events", responses=documented(401, 403, 404, 422, 503))
def list_events(
    job_id: JobIdPath,
    caller: AnyCaller,
    services: ServicesDep,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only events with a greater sequence.")] = 0,
    limit: LimitQuery = 200,
) -> EventList:
    """The job's history, oldest first."""
    visible_job(services, caller, job_id)
    events = services.store.events(job_id, after=after, limit=limit)
    return EventList(items=[event_view(each) for each in events], next_after=events[-1].sequence if events else after)


def written(view: View, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a view as the answer, without validating it a second time."""
    return Response(view.model_dump_json(), status, headers, "application/json")


def etag(job: Job) -> str:
    """Return the weak ETag of a job. It is weak because rho and ages change between two versions."""
    return f'W/"{job.version}"'


def show(services: Services, jobs: Sequence[Job]) -> list[JobView]:
    """Return the jobs as their owner sees them, with the leases that they hold now."""
    by_id = {job.id: job for job in jobs}
    holding = any(job.state is JobState.LEASED for job in jobs)
    leases = leases_in_force(services.store.rounds(limit=2) if holding else (), by_id)
    now_s = services.clock.now_s()
    views = [job_view(job, leases.get(job.id), now_s) for job in jobs]
    if all(job.spec.deadline_at_s is None or job.state.is_terminal for job in jobs):
        return views
    knowledge = services.knowledge()
    deadlines = [deadline_view(job, knowledge) for job in jobs]
    return [view.model_copy(update={"deadline": each}) for view, each in zip(views, deadlines, strict=True)]
