"""What the scheduler decided and knows: allocations, rounds, throughputs, the cluster, kinds and policies."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.auth import AnyCaller, UserOrOperator, may_see
from api.errors import documented
from api.estimator import EstimatorView, estimator_view
from api.schemas import (
    AllocationView,
    CatalogueList,
    ClusterView,
    PolicyList,
    PolicyView,
    RoundList,
    RoundView,
    ThroughputList,
)
from api.services import Services, ServicesDep
from api.views import allocation_view, cluster_view, leases_in_force, round_view, throughput_view
from gavel.types import Identity, Job, JobId, Scope

router = APIRouter(prefix="/v1", tags=["scheduling"])


def _visible(services: Services, caller: Identity) -> Mapping[JobId, Job]:
    """Unfinished jobs that the caller may see."""
    return {job.id: job for job in services.store.snapshot().jobs.values() if may_see(caller, job)}


@router.get("/allocations/current", operation_id="get_allocation", responses=documented(401, 403, 404, 503))
def get_allocation(caller: UserOrOperator, services: ServicesDep) -> AllocationView:
    """The newest allocation, with the rows of your unfinished jobs (an operator's: everybody's). 404 before any."""
    record = services.store.round()
    return allocation_view(record, _visible(services, caller), services.clock.now_s())


@router.get("/rounds", operation_id="list_rounds", responses=documented(401, 403, 422, 503))
def list_rounds(
    caller: UserOrOperator,
    services: ServicesDep,
    before: Annotated[int | None, Query(ge=0, le=2**53, description="Only rounds before this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 40,
) -> RoundList:
    """Rounds with their leases, newest first; the first may be planned ahead of the one in force."""
    plans = services.store.rounds(before=before, limit=limit)
    next_before = plans[-1].round_index if len(plans) == limit else None
    return RoundList(items=[round_view(plan) for plan in plans], next_before=next_before)


@router.get("/rounds/{index}", operation_id="get_round", responses=documented(401, 403, 404, 422, 503))
def get_round(index: Annotated[int, Path(ge=0, le=2**53)], caller: UserOrOperator, services: ServicesDep) -> RoundView:
    """One round, with what its solver came to."""
    record = services.store.round(index)
    return round_view(record.plan, record.solver_outcome)


@router.get("/throughputs", operation_id="list_throughputs", responses=documented(401, 403, 503))
def list_throughputs(caller: UserOrOperator, services: ServicesDep) -> ThroughputList:
    """What is believed of job kinds: those of the catalogue and your own (an operator's list: all)."""
    items = [throughput_view(each) for each in services.store.throughputs() if _may_see_kind(caller, each.kind)]
    return ThroughputList(types=sorted({item.accelerator_type for item in items}), items=items)


@router.get("/estimator", operation_id="get_estimator", responses=documented(401, 403, 503))
def get_estimator(caller: UserOrOperator, services: ServicesDep) -> EstimatorView:
    """Every throughput with its interval and source, and what you stated beside what was measured (operator: all)."""
    return estimator_view(
        services.store.throughputs(),
        services.store.cluster().accelerator_types,
        may_see_kind=lambda kind: _may_see_kind(caller, kind),
        may_see_user=lambda user: caller.scope is Scope.OPERATOR or user == caller.user,
    )


def _may_see_kind(caller: Identity, kind: str) -> bool:
    owner, slash, _ = kind.partition("/")
    return caller.scope is Scope.OPERATOR or not slash or owner == caller.user


@router.get("/cluster", operation_id="get_cluster", responses=documented(401, 403, 503))
def get_cluster(caller: AnyCaller, services: ServicesDep) -> ClusterView:
    """Nodes; workers, each with the id of the job that holds it now; ephemeral resources of applications."""
    leases = leases_in_force(services.store.rounds(limit=2), services.store.snapshot().jobs)
    cluster = services.store.cluster()
    measured = {each.accelerator_type for each in services.store.throughputs() if each.is_measured}
    unmeasured = [
        f"nothing was measured on accelerator type {name} yet: its throughputs are inferred until a job has run there"
        for name in cluster.accelerator_types
        if name not in measured
    ]
    notes = (*services.cluster_notes(), *unmeasured)
    return cluster_view(cluster, leases, services.store.resources(), services.clock.now_s(), notes)


@router.get("/catalogue", operation_id="list_catalogue", responses=documented(401, 403, 503))
def list_catalogue(caller: AnyCaller, services: ServicesDep) -> CatalogueList:
    """The job kinds that come with Gavel; submit one by its name alone."""
    return CatalogueList(items=list(services.catalogue.values()))


@router.get("/policies", operation_id="list_policies", responses=documented(401, 403, 503))
def list_policies(caller: AnyCaller, services: ServicesDep) -> PolicyList:
    """Policies for the whole cluster, and objectives that a tier may have."""
    from gavel.policies.registry import TIER_OBJECTIVES, available

    items = [
        PolicyView(
            name=each.name,
            formula=each.formula,
            source=each.source,
            parameters={parameter.name: parameter.default for parameter in each.parameters},
        )
        for each in available(services.settings.policy_path)
    ]
    current = services.store.snapshot().policy or services.settings.policy
    return PolicyList(current=current, items=items, tier_objectives=dict(TIER_OBJECTIVES))
