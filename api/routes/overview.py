"""The cluster at a glance: small answers for the dashboard, however many jobs and workers there are."""

from bisect import bisect_right
from dataclasses import replace
from functools import partial
from math import inf
from typing import Annotated

from fastapi import APIRouter, Query

from api.access.auth import UserOrOperator, may_see, visible_job
from api.access.visibility import jobs_with
from api.http.errors import documented
from api.routes.parameters import LimitQuery
from api.schemas import Name
from api.schemas.fields import JOB_ID_PATTERN
from api.schemas.overview import Placements, Queue, SharesView, Summary
from api.services import ServicesDep
from api.views import overview
from gavel.ports import ApiStore
from gavel.types import Job, JobState, Scope

router = APIRouter(prefix="/v1", tags=["scheduling"])

RoundsQuery = Annotated[int, Query(ge=1, le=200, description="How many rounds.")]
BeforeRound = Annotated[int | None, Query(ge=0, le=2**53, description="Only rounds before this one.")]


@router.get("/summary", operation_id="get_summary", responses=documented(401, 403, 503))
def get_summary(caller: UserOrOperator, services: ServicesDep) -> Summary:
    """The round in force, its solve, unfinished jobs by state and tier, and what is wrong."""
    present = services.present.get()
    if present.is_large and caller.scope is Scope.OPERATOR:
        return present.summary
    snapshot, cluster, notes = present.snapshot, services.store.cluster(), services.cluster_notes()
    return overview.summary(snapshot, cluster, notes, lambda job: may_see(caller, job), services.clock.now_s())


@router.get("/placements", operation_id="get_placements", responses=documented(401, 403, 404, 422, 503))
def get_placements(
    caller: UserOrOperator,
    services: ServicesDep,
    before: BeforeRound = None,
    rounds: RoundsQuery = 40,
    node: Annotated[str | None, Query(max_length=300, description="Only workers of this node.")] = None,
    job_id: Annotated[str | None, Query(pattern=JOB_ID_PATTERN, max_length=63, description="Only this job.")] = None,
    limit: LimitQuery = 64,
) -> Placements:
    """Which job held which worker in the last rounds, for one node or the first workers; only your jobs have names.

    For one job: in the last rounds up to the one in which it last held workers, unless `before` is given.
    """
    if job_id is not None and before is None:
        before = _after_last_lease(visible_job(services, caller, job_id), services.store)
    plans = services.store.rounds(before=before, limit=rounds)[::-1]
    if job_id is not None:
        visible_job(services, caller, job_id)
        leases = [[each for each in plan.leases if each.job_id == job_id] for plan in plans]
        plans = tuple(replace(plan, leases=tuple(its)) for plan, its in zip(plans, leases, strict=True))
        workers = sorted({worker for its in leases for lease in its for worker in lease.worker_ids})
    else:
        workers = [each.id for each in services.store.cluster().workers if node in (None, each.node)]
    shown = workers[:limit]
    wanted = set(shown)
    held = {lease.job_id for plan in plans for lease in plan.leases if not wanted.isdisjoint(lease.worker_ids)}
    view = overview.placements(plans, shown, jobs_with(services, held), lambda job: may_see(caller, job))
    return view.model_copy(update={"workers": len(workers)})


def _after_last_lease(job: Job, store: ApiStore) -> int | None:
    """The index after that of the last round in which a job that holds no workers now held some; None: the newest."""
    newest = store.rounds(limit=1)
    if job.state is JobState.LEASED or job.started_at_s is None or not newest:
        return None
    indices = range(1, newest[0].round_index + 1)
    return 1 + bisect_right(indices, job.accounted_until_s, key=lambda index: _starts_at_s(store, index))


def _starts_at_s(store: ApiStore, index: int) -> float:
    plans = store.rounds(before=index + 1, limit=1)
    return plans[0].starts_at_s if plans else -inf  # no longer kept


@router.get("/shares", operation_id="get_shares", responses=documented(401, 403, 422, 503))
def get_shares(
    caller: UserOrOperator, services: ServicesDep, before: BeforeRound = None, rounds: RoundsQuery = 40
) -> SharesView:
    """The part of all workers that each tier's jobs held, round by round."""
    plans = services.store.rounds(before=before, limit=rounds)[::-1]
    jobs = jobs_with(services, {lease.job_id for plan in plans for lease in plan.leases})
    return overview.shares(
        plans,
        services.store.tiers(),
        {job_id: job.spec.tier for job_id, job in jobs.items()},
        [worker.id for worker in services.store.cluster().workers],
        services.present.get().snapshot.jobs.values(),
    )


@router.get("/queue", operation_id="get_queue", responses=documented(401, 403, 422, 503))
def get_queue(
    caller: UserOrOperator,
    services: ServicesDep,
    tier: Annotated[Name | None, Query(description="Only this tier.")] = None,
    start: Annotated[int, Query(ge=0, le=10**6, description="How many to leave out.")] = 0,
    limit: LimitQuery = 50,
) -> Queue:
    """Waiting jobs, tier by tier in the order in which they start, each with its position and reason."""
    line = services.present.get().line
    sees = None if caller.scope is Scope.OPERATOR else partial(may_see, caller)
    return overview.queue(line, sees, tier=tier, start=start, limit=limit)
