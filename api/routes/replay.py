"""A stored round decided again, so that everybody can check why it came out as it did."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Path

from api.auth import OperatorOnly
from api.errors import documented
from api.schemas.explain import LeaseDifference, ReplayView
from api.services import ServicesDep
from api.what_if import ask_in_a_process
from gavel.simulator.round_again import Verdict, decided_again, stored_round

router = APIRouter(prefix="/v1", tags=["why and what if"])


@router.get("/rounds/{index}/replay", operation_id="replay_round", responses=documented(401, 403, 404, 422, 503))
def replay_round(
    index: Annotated[int, Path(ge=0, le=2**53)], caller: OperatorOnly, services: ServicesDep
) -> ReplayView:
    """Decide the round again from what is stored with it: the same allocation and leases, or which differ."""
    found = ask_in_a_process(services, decided_again, stored_round(services.store.round, index, services.settings))
    is_known = found.largest_difference is not None and found.largest_difference != float("inf")
    note = found.note or ("" if found.largest_difference != float("inf") else "it comes out for other jobs or types")
    return ReplayView(
        round_index=found.round_index,
        policy=found.policy,
        same=found.is_same,
        solver_outcome=found.solver_outcome,
        largest_difference=found.largest_difference if is_known else None,
        leases=found.leases,
        differences=list(_differences(found)),
        note=note,
    )


def _differences(found: Verdict) -> Iterator[LeaseDifference]:
    for is_stored, leases in ((True, found.missing), (False, found.extra)):
        for lease in leases:
            yield LeaseDifference(
                job_id=lease.job_id,
                accelerator_type=lease.accelerator_type,
                worker_ids=list(lease.worker_ids),
                token=lease.token,
                is_stored=is_stored,
            )
