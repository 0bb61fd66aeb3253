"""The newest rounds in the time of this service, and until when their gangs may run by a clock that nobody sets."""

from collections.abc import Sequence

import structlog

from gavel.mechanism.planning.clock_steps import ClockStep, after_step, as_written, step_of
from gavel.types import RoundPlan, RoundRecord
from gavel.types.rounds import gone_by_s

log = structlog.get_logger("gavel.driver")


class RoundTimes:
    """Reads stored rounds, which are by the wall clocks of the services that planned them, by the clock of this one.

    A restart may forget all of it. A new service takes each round to last, from then on, as long as from when it was
    planned to its end: both are by one clock, whoever planned it. So its gangs may seem to run longer than they do,
    but never shorter, whatever the wall clocks of the two services say.
    """

    def __init__(self) -> None:
        self._stored: Sequence[RoundRecord] = ()
        self._until_s: dict[int, float] = {}  # round -> the end of its last lease, by the steady clock
        self.step = ClockStep()

    def in_time(self, records: tuple[RoundRecord, ...], now_s: float, steady_s: float) -> tuple[RoundRecord, ...]:
        """Return the rounds, those that a clock has planned which was set back since moved to now."""
        self._stored = records
        step = step_of(records, now_s, self.step)
        if step != self.step:
            log.warning("clock.set_back", by_s=round(step.by_s, 3), round=step.round_index)
            self.step = step
        moved = after_step(records, now_s, step) if step.by_s > 0 else records
        last_s = {each.plan.round_index: each.plan.ends_at_s - now_s for each in moved}
        planned_s = {each.plan.round_index: each.lasts_s(each.plan.ends_at_s) for each in records}
        self._until_s = {
            index: max(steady_s + left_s, self._until_s.get(index, steady_s + planned_s[index]))
            for index, left_s in last_s.items()
        }
        return moved

    def over(self, steady_s: float, *, lease_grace_s: float) -> frozenset[int]:
        """Return the stored rounds none of whose gangs can run any more, and the grace after their leases is over."""
        ends = self._until_s.items()
        return frozenset(index for index, until_s in ends if gone_by_s(until_s, lease_grace_s) <= steady_s)

    def as_written(self, plan: RoundPlan) -> RoundPlan:
        """Return the plan by the clock that planned its round, to be stored again."""
        return as_written(plan, self._stored)
