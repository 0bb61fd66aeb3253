"""When the autopilot of a service decides next: a function of what is set, what it has decided and what changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gavel.types import SECONDS_PER_HOUR
from gavel.types.autopilot import AutopilotMode, AutopilotSetting

CPU_PART = 0.10  # of one core, over an hour
QUEUE_CHANGE = 0.25  # of the jobs at the last decision
EARLY_PART = 1 / 8  # of an epoch that has to pass before a change is decided on


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a decision was made for. `workers`: how many of each accelerator type are usable, sorted by type."""

    setting: AutopilotSetting
    workers: tuple[tuple[str, int], ...]
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A decision, made or failed, at `at_s`, which took `cpu_s` CPU seconds."""

    at_s: float
    cpu_s: float
    of: Circumstances


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When the next decision is due, as far as is clear by now (+inf: never), and why then."""

    at_s: float
    why: str


def next_decision(now: Circumstances, attempts: Sequence[Attempt], now_s: float) -> Due:
    """Return when to decide next; `attempts` are the last ones, oldest first, all those of the last hour among them.

    A clock that was set back leaves no decision in the future: its time counts as passed.
    """
    if now.setting.mode is AutopilotMode.OFF:
        return Due(at_s=float("inf"), why="the autopilot is off")
    if not attempts:
        return Due(at_s=now_s, why="there was no decision yet")
    last = attempts[-1]
    since_s = min(last.at_s, now_s)
    wanted = Due(at_s=since_s + now.setting.epoch_s, why="the epoch is over")
    if change := _change(last.of, now):
        wanted = Due(at_s=since_s + EARLY_PART * now.setting.epoch_s, why=change)
    rested_s = _rested_s(attempts, now_s)
    if rested_s <= max(wanted.at_s, now_s):
        return wanted
    spent = f"decisions took more than {100 * CPU_PART:g} % of a core in the last hour"
    return Due(at_s=rested_s, why=f"{spent}; the next one waits")


def _change(before: Circumstances, now: Circumstances) -> str:
    """Return what has changed so much that a decision does not wait for the end of the epoch; empty if nothing has."""
    if before.setting != now.setting:
        return "the setting has changed"
    if before.workers != now.workers:
        return "the cluster has changed"
    if abs(now.jobs - before.jobs) > QUEUE_CHANGE * max(1, before.jobs):
        return f"there are {now.jobs} jobs, and were {before.jobs}"
    return ""


def _rested_s(attempts: Sequence[Attempt], now_s: float) -> float:
    """Return the instant from which on the attempts of the hour before took at most CPU_PART of it."""
    ends = [(min(each.at_s, now_s) + SECONDS_PER_HOUR, each.cpu_s) for each in attempts]
    recent = [(end_s, cpu_s) for end_s, cpu_s in ends if end_s > now_s]
    rested_s, left_s = now_s, sum(cpu_s for _, cpu_s in recent)
    for end_s, cpu_s in recent:
        if left_s <= CPU_PART * SECONDS_PER_HOUR:
            break
        rested_s, left_s = end_s, left_s - cpu_s
    return rested_s
