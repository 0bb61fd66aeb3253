"""Rounds after the wall clock was set back: a plan that would begin in an hour is in force now instead.

Leases of gangs are measured by boot time and do not notice; plans are instants of the wall clock, and would wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gavel.types import Lease, RoundPlan, RoundRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """By how many seconds the rounds up to `round_index` are taken to be earlier than they were written."""

    round_index: int = -1
    by_s: float = 0.0


def step_of(records: Sequence[RoundRecord], now_s: float, newest: ClockStep) -> ClockStep:
    """Return the step after which the first round that has yet to begin begins now; `newest` if none has to.

    A round is planned ahead only while the one before it is in force. So one that has yet to begin, after one that has
    yet to begin or is over, or after none, was planned by a clock that has been set back since, or by that of another
    host, which leads no more.
    """
    plans = [each.plan for each in after_step(records, now_s, newest)]
    is_ahead = any(plan.starts_at_s <= now_s < plan.ends_at_s for plan in plans)
    if not plans or plans[-1].starts_at_s <= now_s or is_ahead:
        return newest
    first = next(index for index, plan in enumerate(plans) if plan.starts_at_s > now_s)
    return ClockStep(round_index=plans[-1].round_index, by_s=records[first].plan.starts_at_s - now_s)


def after_step(records: Sequence[RoundRecord], now_s: float, step: ClockStep) -> tuple[RoundRecord, ...]:
    """Return the rounds as they are to be carried out: those that the step concerns so much earlier."""
    return tuple(
        replace(each, plan=_earlier(each.plan, step.by_s))
        if each.plan.round_index <= step.round_index and each.plan.starts_at_s > now_s
        else each
        for each in records
    )


def as_written(plan: RoundPlan, records: Sequence[RoundRecord]) -> RoundPlan:
    """Return the plan by the clock that planned its round, to be stored again. `records`: the rounds as stored."""
    stored = next((each.plan for each in records if each.plan.round_index == plan.round_index), plan)
    if stored.starts_at_s == plan.starts_at_s:
        return plan
    return replace(_earlier(plan, plan.starts_at_s - stored.starts_at_s), starts_at_s=stored.starts_at_s)


def _earlier(plan: RoundPlan, by_s: float) -> RoundPlan:
    leases = tuple(_lease_earlier(lease, by_s) for lease in plan.leases)
    return replace(plan, starts_at_s=plan.starts_at_s - by_s, leases=leases)


def _lease_earlier(lease: Lease, by_s: float) -> Lease:
    starts_at_s = None if lease.starts_at_s is None else lease.starts_at_s - by_s
    return replace(lease, expires_at_s=lease.expires_at_s - by_s, starts_at_s=starts_at_s)
