"""Instants that were noted by the wall clock, by what that shows after it was set."""

from dataclasses import replace

from gavel.clock import STEP_S
from gavel.ports import Clock
from gavel.types import GangSeen


def ahead_s(clock: Clock) -> float:
    """Return how far the wall clock is ahead of the steady one: it changes when the wall clock is set."""
    return clock.now_s() - clock.steady_s()


def by_clock(gang: GangSeen, set_by_s: float) -> GangSeen:
    """Return the gang with its instants by a clock that was set so many seconds ahead since it was seen."""
    if abs(set_by_s) < STEP_S:
        return gang
    started_s, ended_s = (None if each is None else each + set_by_s for each in (gang.started_at_s, gang.ended_at_s))
    return replace(gang, started_at_s=started_s, ended_at_s=ended_s)
