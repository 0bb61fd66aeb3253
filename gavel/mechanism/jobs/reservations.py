"""Which workers jobs that may not be preempted hold at which time: whether a session may have some from an instant on.

A reservation is of a number of workers of one accelerator type, from an instant to another; which workers they are is
chosen when it begins (gavel/mechanism/planning/reserved_leases.py). At every instant of it there has to be room by the
rules for all gangs that may not be preempted (non_preemptible_limits.py), beside the other reservations and those gangs
that will still be there. Everything here is a function of its arguments.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil, inf

from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.types import AcceleratorType, Job, JobId, JobState, RoundPlan, Tier

NOTICE_ROUNDS = 2.0  # a reservation begins later than so: rounds until then are planned already
MINUTE_S = 60.0
TRIED_MAX = 500  # instants that are looked at to find one that would do


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Workers that a gang which may not be preempted holds, or may hold, on each of `types` between two instants."""

    tier: str
    workers: int
    types: tuple[AcceleratorType, ...]
    starts_at_s: float
    ends_at_s: float = inf

    def holds_at(self, at_s: float) -> bool:
        """Return whether it holds its workers at the instant."""
        return self.starts_at_s <= at_s < self.ends_at_s


class Calendar:
    """The claims on a cluster's workers over time."""

    def __init__(
        self, tiers: Mapping[str, Tier], capacity_workers: Mapping[AcceleratorType, int], claims: Iterable[Claim] = ()
    ) -> None:
        self._tiers, self._capacity, self._claims = tiers, capacity_workers, list(claims)

    def add(self, claim: Claim) -> None:
        """Add a claim."""
        self._claims.append(claim)

    def types(self, claim: Claim) -> list[AcceleratorType]:
        """Return those of the types of a new claim that have room for it from its start to its end."""
        return self._left(claim, self._instants(claim))

    def types_later(self, claim: Claim) -> list[AcceleratorType]:
        """Return those of the types of a claim that begins now on which it is in the way of none that begins later."""
        return self._left(claim, [at_s for at_s in self._instants(claim) if at_s > claim.starts_at_s])

    def least_free(self, name: AcceleratorType, claim: Claim) -> int:
        """Return how many workers of the type are free at every instant of the claim."""
        return min(self._free(name, at_s) for at_s in self._instants(claim))

    def why_not(self, claim: Claim) -> str:
        """Return a sentence that says what is in the way of a claim which `types` or `types_later` leave no type."""
        at_s = next((each for each in self._instants(claim) if not self._left(claim, [each])), None)
        if at_s is None:
            return "No accelerator type has room for it all the time."
        if all(self._free(name, at_s) < claim.workers for name in claim.types):
            return self._taken(claim, at_s)
        return f"{self._room(at_s).why_not(claim.tier, claim.workers)} That is so {when(at_s)}."

    def next_at_s(self, claim: Claim, earliest_s: float, latest_s: float) -> float | None:
        """Return the next instant, a whole minute, from which there would be room for the claim; None: there is none.

        It is the earliest one, or the minute in which another claim has ended.
        """
        length_s = claim.ends_at_s - claim.starts_at_s
        ends = sorted({_minute(each.ends_at_s) for each in self._claims if earliest_s < each.ends_at_s < latest_s})
        for at_s in (_minute(earliest_s), *ends[:TRIED_MAX]):
            if self.types(replace(claim, starts_at_s=at_s, ends_at_s=at_s + length_s)):
                return at_s
        return None

    def _left(self, claim: Claim, instants: Sequence[float]) -> list[AcceleratorType]:
        left = list(claim.types)
        for at_s in instants:
            left = self._room(at_s).types(claim.tier, claim.workers, left)
            left = [name for name in left if self._free(name, at_s) >= claim.workers]
        return left

    def _instants(self, claim: Claim) -> list[float]:
        """The instants at which most can be held during the claim: its start, and that of each other one within it."""
        within = {each.starts_at_s for each in self._claims if claim.starts_at_s < each.starts_at_s < claim.ends_at_s}
        return [claim.starts_at_s, *sorted(within)]

    def _room(self, at_s: float) -> Room:
        room = Room(self._tiers, self._capacity)
        for each in self._claims:
            if each.holds_at(at_s):
                room.take(each.tier, each.workers, each.types)
        return room

    def _free(self, name: AcceleratorType, at_s: float) -> int:
        held = sum(each.workers for each in self._claims if name in each.types and each.holds_at(at_s))
        return self._capacity.get(name, 0) - held

    def _taken(self, claim: Claim, at_s: float) -> str:
        free = {name: max(0, self._free(name, at_s)) for name in claim.types}
        counts = ", ".join(f"{free[name]} of {self._capacity.get(name, 0)} {name}" for name in claim.types)
        return (
            f"It needs {claim.workers} workers of one accelerator type. Jobs that may not be preempted, and"
            f" reservations, leave {counts} {when(at_s)}."
        )


def held_types(
    plans: Iterable[RoundPlan], now_s: float, jobs: Mapping[JobId, Job]
) -> dict[JobId, set[AcceleratorType]]:
    """Return the types that jobs hold, or will by a plan that is not carried out yet."""
    held: dict[JobId, set[AcceleratorType]] = {}
    for lease in (lease for plan in plans for lease in plan.leases if lease.job_id in jobs):
        job = jobs[lease.job_id]
        is_to_come = lease.generation > job.generation and lease.expires_at_s > now_s
        if is_to_come or (job.state is JobState.LEASED and lease.generation == job.generation):
            held.setdefault(job.id, set()).add(lease.accelerator_type)
    return held


def sharing(plans: Iterable[RoundPlan], job_ids: Collection[JobId]) -> dict[JobId, JobId]:
    """Return the jobs of those that share their workers, by the newest of the plans that has them, each with which."""
    partner: dict[JobId, JobId] = {}
    for lease in (each for plan in sorted(plans, key=_index, reverse=True) for each in plan.leases):
        if lease.job_id in job_ids and lease.job_id not in partner:
            others = [each for each in lease.combination if each != lease.job_id]
            partner[lease.job_id] = others[0] if others else ""
    return {one: other for one, other in partner.items() if other in job_ids}


def outlasted(pairs: Mapping[JobId, JobId], jobs: Mapping[JobId, Job]) -> set[JobId]:
    """Return those that share their workers with a job which ends later: that one's claim is of all that both hold."""
    ends = {name: (inf if (end := jobs[name].session_ends_at_s) is None else end, name) for name in pairs}
    return {one for one, other in pairs.items() if ends[one] < ends[other]}


def claim_of(
    job: Job, types: Collection[AcceleratorType], now_s: float, *, round_duration_s: float, is_reserved: bool = False
) -> Claim:
    """Return what a gang of the job holds on these types: from now on, or from the time of its reservation.

    Until it ends: a session that has yet to start may do so in the rounds that come next; other jobs have no end.
    """
    spec, ends_at_s = job.spec, job.session_ends_at_s
    if ends_at_s is None:
        ends_at_s = inf if spec.longest_s is None else now_s + NOTICE_ROUNDS * round_duration_s + spec.longest_s
    starts_at_s = max(now_s, spec.reserved_at_s or now_s) if is_reserved else now_s
    return Claim(
        tier=spec.tier,
        workers=spec.scale_factor,
        types=tuple(sorted(types)),
        starts_at_s=starts_at_s,
        ends_at_s=ends_at_s,
    )


def has_reservation(job: Job, now_s: float) -> bool:
    """Return whether workers are reserved for a gang of the job that it does not have yet."""
    if job.state is not JobState.QUEUED or job.spec.reserved_at_s is None or job.cancel_requested:
        return False
    return job.session_ends_at_s is None or now_s < job.session_ends_at_s


def is_due(job: Job, at_s: float) -> bool:
    """Return whether the reservation of the job has begun at the instant and is not over."""
    return has_reservation(job, at_s) and job.spec.reserved_at_s is not None and job.spec.reserved_at_s <= at_s


def waits_sentence(job: Job) -> str:
    """Return the sentence for a session whose reservation has yet to begin."""
    spec = job.spec
    begins, ends = when(spec.reserved_at_s or 0.0), when(job.session_ends_at_s or 0.0)
    return f"{spec.scale_factor} of {spec.reserved_type} reserved for the session: it starts {begins}, and ends {ends}."


def late_sentence(job: Job, usable_workers: int, held_workers: int) -> str:
    """Return the sentence for a session whose reservation has begun and that has no gang.

    `usable_workers` and `held_workers`: those of its type that are there, and of these the ones that gangs which may
    not be preempted hold.
    """
    spec = job.spec
    return (
        f"The session was to start {when(spec.reserved_at_s or 0.0)}, and needs {spec.scale_factor} workers of"
        f" {spec.reserved_type}. {usable_workers} can be used now, of which jobs that may not be preempted hold"
        f" {held_workers}. It starts in the first round with room, and ends {when(job.session_ends_at_s or 0.0)}."
    )


def when(at_s: float) -> str:
    """Return an instant for a sentence, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("at %Y-%m-%d %H:%M:%S UTC")


def _index(plan: RoundPlan) -> int:
    return plan.round_index


def _minute(at_s: float) -> float:
    return ceil(at_s / MINUTE_S) * MINUTE_S
