"""Which gangs are on the same workers, and beside which one a gang did the steps that it reports."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from gavel.mechanism.jobs.lifecycle import held_within_s
from gavel.types import GangSeen, JobId, WorkerId

Colocated = Mapping[tuple[JobId, int], Sequence[GangSeen]]  # the other gangs on its workers, by job and generation


def colocated(gangs: Iterable[GangSeen]) -> Colocated:
    """Return the gangs on the same workers as each gang, ended ones included; those that are alone are left out."""
    on: dict[tuple[WorkerId, ...], list[GangSeen]] = {}
    for gang in gangs:
        on.setdefault(gang.worker_ids, []).append(gang)
    several = (there for workers, there in on.items() if workers and len(there) > 1)
    return {(g.job_id, g.generation): [each for each in there if each is not g] for there in several for g in there}


def partner_of(gang: GangSeen, others: Sequence[GangSeen], now_s: float) -> GangSeen | None:
    """Return the gang beside which `gang` was for most of the time of its new reports; None: it was mostly alone.

    Without new reports that is the time since its start. Of several partners it is the one that was there for longest.
    """
    began_s = -inf if gang.started_at_s is None else gang.started_at_s
    end_s = now_s if gang.ended_at_s is None else min(now_s, gang.ended_at_s)
    reported_s = sum(report.seconds for report in gang.reports) if gang.reports else inf
    since_s = max(began_s, end_s - reported_s)
    beside_s = [held_within_s(each, since_s, end_s) for each in others]
    is_beside = sum(beside_s) > max(0.0, end_s - since_s) / 2
    return others[beside_s.index(max(beside_s))] if is_beside else None
