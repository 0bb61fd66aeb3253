"""Measures what a move costs: the part of the time that a gang held its workers which went into start and stop."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gavel.types import GangOutcome, GangSeen, Job, StartupTimes

WEIGHT_OF_NEWEST = 0.3
ANY_OTHER = ""  # stands for every kind that nobody has measured, as in `PlanInputs.switch_cost_s`
EVENTS_S = 1e-3  # shorter is a clock's rounding


def measured_s(job: Job, gang: GangSeen) -> float | None:
    """Return the seconds that an ended gang held its workers without training; None if it never trained.

    That is from its start to its first step, and from its last step over the checkpoint to its end, less the one step
    that a stop may cut off and the phases that its program marked as no training. `job` has taken the gang's reports.
    """
    is_clean = gang.exit is not None and gang.exit.outcome in (GangOutcome.PREEMPTED, GangOutcome.EXITED)
    if not is_clean or gang.started_at_s is None or gang.ended_at_s is None or job.trained_steps <= 0:
        return None
    held_s, step_s = gang.ended_at_s - gang.started_at_s, job.trained_s / job.trained_steps
    cost_s = held_s - job.trained_s - job.outside_s - step_s
    return cost_s if cost_s > EVENTS_S else 0.0


def blended(costs_s: Mapping[str, float], kind: str, cost_s: float) -> dict[str, float]:
    """Return the costs by kind, in seconds, with one more measurement; each is an exponential moving average."""

    def mixed(before: float | None) -> float:
        return cost_s if before is None else before + WEIGHT_OF_NEWEST * (cost_s - before)

    return {**costs_s, kind: mixed(costs_s.get(kind)), ANY_OTHER: mixed(costs_s.get(ANY_OTHER))}


def with_startups(costs_s: Mapping[str, float], times: Iterable[StartupTimes]) -> Mapping[str, float]:
    """Return the costs by kind, in seconds; a kind of which no gang has ended costs what its gangs reported so far.

    That is a checkpoint, a start-up and a restore, on the accelerator type where they take longest.
    """
    reported_s: dict[str, float] = defaultdict(float)
    for each in times:
        if each.kind not in costs_s:
            reported_s[each.kind] = max(reported_s[each.kind], each.move_s)
    return {**costs_s, **reported_s} if reported_s else costs_s


def pays_a_start(kind: str, costs_s: Mapping[str, float], left_s: float) -> bool:
    """Return whether a gang of the kind that starts for `left_s` seconds trains for at least half of them."""
    return left_s > 0 and 2 * costs_s.get(kind, costs_s.get(ANY_OTHER, 0.0)) <= left_s
