"""A gang over several nodes as the service knows it: the part on each node, and the state of the whole."""

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from gavel.backends import machine
from gavel.backends.folder import StateFolder
from gavel.backends.folder_backend import REPORTS_KEPT
from gavel.backends.gang import GangKey
from gavel.backends.gang_records import SPOILT, launch_from, record_of
from gavel.backends.launch import Preparation
from gavel.backends.lease_rules import CHECKPOINTED_EXIT_CODE, LEASE, extends
from gavel.backends.nodes.protocol import ShardLaunch, ShardSeen, launch_of
from gavel.errors import BackendUnavailable, LimitReached, NotFound
from gavel.ports import LaunchGang
from gavel.types import GangExit, GangOutcome, GangState, JobId, Load, Report
from gavel.types.rounds import gone_by_s

log = structlog.get_logger("gavel.nodes")

UNTOLD_LIMIT_S = 3600.0  # seconds after the end of a part for its reports, checkpoints and output files


@dataclass(slots=True, kw_only=True)
class Part:
    """The part of a gang on one node. `lease_boottime_s`: the latest lease end ever sent to it, in our boottime.

    `live_boottime_s` is when the node last reported that it runs: None if it never did, 0 before a restart of ours.
    `is_foreign`: another service has launched it, and only its node knows its accelerators: it is not launched again.
    """

    node: str
    launch: ShardLaunch
    lease_boottime_s: float
    lease_node_boottime_s: float  # the same instant, in the boottime of the node
    boot_id: str | None = None  # the boot of the node by whose clock that is; None: not noted
    is_known: bool = False  # the node has reported it at least once
    is_foreign: bool = False
    state: GangState = GangState.WAITING
    started_boottime_s: float | None = None
    ended_boottime_s: float | None = None
    live_boottime_s: float | None = None
    is_silent: bool = False  # it was given up, since its node does not report
    exit: GangExit | None = None
    is_ready: bool = False
    endpoint: str = ""
    load: Load | None = None
    has_more: bool = False
    reports_after: int = 0
    log_offset: int = 0
    samples_offset: int = 0

    @property
    def untold_until_boottime_s(self) -> float:
        """Return until when a part that has ended may take to hand over what it left."""
        return (self.ended_boottime_s or 0.0) + UNTOLD_LIMIT_S

    @property
    def is_over(self) -> bool:
        """Return True once it has ended and all its reports are taken."""
        return self.state is GangState.ENDED and not self.has_more

    @property
    def failed_boottime_s(self) -> float:
        """Return when it failed, to tell cause from effect: a part that was lost, when it was last known to run."""
        is_lost = self.is_silent or (self.exit is not None and self.exit.outcome is GangOutcome.LOST)
        return self.live_boottime_s if is_lost and self.live_boottime_s is not None else self.ended_boottime_s or 0.0

    def take(self, seen: ShardSeen, offset_s: float) -> None:
        """Take what the node reports; `offset_s` is the node's boottime minus ours, in seconds."""
        self.is_known = True
        if seen.state is not GangState.ENDED:
            self.live_boottime_s = machine.boottime_s()
            self._learn_lease(seen.lease_node_boottime_s, offset_s)
        self.state, self.exit, self.has_more = seen.state, seen.exit, seen.has_more
        self.is_ready, self.endpoint, self.load = seen.is_ready, seen.endpoint, seen.load
        if self.started_boottime_s is None and seen.started_node_boottime_s is not None:
            self.started_boottime_s = seen.started_node_boottime_s - offset_s
        if self.ended_boottime_s is None and seen.ended_node_boottime_s is not None:
            self.ended_boottime_s = seen.ended_node_boottime_s - offset_s
        self.reports_after = max([self.reports_after, *(report.sequence for report in seen.reports)])
        self.log_offset, self.samples_offset = seen.log_offset, seen.samples_offset

    def _learn_lease(self, node_boottime_s: float, offset_s: float) -> None:
        """Take a lease that ends later than any we have sent: another service has sent it."""
        if node_boottime_s > self.lease_node_boottime_s:
            self.lease_node_boottime_s = node_boottime_s
            self.lease_boottime_s = max(self.lease_boottime_s, node_boottime_s - offset_s)

    def lose(self, message: str, *, is_absent: bool = False) -> None:
        """End the part as lost; as preempted if it `is_absent` on its node, or was never seen by who launched it."""
        self.state, self.has_more, self.is_silent = GangState.ENDED, False, True
        self.ended_boottime_s = self.ended_boottime_s or machine.boottime_s()
        may_have_run = self.is_known or (self.live_boottime_s is not None and not is_absent)
        self.exit = GangExit(outcome=GangOutcome.LOST if may_have_run else GangOutcome.PREEMPTED, message=message)


@dataclass(slots=True, kw_only=True)
class NodesGang:
    """A gang from its launch until it is forgotten. `state` moves only forward: WAITING, RUNNING, ENDED.

    `secrets`: the values that its nodes are told; None: they are not read yet, or cannot be. `uid`: that its programs
    run as there; 0: that of the node's agent.
    """

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
    fresh: list[Report] = field(default_factory=list)  # not returned to the scheduler yet
    remembered_boottime_s: float = 0.0
    save_asked_s: float = 0.0  # when a checkpoint was asked for last; 0: none was
    secrets: Mapping[str, str] | None = field(default=None, repr=False)
    uid: int = 0

    @property
    def key(self) -> GangKey:
        """Return job and generation."""
        return self.instruction.job_id, self.instruction.generation

    @property
    def group_name(self) -> str:
        """Return the name of its group in the cluster."""
        return f"gavel/{self.instruction.job_id}/{self.instruction.generation}"

    @property
    def started_boottime_s(self) -> float | None:
        """Return when the last rank began to execute; None before that."""
        starts = [part.started_boottime_s for part in self.parts.values()]
        started = [at_s for at_s in starts if at_s is not None]
        return max(started) if starts and len(started) == len(starts) else None

    @property
    def endpoint(self) -> str:
        """Return HOST:PORT of the replica of a service that is ready; rank 0's node says it; "" if none is."""
        return next((part.endpoint for part in self.parts.values() if part.endpoint), "")

    @property
    def load(self) -> Load | None:
        """Return the load of the replica, in the same way; None if nothing is known of it."""
        return next((part.load for part in self.parts.values() if part.load), None)

    @property
    def is_doubtful(self) -> bool:
        """Return True for a gang of an earlier service, none of whose parts any node has reported to this one."""
        parts = self.parts.values()
        return bool(parts) and all(part.live_boottime_s is not None and not part.is_known for part in parts)

    def never_arrived(self, has_answered: Callable[[str], bool]) -> bool:
        """Return True if an earlier service wrote the launch down, and each node has answered that it has no part.

        Those nodes refuse what that service has sent them, should it arrive now.
        """
        is_live = self.state is GangState.RUNNING and not self.is_stopping
        may_start = is_live and machine.boottime_s() < self.lease_boottime_s and self.is_doubtful
        return may_start and all(not part.is_foreign and has_answered(part.node) for part in self.parts.values())

    # --- files: a restarted service finds it again, even while it only waits ---

    def remember(self, now_s: float) -> None:
        """Store what the next service needs and cannot ask the nodes for. Raises OSError."""
        self.directory.mkdir(mode=0o700, exist_ok=True)  # never its parents: a newer service may have removed our link
        expires_at_s = now_s + self.lease_boottime_s - machine.boottime_s()
        record = {
            "instruction": record_of(self.instruction),
            "lease_expires_at_s": expires_at_s,
            "is_stopping": self.is_stopping,
            "exit": record_of(self.exit) if self.exit else None,
            "parts": {
                node: {
                    "launch": record_of(part.launch),
                    "log_offset": part.log_offset,
                    "samples_offset": part.samples_offset,
                    "is_foreign": part.is_foreign,
                }
                for node, part in self.parts.items()
            },
        }
        machine.write_json(str(self.directory / "gang.json"), record)
        self.remembered_boottime_s = machine.boottime_s()

    def forget(self) -> None:
        """Delete everything of the gang here but its log."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- orders ---

    def extend(self, lease_boottime_s: float) -> bool:
        """Move the lease end later; return False if it is over, is stopping, or lasts longer already."""
        is_live = self.state is not GangState.ENDED and not self.is_stopping
        if not (is_live and extends(machine.boottime_s(), self.lease_boottime_s, lease_boottime_s)):
            return False
        self.lease_boottime_s = lease_boottime_s
        return True

    def makes_room(self, other: JobId | None) -> bool:
        """Share its workers with the gang of another job from now on; return whether it did not before."""
        if other is None or self.instruction.shares_with is not None:
            return False
        self.instruction = replace(self.instruction, shares_with=other)
        return True

    @property
    def lacks_secrets(self) -> bool:
        """Return True while the job has secrets whose values are not here."""
        return bool(self.instruction.secrets) and self.secrets is None

    def read_of_user(self, preparation: Preparation) -> None:
        """Read secrets and uid of the job's user, to be told to its nodes; end a gang that cannot have them."""
        try:
            self.secrets = preparation.secrets_of(self.instruction.user, self.instruction.secrets)
            self.uid = preparation.uid_of(self.instruction.user)
        except (NotFound, LimitReached) as problem:
            self.end(GangExit(outcome=GangOutcome.NOT_STARTED, message=str(problem)))
        except (OSError, BackendUnavailable) as problem:  # the service's fault, not the job's: it may try again
            self.end(GangExit(outcome=GangOutcome.LOST, message=f"cannot start: {problem}"))

    def begin(self, parts: Mapping[str, Part]) -> None:
        """Take the parts that it is divided into: from now on its nodes are to run them."""
        self.parts = {node: replace(each, launch=replace(each.launch, uid=self.uid)) for node, each in parts.items()}
        self.state = GangState.RUNNING

    def stop(self, reason: str) -> None:
        """Ask a running gang to end in good order; end a waiting one."""
        if self.state is GangState.WAITING:
            self.end(GangExit(outcome=GangOutcome.PREEMPTED, message=reason or "stopped before it started"))
        elif self.state is GangState.RUNNING and not self.is_stopping:
            self.is_stopping, self.reason = True, reason

    def end(self, exit_: GangExit) -> None:
        """Set the exit: the gang is over."""
        self.exit, self.state = exit_, GangState.ENDED
        self.ended_boottime_s = machine.boottime_s()

    # --- watching ---

    def take(self, node: str, seen: ShardSeen, offset_s: float) -> None:
        """Take what one node reports of its part: state, and reports that are new."""
        part = self.parts.get(node)
        if part is None or part.is_over:
            return
        self.fresh += [report for report in seen.reports if report.sequence > part.reports_after]
        part.take(seen, offset_s)

    def adopt(
        self,
        node: str,
        launch: ShardLaunch,
        lease_boottime_s: float,
        offset_s: float,
        outdated: "NodesGang | None" = None,
    ) -> None:
        """Take the part that a node has and we did not launch, and expect the others of its gang on their nodes.

        `outdated` is the gang as we knew it before another service had it: what it wrote until then is here.
        """
        for name in dict.fromkeys(launch.node_of_rank):
            if name != node and name in self.parts:
                continue
            ranks = tuple(rank for rank, of_rank in enumerate(launch.node_of_rank) if of_rank == name)
            there = launch if name == node else replace(launch, ranks=ranks, slots=(), ports=())
            self.parts[name] = Part(
                node=name,
                launch=there,
                lease_boottime_s=lease_boottime_s,
                lease_node_boottime_s=lease_boottime_s + offset_s if name == node else 0.0,
                live_boottime_s=0.0,
                is_foreign=True,
            )
            if outdated is not None and (before := outdated.parts.get(name)) is not None:
                self.parts[name].log_offset = before.log_offset
                self.parts[name].samples_offset = before.samples_offset

    def look(
        self,
        grace_s: float,
        gone: Mapping[str, str],
        may_speak: Callable[[str], bool],
        has_answered: Callable[[str], bool],
    ) -> list[Part]:
        """1 lose parts whose node is gone, 2 stop all if a part failed, 3 end the gang once all parts are over.

        `gone`: nodes that the cluster has lost, with the reason; `may_speak`: whether a silent node may still report;
        `has_answered`: whether a node has. Returns the parts lost just now whose lease is not over: where only the
        network is cut, they may still run.
        """
        if self.state is not GangState.RUNNING:
            return []
        now_s, doubtful = machine.boottime_s(), []
        for part in self.parts.values():
            is_past = now_s > gone_by_s(part.lease_boottime_s, grace_s)
            is_lost = part.node in gone or (is_past and not may_speak(part.node))
            has_ended = part.state is GangState.ENDED
            if has_ended and not part.is_over and (part.node in gone or now_s > part.untold_until_boottime_s):
                part.lose(gone.get(part.node, f"node {part.node} did not hand over all that its gang left"))
            elif not has_ended and is_lost:
                doubtful += [] if is_past else [part]
                part.lose(gone.get(part.node, f"node {part.node} did not report how it ended"))
            elif not has_ended and part.is_foreign and not part.is_known and has_answered(part.node):
                part.lose(f"node {part.node} does not have its part", is_absent=True)
        if any(part.is_silent or _failed(part.exit) for part in self.parts.values()):
            self.is_stopping, self.reason = True, self.reason or "another part of the gang failed"
        if all(part.is_over for part in self.parts.values()):
            self.end(self._verdict())
            self.ended_boottime_s = max(part.ended_boottime_s or 0.0 for part in self.parts.values())
        return doubtful

    def _verdict(self) -> GangExit:
        """Return the exit of the first part that failed; else of one that was preempted; else of rank 0's.

        Ranks that saved since ranks on another node had to stop, or were lost, have not failed. Ranks that lose their
        peers end as they like, and where the lease ended first on another node its clock does not tell which was first.
        """
        parts = sorted(self.parts.values(), key=lambda part: part.failed_boottime_s)
        preempted = [part.exit for part in parts if part.exit and part.exit.outcome is GangOutcome.PREEMPTED]
        is_stopped = bool(preempted) or any(part.exit and part.exit.outcome is GangOutcome.LOST for part in parts)
        ended_badly = (part for part in parts if part.is_silent or _failed(part.exit))
        has_lease_ended = any(exit_.ended_by == LEASE for exit_ in preempted)
        failed = [
            part.exit
            for part in ended_badly
            if not (is_stopped and _has_saved(part.exit)) and not (has_lease_ended and _has_exited(part.exit))
        ]
        first = min(self.parts.values(), key=lambda part: part.launch.ranks[0])
        chosen = next(iter((*failed, *preempted)), first.exit)
        assert chosen is not None, "a part that is over says how"
        return replace(chosen, log_tail=chosen.log_tail or (first.exit.log_tail if first.exit else ""))


def _has_exited(exit_: GangExit | None) -> bool:
    """Return True for the exit of ranks that ended by themselves."""
    return exit_ is not None and exit_.outcome is GangOutcome.EXITED


def _has_saved(exit_: GangExit | None) -> bool:
    """Return True for the exit of ranks that were asked to stop, and saved."""
    return exit_ is not None and _has_exited(exit_) and exit_.exit_code == CHECKPOINTED_EXIT_CODE


def _failed(exit_: GangExit | None) -> bool:
    """Return True for an end after which the other parts cannot go on."""
    if exit_ is None or exit_.outcome is GangOutcome.PREEMPTED:
        return False
    return exit_.outcome is not GangOutcome.EXITED or exit_.exit_code != 0


def stored_gangs(folder: StateFolder, now_s: float) -> tuple[list[NodesGang], dict[GangKey, NodesGang]]:
    """Return the gangs that an earlier service stored there, and apart from them those whose record is out of date.

    A service with a folder of its own that has led since may have extended or ended each of them: only their nodes
    know. Such records are deleted.
    """
    read = (read_gang(folder.own(directory), now_s) for directory, _ in folder.gangs())
    gangs = [gang for gang in read if gang is not None]
    if folder.is_current:
        return gangs, {}
    for gang in gangs:
        gang.forget()
    return [], {gang.key: gang for gang in gangs}


def read_gang(directory: Path, now_s: float) -> NodesGang | None:
    """Return the gang that an earlier service stored there, its parts in unknown state; None if it is not complete."""
    record = machine.read_object(directory / "gang.json")
    if record is None:
        return None
    try:
        return _gang_of(record, directory, now_s)
    except SPOILT as problem:  # no service has written it
        log.warning("gang.refused", folder=str(directory), error=str(problem))
        return None


def _gang_of(record: Mapping[str, Any], directory: Path, now_s: float) -> NodesGang:
    lease_boottime_s = machine.boottime_s() + record["lease_expires_at_s"] - now_s
    instruction = launch_from(record["instruction"])
    gang = NodesGang(instruction=instruction, directory=directory, lease_boottime_s=lease_boottime_s)
    gang.is_stopping = record["is_stopping"] or bool(record["exit"])
    if record["exit"] and not record["parts"]:  # else its nodes, which keep them, tell its end and its reports again
        gang.end(GangExit(**{**record["exit"], "outcome": GangOutcome(record["exit"]["outcome"])}))
    for node, part in record["parts"].items():
        launch = launch_of(part["launch"])
        gang.parts[node] = Part(node=node, launch=launch, lease_boottime_s=lease_boottime_s, lease_node_boottime_s=0.0)
        gang.parts[node].live_boottime_s = 0.0
        gang.parts[node].log_offset, gang.parts[node].samples_offset = part["log_offset"], part.get("samples_offset", 0)
        gang.parts[node].is_foreign = part.get("is_foreign", False)
        gang.state = GangState.RUNNING
    return gang
