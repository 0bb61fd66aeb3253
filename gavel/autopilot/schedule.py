"""When the autopilot of a service decides next: a function of what is set, what it has decided and what changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gavel.mechanism.cluster import nodes
from gavel.ports import Snapshot
from gavel.types import SECONDS_PER_HOUR, Cluster
from gavel.types.autopilot import AutopilotDecision, AutopilotMode, AutopilotSetting

CPU_PART = 0.10  # of one core, over an hour
QUEUE_CHANGE = 0.25  # of the jobs at the last decision
OF_AN_HOUR = 400  # decisions: those of an hour are not more, as each takes about a second of CPU time at the least
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


def circumstances(snapshot: Snapshot, cluster: Cluster) -> Circumstances:
    """Return what a decision would be made for now."""
    workers = nodes.usable(cluster, snapshot.nodes).capacity_workers()
    return Circumstances(setting=snapshot.autopilot, workers=tuple(sorted(workers.items())), jobs=len(snapshot.jobs))


def attempts_of(decisions: Iterable[AutopilotDecision], now: Circumstances) -> list[Attempt]:
    """Return the attempts that these decisions (newest first) were, oldest first."""
    attempts = [
        Attempt(
            at_s=each.at_s,
            cpu_s=each.cpu_s,
            of=Circumstances(setting=each.setting or now.setting, workers=each.workers, jobs=each.jobs),
        )
        for each in decisions
    ]
    return attempts[::-1]


def next_decision(now: Circumstances, attempts: Sequence[Attempt], now_s: float, began_s: float = float("inf")) -> Due:
    """Return when to decide next; `attempts` are the last ones, oldest first, all those of the last hour among them.

    `began_s`: since when somebody waits for the first one. A changed setting is decided on at once, other changes once
    a part of the epoch has passed. A clock that was set back leaves no decision in the future: its time has passed.
    """
    never = float("inf")
    if now.setting.mode is AutopilotMode.OFF:
        return Due(at_s=never, why="the autopilot is off")
    if now.setting.mode is AutopilotMode.PIN:
        return Due(at_s=never, why="a composition is pinned")
    if not now.jobs:
        return Due(at_s=never, why="no job is unfinished")
    if not attempts:
        is_auto = now.setting.mode is AutopilotMode.AUTO
        first_s = now_s if is_auto else began_s + EARLY_PART * now.setting.epoch_s
        return Due(at_s=first_s, why="there was no decision yet")
    last = attempts[-1]
    since_s = min(last.at_s, now_s)
    wanted = Due(at_s=since_s + now.setting.epoch_s, why="the epoch is over")
    if last.of.setting != now.setting:
        wanted = Due(at_s=now_s, why="the setting has changed")
    elif change := _change(last.of, now):
        wanted = Due(at_s=since_s + EARLY_PART * now.setting.epoch_s, why=change)
    rested_s = _rested_s(attempts, now_s)
    if rested_s <= max(wanted.at_s, now_s):
        return wanted
    spent = f"decisions took more than {100 * CPU_PART:g} % of a core in the last hour"
    return Due(at_s=rested_s, why=f"{spent}; the next one waits")


def _change(before: Circumstances, now: Circumstances) -> str:
    """Return what has changed so much that a decision does not wait for the end of the epoch; empty if nothing has."""
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
