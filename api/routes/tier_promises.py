"""Whether what tiers are promised can be kept beside gangs that no round may preempt, when a tier changes."""

from collections.abc import Mapping
from dataclasses import replace

from api.http.errors import invalid
from api.schemas import TierPut
from api.services import Services
from gavel.mechanism.jobs.non_preemptible_limits import Room, beyond_guarantees
from gavel.types import AcceleratorType, JobState, Tier

PROMISES = ("guarantee", "parent", "non_preemptible_workers")


def check_promises(services: Services, name: str, body: TierPut, tiers: Mapping[str, Tier]) -> None:
    """Raise a 422 problem if the change promises more than gangs that may not be preempted leave, or may leave.

    `tiers`: all of now. What was promised before is not checked again.
    """
    before = tiers.get(name, Tier(name=name))
    after = dict(tiers) | {name: replace(before, **body.model_dump(include=set(PROMISES)))}
    if all(getattr(before, each) == getattr(after[name], each) for each in PROMISES):
        return
    capacity = services.store.cluster().capacity_workers()
    _check_numbers(name, tiers, after, capacity)
    if (after[name].guarantee, after[name].parent) != (before.guarantee, before.parent):
        _check_kept(services, after, capacity)


def _check_numbers(
    name: str, tiers: Mapping[str, Tier], after: Mapping[str, Tier], capacity: Mapping[AcceleratorType, int]
) -> None:
    """Numbers of workers that tiers allow such gangs, against what is guaranteed to others."""
    earlier = beyond_guarantees(tiers, capacity)
    new = {each: most for each, most in beyond_guarantees(after, capacity).items() if earlier.get(each) != most}
    if not capacity or not new:
        return
    of, most = (name, new[name]) if name in new else next(iter(new.items()))
    allowed, total = after[of].non_preemptible_workers, sum(capacity.values())
    leave = f"the guarantees of other tiers leave at most {most} of {total} workers to jobs that may not be preempted"
    if of == name:
        raise invalid(
            "non_preemptible_workers", f"{allowed} is too many: {leave}; give at most {most}, or guarantee less"
        )
    why = f"tier {of} lets such jobs hold {allowed}, and {leave} of it"
    raise invalid("guarantee", f"{why}; guarantee less, or lower non_preemptible_workers of {of} first")


def _check_kept(services: Services, after: Mapping[str, Tier], capacity: Mapping[AcceleratorType, int]) -> None:
    """What is guaranteed, against what such gangs hold now."""
    snapshot = services.present.get().snapshot
    room, record = Room(after, capacity), snapshot.round_records[-1] if snapshot.round_records else None
    staying = {
        job.id: job for job in snapshot.jobs.values() if not job.spec.preemptible and job.state is JobState.LEASED
    }
    for lease in record.plan.leases if record else ():
        if lease.job_id in staying and lease.accelerator_type in capacity:
            spec = staying[lease.job_id].spec
            room.take(spec.tier, spec.scale_factor, (lease.accelerator_type,))
    over = room.overcommitted()
    if over:
        name, wanted, workers = over
        held = f"on {name}, what jobs that may not be preempted hold and what tiers are guaranteed comes to {wanted:g}"
        raise invalid("guarantee", f"{held} of {workers} workers; guarantee less, or wait until such jobs have ended")
