"""Reservations: which workers interactive sessions have from which instant on."""

from fastapi import APIRouter

from api.access.auth import UserOrOperator, may_see
from api.http.errors import documented
from api.schemas.sessions import ReservationList, ReservationView
from api.services import Services, ServicesDep
from gavel.types import Identity, Job

router = APIRouter(prefix="/v1/reservations", tags=["jobs"])


@router.get("", operation_id="list_reservations", responses=documented(401, 403, 503))
def list_reservations(caller: UserOrOperator, services: ServicesDep) -> ReservationList:
    """Reservations that are not over, everybody's, those that begin first first. Others' have no id, user or name.

    A session is reserved with `reserved_at_s` of `POST /v1/jobs`; whoever cancels the job gives it back.
    """
    reserved = [job for job in services.store.non_preemptible_jobs() if job.spec.reserved_at_s is not None]
    views = [_view(job, caller) for job in reserved if not _is_over(job, services)]
    return ReservationList(items=sorted(views, key=lambda each: (each.reserved_at_s, each.ends_at_s)))


def _view(job: Job, caller: Identity) -> ReservationView:
    spec, is_shown = job.spec, may_see(caller, job)
    return ReservationView(
        job_id=job.id if is_shown else None,
        user=spec.user if is_shown else None,
        name=spec.name if is_shown else None,
        accelerator_type=spec.reserved_type,
        workers=spec.scale_factor,
        reserved_at_s=spec.reserved_at_s or 0.0,
        ends_at_s=job.session_ends_at_s or 0.0,
        has_started=job.started_at_s is not None,
    )


def _is_over(job: Job, services: Services) -> bool:
    ends_at_s = job.session_ends_at_s
    return job.cancel_requested or (ends_at_s is not None and ends_at_s <= services.clock.now_s())
