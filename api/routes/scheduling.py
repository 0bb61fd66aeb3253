"""The scheduler's decisions and data: allocations, rounds, throughputs, the cluster and job kinds."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from api.access.auth import AnyCaller, UserOrOperator, may_see, visible_job
from api.access.visibility import seen_ids
from api.http.errors import documented
from api.schemas import (
    AllocationView,
    CatalogueList,
    ClusterView,
    Kind,
    Name,
    RoundList,
    RoundView,
    ThroughputList,
)
from api.schemas.fields import JOB_ID_PATTERN
from api.services import Services, ServicesDep
from api.views.grouping import ROWS_MAX, rows_of
from api.views.jobs_and_rounds import allocation_view, cluster_view, leases_in_force, round_view
from api.views.present import Present
from api.views.throughputs import throughput_list, throughputs_of
from gavel.errors import NotFound
from gavel.estimator.kinds import OWN_KIND
from gavel.estimator.tables import own_rows
from gavel.mechanism.cluster.configured import regions_of
from gavel.types import Cluster, Identity, Job, JobId, Scope, plain_type

router = APIRouter(prefix="/v1", tags=["scheduling"])


def _visible(services: Services, caller: Identity) -> Mapping[JobId, Job]:
    """Return the unfinished jobs that the caller may see."""
    jobs = services.present.get().snapshot.jobs
    if caller.scope is Scope.OPERATOR:
        return jobs
    return {job.id: job for job in jobs.values() if may_see(caller, job)}


def _fits(job: Job, tier: str | None, kind: str | None) -> bool:
    return tier in (None, job.spec.tier) and kind in (None, job.spec.kind)


@router.get("/allocations/current", operation_id="get_allocation", responses=documented(401, 403, 404, 422, 503))
def get_allocation(
    caller: UserOrOperator,
    services: ServicesDep,
    group_by: Annotated[
        Literal["none", "tier_and_kind", "auto"],
        Query(description=f"One row for the jobs of a tier and kind; auto: when there are more than {ROWS_MAX}."),
    ] = "none",
    tier: Annotated[Name | None, Query(description="Only rows of this tier.")] = None,
    kind: Annotated[Kind | None, Query(description="Only rows of this job kind.")] = None,
    limit: Annotated[int, Query(ge=1, le=1_000_000, description="Most rows; `jobs` says how many there are.")] = 10**6,
) -> AllocationView:
    """The newest allocation, with the rows of your unfinished jobs (an operator's: everybody's). 404 before any."""
    present = services.present.get()
    if _is_prepared(present, caller, group_by) and tier is kind is None and present.matrix is not None:
        return present.matrix.model_copy(update={"rows": present.matrix.rows[:limit]})
    newest = present.snapshot.round_records
    record = newest[-1] if newest else services.store.round()
    jobs = _visible(services, caller)
    if tier is not None or kind is not None:
        jobs = {job_id: job for job_id, job in jobs.items() if _fits(job, tier, kind)}
    is_grouped = group_by == "tier_and_kind" or (group_by == "auto" and rows_of(record, jobs) > ROWS_MAX)
    now_s = services.clock.now_s()
    view = services.matrices.of(record, jobs, now_s=now_s) if is_grouped else allocation_view(record, jobs, now_s)
    return view.model_copy(update={"rows": view.rows[:limit]})


def _is_prepared(present: Present, caller: Identity, group_by: str) -> bool:
    """Return whether the whole grouped matrix is asked for where so many jobs make it costly."""
    return present.is_large and caller.scope is Scope.OPERATOR and group_by != "none"


@router.get("/rounds", operation_id="list_rounds", responses=documented(401, 403, 422, 503))
def list_rounds(
    caller: UserOrOperator,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="Only rounds before this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 40,
) -> RoundList:
    """Rounds with their leases, newest first. The first one may be planned ahead of the round in force.

    Other users' jobs have no id there (an operator sees all).
    """
    plans = services.store.rounds(before=before, limit=limit)
    seen = seen_ids(services, caller, (lease.job_id for plan in plans for lease in plan.leases))
    next_before = plans[-1].round_index if len(plans) == limit else None
    return RoundList(items=[round_view(plan, seen) for plan in plans], next_before=next_before)


@router.get("/rounds/{index}", operation_id="get_round", responses=documented(401, 403, 404, 422, 503))
def get_round(index: Annotated[int, Path(ge=0, le=2**53)], caller: UserOrOperator, services: ServicesDep) -> RoundView:
    """One round with the outcome of its solve. Other users' jobs have no id there (an operator sees all)."""
    record = services.store.round(index)
    seen = seen_ids(services, caller, (lease.job_id for lease in record.plan.leases))
    return round_view(record.plan, seen, record.solver_outcome)


@router.get("/throughputs", operation_id="list_throughputs", responses=documented(401, 403, 404, 422, 503))
def list_throughputs(
    caller: UserOrOperator,
    services: ServicesDep,
    job_id: Annotated[
        str | None, Query(pattern=JOB_ID_PATTERN, max_length=63, description="Only the estimates of this job.")
    ] = None,
) -> ThroughputList:
    """How fast job kinds run on each accelerator type, with intervals and sources, and users' claims.

    Kinds of the catalogue and your own; for an operator all.
    """
    if job_id is not None:
        return throughputs_of(visible_job(services, caller, job_id), services.store, services.estimator())
    return throughput_list(
        services.estimator(),
        services.store.throughputs(),
        sorted({*map(plain_type, services.store.cluster().accelerator_types)}),
        may_see_kind=lambda kind: _may_see_kind(services, caller, kind),
        may_see_user=lambda user: caller.scope is Scope.OPERATOR or user == caller.user,
    )


def _may_see_kind(services: Services, caller: Identity, kind: str) -> bool:
    """Return whether the caller may see a kind: the catalogue's, its own, that of a visible job; operators: all."""
    name, _, job_id = kind.partition(OWN_KIND)
    if caller.scope is Scope.OPERATOR:
        return True
    if job_id:
        return _may_see_job(services, caller, job_id)
    owner, slash, _ = name.partition("/")
    return not slash or owner == caller.user


def _may_see_job(services: Services, caller: Identity, job_id: JobId) -> bool:
    try:
        return may_see(caller, services.store.snapshot().jobs.get(job_id) or services.store.job(job_id))
    except NotFound:
        return False


@router.get("/cluster", operation_id="get_cluster", responses=documented(401, 403, 503))
def get_cluster(caller: AnyCaller, services: ServicesDep) -> ClusterView:
    """Nodes; workers, each with the job that holds it if you may see that; ephemeral resources of applications."""
    leases = leases_in_force(services.store.rounds(limit=2), services.store.snapshot().jobs)
    cluster = services.store.cluster()
    measured = {each.accelerator_type for each in own_rows(services.store.throughputs()) if each.is_measured}
    unmeasured = [
        f"nothing was measured on accelerator type {name} yet: its throughputs are inferred until a job has run there"
        for name in cluster.accelerator_types
        if plain_type(name) not in measured
    ]
    notes = (*services.cluster_notes(), *_spanning(cluster, services), *unmeasured)
    seen = seen_ids(services, caller, leases)
    return cluster_view(cluster, leases, seen, services.store.resources(), services.clock.now_s(), notes)


def _spanning(cluster: Cluster, services: Services) -> Iterator[str]:
    """Yield a note if nodes are in several regions which the settings do not tell apart."""
    regions = regions_of(cluster)
    if services.settings.regions is None and len(regions) > 1:
        yield f"nodes are in {len(regions)} regions, and gangs may span them: set the section regions"


@router.get("/catalogue", operation_id="list_catalogue", responses=documented(401, 403, 503))
def list_catalogue(caller: AnyCaller, services: ServicesDep) -> CatalogueList:
    """The job kinds that come with Gavel; submit one by its name alone."""
    return CatalogueList(items=list(services.catalogue.values()))
