"""Decides how many replicas a service has by its demand: now, in its recent past, and at this time of earlier days.

Pure. The number grows at once, and becomes smaller only after the lower demand has lasted `down_after_s` seconds.
Requests are counted per second throughout. A part is one of PARTS of `down_after_s`, a slot one of a day.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gavel.mechanism.services.replica_mix import MixProblem, answered, least_loss, most_answered
from gavel.types import DemandSpec, DemandStatus, ServiceSpec
from gavel.types.services import DemandBound

PARTS = 32
SLOT_S, SLOTS = 300, 288
PART_MIN_S = 2.0  # so that a part is not stored at every tick
START_S = 60.0  # from made to ready, before a replica was seen to start
LEAD_MAX_S = 900.0  # a replica that waited for workers says nothing of how long a start takes
STARTS_MAX = 8  # that are kept
NEWEST_DAY = 0.5  # what the newest day counts in the typical one
RATIO_MIN, RATIO_MAX = 0.5, 2.0  # of the recent demand to that of earlier days, as far as a forecast follows it
EXCHANGE_GAIN = 0.1  # of what training loses, from which on ready replicas give way to others
UNKNOWN = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSeen:
    """What is seen of a service and of the cluster. `demand`: requests per second, None: nobody knows now.

    By accelerator type: `ready`, replicas that are ready and do not leave; `room`, the most that there can be, and
    `room_now`, the same without types on which one has waited long; `loss`, what training loses by each, above 0.
    `started_s`: seconds from made to ready of those that are ready for the first time.
    """

    now_s: float
    demand: float | None
    ready: Mapping[str, int] = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)
    room_now: Mapping[str, int] = field(default_factory=dict)
    loss: Mapping[str, float] = field(default_factory=dict)
    started_s: tuple[float, ...] = ()


def followed(status: DemandStatus, service: ServiceSpec, seen: DemandSeen) -> DemandStatus:
    """Return what is known and wanted now; the same again changes nothing more until something else is seen.

    `replicas` stays None until a demand was known. Raises no error for any demand from 0 to DEMAND_MAX.
    """
    demand = _demand(service)
    level = status.level if seen.demand is None else seen.demand
    if level is None:
        return status
    starts_s = (*status.start_s, *seen.started_s)[-STARTS_MAX:]
    lead_s = min(LEAD_MAX_S, max(starts_s, default=START_S))
    slot, daily = _learned(status, seen)
    status = replace(status, level=level, start_s=starts_s, lead_s=lead_s, slot=slot, daily=daily)
    forecast = level if demand.stated is not None else forecast_of(status, seen, demand.down_after_s)
    recent = _remembered(status.recent, level, max(level, forecast), seen.now_s, demand.down_after_s)
    needed = max(expected for _, _, expected in recent) * (1 + demand.headroom)
    wanted, begins = _wanted(status, service, seen, needed)
    bound = _bound(service, seen, wanted, needed, max(level, forecast) * (1 + demand.headroom))
    status = replace(status, exchanged_at_s=seen.now_s if begins else status.exchanged_at_s)
    return replace(status, recent=recent, forecast=forecast, needed=needed, replicas=wanted, bound=bound)


# --- the past, and what it says of the time to come ------------------------------------------------------------------


def part_s(down_after_s: float) -> float:
    """Return the seconds of one part of the recent past."""
    return max(down_after_s / PARTS, PART_MIN_S)


def _remembered(
    recent: Sequence[tuple[int, float, float]], level: float, expected: float, now_s: float, down_after_s: float
) -> tuple[tuple[int, float, float], ...]:
    """Take the demand now into the recent past; a part is forgotten once all of it is `down_after_s` seconds old."""
    width_s = part_s(down_after_s)
    now = int(now_s // width_s)
    kept = [each for each in recent if (each[0] + 1) * width_s + down_after_s > now_s]
    if kept and kept[-1][0] >= now:
        part, level_before, expected_before = kept.pop()
        return (*kept, (part, max(level, level_before), max(expected, expected_before)))
    return (*kept, (now, level, expected))


def _learned(status: DemandStatus, seen: DemandSeen) -> tuple[tuple[int, float], tuple[float, ...]]:
    """The slot that is going on with its largest demand, and the typical day once the slot before is over."""
    now, (slot, most) = int(seen.now_s // SLOT_S), status.slot
    if seen.demand is None:
        return status.slot, status.daily
    if now <= slot:
        return (slot, max(most, seen.demand)), status.daily
    if slot == 0:
        return (now, seen.demand), status.daily
    daily = list(status.daily or (UNKNOWN,) * SLOTS)
    before = daily[slot % SLOTS]
    daily[slot % SLOTS] = most if before < 0 else NEWEST_DAY * most + (1 - NEWEST_DAY) * before
    return (now, seen.demand), tuple(daily)


def forecast_of(status: DemandStatus, seen: DemandSeen, down_after_s: float) -> float:
    """Return the demand that is expected until `lead_s` seconds from now.

    It is that of the same time on earlier days, times what the recent demand is to that of its time on earlier days.
    While no replica can measure a demand, as after scaling to zero, it is that of earlier days; and the demand now
    where earlier days say nothing.
    """
    level = status.level or 0.0
    earlier = _typical(status.daily, seen.now_s, seen.now_s + status.lead_s)
    if earlier is None:
        return level
    usual = _typical(status.daily, seen.now_s - down_after_s, seen.now_s)
    if seen.demand is None or not usual:
        return earlier
    recent = max([level, *(each for _, each, _ in status.recent)])
    return earlier * min(RATIO_MAX, max(RATIO_MIN, recent / usual))


def _typical(daily: Sequence[float], from_s: float, until_s: float) -> float | None:
    """The largest demand in these seconds of a typical day; None: not known."""
    if not daily:
        return None
    slots = range(int(from_s // SLOT_S), int(until_s // SLOT_S) + 1)[-SLOTS:]
    measured = [daily[slot % SLOTS] for slot in slots if daily[slot % SLOTS] >= 0]
    return max(measured, default=None)


# --- how many replicas that needs ------------------------------------------------------------------------------------


def _wanted(status: DemandStatus, service: ServiceSpec, seen: DemandSeen, needed: float) -> tuple[dict[str, int], bool]:
    """The replicas by type: as before while these are enough, none is too many and no others are much better.

    And whether an exchange begins; there is one in `down_after_s` seconds at most, as others may find no workers.
    """
    before = status.replicas or {}
    types = sorted(each for each in _demand(service).rates if seen.room.get(each, 0) > 0)
    held = tuple(min(before.get(each, 0), seen.room[each]) for each in types)
    ready = tuple(min(seen.ready.get(each, 0), count) for each, count in zip(types, held, strict=True))
    room_now = [max(count, seen.room_now.get(each, 0)) for each, count in zip(types, held, strict=True)]
    problem = MixProblem(
        rate=tuple(_demand(service).rates[each] for each in types),
        loss=tuple(seen.loss.get(each, 1.0) for each in types),
        least=(0,) * len(types),
        most=held,
        count_min=service.replicas_min,
        count_max=service.replicas_max,
        needed=needed,
    )
    mix = held
    if not problem.covers(held) or not service.replicas_min <= sum(held) <= service.replicas_max:
        mix = _more(problem, room_now, [seen.room[each] for each in types])
    elif problem.covers(ready) and sum(ready) >= service.replicas_min:
        mix = least_loss(replace(problem, most=ready)) or mix
    both = _exchange(replace(problem, most=tuple(room_now)), mix)
    begins = both not in (None, held) and seen.now_s >= status.exchanged_at_s + _demand(service).down_after_s
    if both and (begins or both == held):
        mix = both
    return {each: count for each, count in zip(types, mix, strict=True) if count}, begins


def _exchange(problem: MixProblem, mix: Sequence[int]) -> tuple[int, ...] | None:
    """Return the mix with another one beside it of which training loses much less; None if there is none.

    Once the others are ready, those that are too many then leave.
    """
    best = least_loss(problem)
    if best is None or problem.loss_of(best) > (1 - EXCHANGE_GAIN) * problem.loss_of(mix):
        return None
    both = tuple(max(pair) for pair in zip(best, mix, strict=True))
    return both if sum(both) <= problem.count_max else None


def _more(problem: MixProblem, room_now: Sequence[int], room: Sequence[int]) -> tuple[int, ...]:
    """What is enough: more replicas beside those that there are, else others in their place, else the best there is."""
    held = problem.most
    whole = replace(problem, most=tuple(room))
    swapped = replace(whole, count_min=max(problem.count_min, min(sum(held), problem.count_max)))
    grown = [replace(whole, least=held, most=tuple(most)) for most in (room_now, room)]
    for each in (*grown, swapped):
        if (mix := least_loss(each)) is not None:
            return mix
    best = most_answered(whole)
    is_as_good = sum(held) <= problem.count_max and answered(problem.rate, held) >= answered(problem.rate, best)
    return held if is_as_good and sum(held) >= problem.count_min else best


def _bound(
    service: ServiceSpec, seen: DemandSeen, wanted: Mapping[str, int], needed: float, needed_now: float
) -> DemandBound:
    """What keeps the number from being what the demand now would ask for; "": nothing."""
    count, answers = sum(wanted.values()), _demand(service).answered(wanted)
    if answers < needed * (1 - 1e-9):
        return "replicas_max" if count >= service.replicas_max else "room"
    rates = [_demand(service).rates[each] for each in wanted]
    if count <= service.replicas_min and rates and answers - min(rates) >= needed:
        return "replicas_min"
    ready = sum(min(count, seen.ready.get(each, 0)) for each, count in wanted.items())
    if rates and answers - min(rates) >= needed_now:
        return "down_after_s" if ready == count else "readiness"
    return ""


def next_look_s(status: DemandStatus, demand: DemandSpec, now_s: float) -> float:
    """Return when the number may change although the demand does not, Unix time."""
    width_s = part_s(demand.down_after_s)
    parts = [(part + 1) * width_s + demand.down_after_s for part, _, _ in status.recent]
    slots = [] if demand.stated is not None else [(now_s // SLOT_S + 1) * SLOT_S]
    return min((at_s for at_s in (*parts, *slots) if at_s > now_s), default=now_s + demand.down_after_s)


def _demand(service: ServiceSpec) -> DemandSpec:
    assert service.demand is not None, "a service that follows its demand"
    return service.demand
