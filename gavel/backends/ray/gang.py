"""A gang over several nodes as the service knows it: what each node said of its part, and what the whole is then."""

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gavel.backends import machine
from gavel.backends.answering import REPORTS_KEPT
from gavel.backends.gang import GangKey, launch_from, read_object
from gavel.backends.ray.shard import launch_of
from gavel.backends.ray.words import ShardLaunch, ShardSeen
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, Report

LOST_MARGIN_S = 1.0  # after lease end and grace, for clocks that run apart


@dataclass(slots=True, kw_only=True)
class Part:
    """What a node has of a gang. `lease_boottime_s` is the latest that it may ever have been told, in our boottime."""

    node: str
    launch: ShardLaunch
    lease_boottime_s: float
    lease_node_boottime_s: float  # the same instant, in the boottime of the node
    is_known: bool = False  # the node has shown it at least once
    state: GangState = GangState.WAITING
    started_boottime_s: float | None = None
    ended_boottime_s: float | None = None
    exit: GangExit | None = None
    has_more: bool = False
    reports_after: int = 0
    log_offset: int = 0

    @property
    def is_over(self) -> bool:
        """True once it has ended and all it said is taken."""
        return self.state is GangState.ENDED and not self.has_more

    def take(self, seen: ShardSeen, offset_s: float) -> None:
        """What its node says; `offset_s` is what the node's boottime is ahead of ours."""
        self.is_known = True
        self.state, self.exit, self.has_more = seen.state, seen.exit, seen.has_more
        if self.started_boottime_s is None and seen.started_node_boottime_s is not None:
            self.started_boottime_s = seen.started_node_boottime_s - offset_s
        if self.ended_boottime_s is None and seen.ended_node_boottime_s is not None:
            self.ended_boottime_s = seen.ended_node_boottime_s - offset_s
        self.reports_after = max([self.reports_after, *(report.sequence for report in seen.reports)])
        self.log_offset = seen.log_offset

    def lose(self, message: str) -> None:
        """Nobody can speak of it any more; if its node never showed it, it did not start."""
        self.state, self.has_more = GangState.ENDED, False
        self.ended_boottime_s = self.ended_boottime_s or machine.boottime_s()
        outcome = GangOutcome.LOST if self.is_known else GangOutcome.PREEMPTED
        self.exit = GangExit(outcome=outcome, message=message)


@dataclass(slots=True, kw_only=True)
class RayGang:
    """A gang from its launch until it is forgotten. `state` moves only forward: WAITING, RUNNING, ENDED."""

    instruction: LaunchGang
    directory: Path
    lease_boottime_s: float
    state: GangState = GangState.WAITING
    is_stopping: bool = False
    reason: str = ""
    parts: dict[str, Part] = field(default_factory=dict)  # by node; none while it waits
    exit: GangExit | None = None
    ended_boottime_s: float | None = None
    reports: deque[Report] = field(default_factory=lambda: deque(maxlen=REPORTS_KEPT))
    fresh: list[Report] = field(default_factory=list)  # not handed over yet
    remembered_boottime_s: float = 0.0

    @property
    def key(self) -> GangKey:
        """Job and token."""
        return self.instruction.job_id, self.instruction.token

    @property
    def group_name(self) -> str:
        """Name of its placement group."""
        return f"gavel/{self.instruction.job_id}/{self.instruction.token}"

    @property
    def started_boottime_s(self) -> float | None:
        """When the last rank began to execute; None before that."""
        starts = [part.started_boottime_s for part in self.parts.values()]
        known = [at_s for at_s in starts if at_s is not None]
        return max(known) if starts and len(known) == len(starts) else None

    # --- files: a restarted service finds it again, even while it only waits ---

    def remember(self, now_s: float) -> None:
        """Keep what the next service needs: all of it that cannot be asked of the nodes. Raises OSError."""
        self.directory.mkdir(mode=0o700, exist_ok=True)  # not what leads there: that may be ours no more
        expires_at_s = now_s + self.lease_boottime_s - machine.boottime_s()
        said = {
            "instruction": asdict(self.instruction),
            "lease_expires_at_s": expires_at_s,
            "is_stopping": self.is_stopping,
            "exit": asdict(self.exit) if self.exit else None,
            "parts": {
                node: {"launch": asdict(part.launch), "log_offset": part.log_offset}
                for node, part in self.parts.items()
            },
        }
        machine.write_json(str(self.directory / "gang.json"), said)
        self.remembered_boottime_s = machine.boottime_s()

    def forget(self) -> None:
        """Nothing is kept of it here but its log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- orders ---

    def extend(self, lease_boottime_s: float) -> bool:
        """Move the lease end later; False if it is over, was told to stop, or lasts longer already."""
        is_live = self.state is not GangState.ENDED and not self.is_stopping
        if not (is_live and machine.boottime_s() < self.lease_boottime_s < lease_boottime_s):
            return False
        self.lease_boottime_s = lease_boottime_s
        return True

    def stop(self, reason: str) -> None:
        """A running gang is told to end in good order; a waiting one has ended."""
        if self.state is GangState.WAITING:
            self.end(GangExit(outcome=GangOutcome.PREEMPTED, message=reason or "stopped before it started"))
        elif self.state is GangState.RUNNING and not self.is_stopping:
            self.is_stopping, self.reason = True, reason

    def end(self, exit_: GangExit) -> None:
        """It is over."""
        self.exit, self.state = exit_, GangState.ENDED
        self.ended_boottime_s = machine.boottime_s()

    # --- watching ---

    def take(self, node: str, seen: ShardSeen, offset_s: float) -> None:
        """What one node says of its part: state, and reports that are new to us."""
        part = self.parts.get(node)
        if part is None or part.is_over:
            return
        self.fresh += [report for report in seen.reports if report.sequence > part.reports_after]
        part.take(seen, offset_s)

    def look(self, grace_s: float, gone: Mapping[str, str], may_speak: Callable[[str], bool]) -> list[Part]:
        """1 parts that nobody can speak of are lost, 2 one that failed stops the others, 3 when all are over, so is it.

        `gone`: nodes that Ray has lost, and the story of it; `may_speak`: whether a silent node may yet tell. Returns
        the parts lost just now whose lease is not over: where only the network is cut, they may still run.
        """
        if self.state is not GangState.RUNNING:
            return []
        now_s, doubtful = machine.boottime_s(), []
        for part in self.parts.values():
            is_past = now_s > part.lease_boottime_s + grace_s + LOST_MARGIN_S
            is_lost = part.node in gone or (is_past and not may_speak(part.node))
            if part.state is not GangState.ENDED and is_lost:
                doubtful += [] if is_past else [part]
                part.lose(gone.get(part.node, f"node {part.node} did not say how it ended"))
        if any(_failed(part.exit) for part in self.parts.values()):
            self.is_stopping, self.reason = True, self.reason or "another part of the gang failed"
        if all(part.is_over for part in self.parts.values()):
            self.end(self._verdict())
            self.ended_boottime_s = max(part.ended_boottime_s or 0.0 for part in self.parts.values())
        return doubtful

    def _verdict(self) -> GangExit:
        """The first part that failed speaks for the gang; else one that was preempted; else rank 0's."""
        parts = sorted(self.parts.values(), key=lambda part: part.ended_boottime_s or 0.0)
        failed = [part.exit for part in parts if _failed(part.exit)]
        preempted = [part.exit for part in parts if part.exit and part.exit.outcome is GangOutcome.PREEMPTED]
        first = min(self.parts.values(), key=lambda part: part.launch.ranks[0])
        chosen = next(iter((*failed, *preempted)), first.exit)
        assert chosen is not None, "a part that is over says how"
        tail = "" if first.exit is None else first.exit.log_tail
        return replace(chosen, log_tail=chosen.log_tail or tail)


def _failed(exit_: GangExit | None) -> bool:
    """True for an end that the other parts cannot go on without."""
    if exit_ is None or exit_.outcome is GangOutcome.PREEMPTED:
        return False
    return exit_.outcome is not GangOutcome.EXITED or exit_.exit_code != 0


def read_gang(directory: Path, now_s: float) -> RayGang | None:
    """The gang that an earlier service kept there, its parts as unknown as they are; None if it is not whole."""
    said = read_object(directory / "gang.json")
    if said is None:
        return None
    lease_boottime_s = machine.boottime_s() + said["lease_expires_at_s"] - now_s
    gang = RayGang(instruction=launch_from(said["instruction"]), directory=directory, lease_boottime_s=lease_boottime_s)
    gang.is_stopping = said["is_stopping"]
    if said["exit"]:
        gang.end(GangExit(**{**said["exit"], "outcome": GangOutcome(said["exit"]["outcome"])}))
    for node, part in said["parts"].items():
        launch = launch_of(part["launch"])
        gang.parts[node] = Part(node=node, launch=launch, lease_boottime_s=lease_boottime_s, lease_node_boottime_s=0.0)
        gang.parts[node].log_offset = part["log_offset"]
        gang.state = GangState.ENDED if gang.exit else GangState.RUNNING
    return gang
