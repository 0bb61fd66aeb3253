"""Decides what becomes of the replicas of one service: how many are made, and which ones leave. Pure.

A replica that leaves gets no new requests, and ends once those that it has are done. Make before break: one that is
ready leaves only while as many others are ready as its user wants, or, if there is no room for another one, while at
least `min_available` are.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gavel.types import AcceleratorType, ServiceStatus
from gavel.types.jobs import JobId

ROOM_AFTER_S = 30.0  # a replica that has waited so long for workers finds no room beside the old ones
FAILURES_MAX = 3  # of a new version without one that was ready: then it is given up
PAUSE_MAX_S = 300.0  # between two replicas that fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How many replicas a service is to have, and of which version; see ServiceSpec.

    `may_make` is False during the pause after replicas that failed. `mix`: how many of them on each accelerator type,
    in all `replicas`; empty: on any.
    """

    replicas: int
    min_available: int
    surge: int
    version: int
    drain_s: float
    may_make: bool = True
    mix: Mapping[AcceleratorType, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica that has not ended. `is_running`: its gang has workers; `must_go`: its node is to be empty, or its user
    has paused it; `leaving_at_s`: since when it leaves, None: it does not; `made_at_s`: since when it is there.
    `accelerator_type`: the one that it was made for; "": any."""

    id: JobId
    version: int
    is_running: bool = False
    is_ready: bool = False
    was_ready: bool = False
    must_go: bool = False
    leaving_at_s: float | None = None
    made_at_s: float = 0.0
    accelerator_type: AcceleratorType = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """What to do: how many replicas of the wanted version to make, which ones leave from now on, and which end now."""

    make: int = 0
    leave: tuple[JobId, ...] = ()
    end: tuple[JobId, ...] = ()


def decide(wanted: Wanted, replicas: Sequence[Replica], now_s: float) -> Acts:
    """Return what to do now; the same again once it is done changes nothing more until something else happens."""
    staying = [each for each in replicas if each.leaving_at_s is None]
    good = _good(wanted, staying)
    missing = min(wanted.replicas - len(good), wanted.replicas + wanted.surge - len(staying))
    leave = _leaving(wanted, staying, good, _makes_room(wanted, replicas, good, now_s))
    return Acts(
        make=max(0, missing) if wanted.may_make else 0,
        leave=tuple(each.id for each in leave if each.was_ready),
        end=(
            *(each.id for each in leave if not each.was_ready),
            *(each.id for each in replicas if _is_done(each, wanted.drain_s, now_s)),
        ),
    )


def types_to_make(wanted: Wanted, replicas: Sequence[Replica]) -> list[AcceleratorType]:
    """Return the type of each replica that is missing, in the order in which to make them; "": any."""
    there = Counter(each.accelerator_type for each in _good(wanted, [r for r in replicas if r.leaving_at_s is None]))
    if not wanted.mix:
        return [""] * max(0, wanted.replicas - there.total())
    return [name for name, count in sorted(wanted.mix.items()) for _ in range(count - there[name])]


def _good(wanted: Wanted, staying: Sequence[Replica]) -> list[Replica]:
    """Those that are as they should be. Of a type with too many these are the ready ones, and then the oldest."""
    good = [each for each in staying if each.version == wanted.version and not each.must_go]
    if not wanted.mix:
        return good
    kept, left = list[Replica](), Counter(wanted.mix)
    for each in sorted(good, key=lambda each: (not each.is_ready, not each.was_ready, each.made_at_s)):
        left[each.accelerator_type] -= 1
        if left[each.accelerator_type] >= 0:
            kept.append(each)
    return kept


def _leaving(wanted: Wanted, staying: Sequence[Replica], good: Sequence[Replica], room: int) -> list[Replica]:
    """Those that nobody needs any more, of older versions first; `room`: how many more than that are to make room."""
    kept = {each.id for each in good}
    others = [each for each in staying if each.id not in kept]
    surplus = sorted(good, key=lambda each: (each.is_ready, each.was_ready, -each.made_at_s))
    surplus = surplus[: max(0, len(good) - wanted.replicas)]
    ready = sum(each.is_ready for each in staying)
    spare = max(ready - wanted.replicas, min(room, ready - wanted.min_available), 0)
    leave = []
    for each in (*sorted(others, key=lambda each: each.is_ready), *surplus):
        if each.is_ready and spare > 0:
            spare -= 1
            leave.append(each)
        elif not each.is_ready and (ready >= wanted.replicas or not each.was_ready):
            leave.append(each)
    return leave


def _makes_room(wanted: Wanted, replicas: Sequence[Replica], good: Sequence[Replica], now_s: float) -> int:
    """1 if a new replica can only come once an old one has left, and none is leaving already; else 0.

    It has waited long for workers that an old one may have, or its user allows none beside the old ones (no surge).
    """
    staying = sum(each.leaving_at_s is None for each in replicas)
    is_alone = wanted.surge == 0 and wanted.may_make and len(good) < wanted.replicas <= staying
    is_stuck = any(not each.is_running and now_s - each.made_at_s >= ROOM_AFTER_S for each in good)
    return int((is_stuck or is_alone) and staying == len(replicas))


def _is_done(replica: Replica, drain_s: float, now_s: float) -> bool:
    return replica.leaving_at_s is not None and replica.leaving_at_s + drain_s <= now_s


def advanced(
    status: ServiceStatus, wanted: Wanted, replicas: Sequence[Replica], *, failed: int, now_s: float, rollout_s: float
) -> ServiceStatus:
    """Return how far the service is now. `failed`: replicas of the wanted version that ended by themselves since.

    A version is stable once all replicas are of it and ready. One that is not, after FAILURES_MAX failures or
    `rollout_s` seconds without another replica that is ready, is refused if there is a stable one.
    """
    if wanted.version != status.wanted:
        status = replace(status, wanted=wanted.version, progress_at_s=now_s, failures=0, retry_at_s=0.0)
    if any(each.is_ready and not each.was_ready and each.version == wanted.version for each in replicas):
        status = replace(status, progress_at_s=now_s, failures=0, retry_at_s=0.0)
    if failed:
        failures = status.failures + failed
        status = replace(status, failures=failures, retry_at_s=now_s + _pause_s(failures))
    status = _by_now(status, now_s)
    if _is_whole(wanted, replicas):
        return replace(status, stable=wanted.version)
    is_late = status.failures >= FAILURES_MAX or now_s - status.progress_at_s >= rollout_s
    if is_late and 0 < status.stable != wanted.version and wanted.replicas:
        return replace(status, refused=wanted.version)
    return status


def _pause_s(failures: int) -> float:
    return min(PAUSE_MAX_S, 2.0 ** min(failures - 1, 20)) if failures else 0.0


def _by_now(status: ServiceStatus, now_s: float) -> ServiceStatus:
    """The status without instants that a clock which has been set back since made too late."""
    progress_at_s = min(status.progress_at_s, now_s)
    retry_at_s = min(status.retry_at_s, now_s + _pause_s(status.failures))
    if (progress_at_s, retry_at_s) == (status.progress_at_s, status.retry_at_s):
        return status
    return replace(status, progress_at_s=progress_at_s, retry_at_s=retry_at_s)


def _is_whole(wanted: Wanted, replicas: Sequence[Replica]) -> bool:
    staying = [each for each in replicas if each.leaving_at_s is None]
    ready = sum(each.is_ready and each.version == wanted.version for each in staying)
    return 0 < wanted.replicas <= ready and all(each.version == wanted.version for each in staying)


def next_at_s(
    wanted: Wanted, replicas: Sequence[Replica], status: ServiceStatus, rollout_s: float
) -> tuple[float, ...]:
    """Return the instants at which there is something to do although nothing happens, Unix time, passed ones too."""
    ends = [each.leaving_at_s + wanted.drain_s for each in replicas if each.leaving_at_s is not None]
    waiting = [each.made_at_s + ROOM_AFTER_S for each in replicas if not each.is_running]
    is_rolling = 0 < status.stable != wanted.version
    rollout = [status.progress_at_s + rollout_s] if is_rolling else []
    return (*ends, *waiting, *rollout, status.retry_at_s)
