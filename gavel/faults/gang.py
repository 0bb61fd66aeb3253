"""The program of a gang over its nodes: it trains while every part is there, saves, and ends."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gavel.backends.lease_rules import CHECKPOINTED_EXIT_CODE
from gavel.backends.nodes.protocol import ShardLaunch
from gavel.faults.disk import CheckpointDisk
from gavel.faults.scenario import Behaviour, Program
from gavel.faults.schedule import Schedule
from gavel.types.environment import PLAN
from gavel.types.regions import plain_type

if TYPE_CHECKING:
    from gavel.faults.shard import SimulatedShard

STARTUP_S = 0.5
PEER_LOST_S = 1.0  # until a rank notices that another one has gone
REPORT_EVERY_S = 9.0
FAILS_AT = 0.4  # the part of its steps after which a program that fails does so
ENDS_ONE = 1
FORGED = (b'{"sequence": 9, "kind": "checkpoint", "step": 1e9}', b"not json", b'{"kind": "finished"}', b"[" * 40)


class GangRun:
    """One gang. Its parts call it when they start, are signalled, or are gone; it ends their ranks."""

    def __init__(self, launch: ShardLaunch, program: Program, schedule: Schedule, disk: CheckpointDisk) -> None:
        instruction = launch.instruction
        self.key = launch.key
        self._program = program
        self._schedule, self._disk = schedule, disk
        self._nodes = set(launch.node_of_rank)
        self._ready: dict[str, SimulatedShard] = {}  # parts whose ranks have started
        plan = instruction.env.get(PLAN, "")
        kind = plain_type(instruction.accelerator_type)
        self._rate = program.steps_per_s(kind, len(instruction.worker_ids), plan)
        self._ranks = len(instruction.worker_ids)
        self._fallen_back: dict[str, str] = {}  # what is reported of a checkpoint that could not be loaded
        self._accepted = instruction.checkpoint
        self._steps = float(instruction.start_step)
        self._saved = instruction.start_step
        self._reported = instruction.start_step
        self._sequence, self._reported_at_s = 0, 0.0
        self._since_s: float | None = None  # it trains since then
        self._version = 0  # of what is scheduled
        self._is_stopping = False
        self._is_over = False
        self._reports: list[bytes] = []

    # --- what the parts say ---

    def starts(self, shard: "SimulatedShard") -> None:
        """Take a part whose supervisor has started its ranks."""
        self._schedule.after(STARTUP_S, lambda: self._joins(shard))

    def _joins(self, shard: "SimulatedShard") -> None:
        if not shard.has_ranks or self._is_over:
            return
        self._ready[shard.node_name] = shard
        if self._ready.keys() == self._nodes and self._begins():
            self._report("progress", self._whole_steps(), more={"startup_s": STARTUP_S, **self._fallen_back})
            self.resume()

    def signalled(self) -> None:
        """Save and end all ranks, as the runtime does when one of them is asked to stop."""
        if self._program.behaviour is Behaviour.IGNORES_LEASE or self._is_stopping or self._is_over:
            return
        self._is_stopping = True
        is_frozen = self._is_frozen()
        self.pause()
        if not is_frozen:
            self._schedule.after(self._disk.write_s if self._is_unsaved() else 0.0, self._stop)

    def _stop(self) -> None:
        if self._is_over or self._is_frozen():
            return
        self._save()
        self._exit(CHECKPOINTED_EXIT_CODE)

    @property
    def is_ready(self) -> bool:
        """Return True while its program works, as a replica's check finds out."""
        return self._since_s is not None

    def part_is_gone(self, shard: "SimulatedShard") -> None:
        """Take note that a part has no ranks any more: the others notice that soon."""
        self.pause()
        self._ready.pop(shard.node_name, None)
        if not self._is_over:
            self._schedule.after(PEER_LOST_S, self._loses_peer)

    def _loses_peer(self) -> None:
        if not self._is_over:
            self._exit(ENDS_ONE)

    def reports_of(self) -> list[bytes]:
        """Return the lines of the reports that were written so far; progress is reported when somebody asks."""
        if self._since_s is not None and self._schedule.now_s - self._reported_at_s >= REPORT_EVERY_S:
            self._advance()
            self._report("progress", self._whole_steps())
        return self._reports

    # --- training ---

    def pause(self) -> None:
        """Train no more for now: a part hangs, stops or is gone."""
        self._advance()
        self._since_s = None
        self._version += 1

    def resume(self) -> None:
        """Train on, if every part is there and none hangs."""
        is_whole = self._ready.keys() == self._nodes and not self._is_frozen()
        if is_whole and not self._is_over and not self._is_stopping and self._since_s is None:
            self._since_s = self._schedule.now_s
            self._plan()

    def _is_frozen(self) -> bool:
        return any(shard.is_frozen for shard in self._ready.values())

    def _plan(self) -> None:
        """Schedule the next checkpoint, the end of the steps, or the failure, whichever comes first."""
        self._version += 1
        version, program = self._version, self._program
        if not program.steps:
            return
        goal = program.steps
        if program.behaviour in (Behaviour.EXITS_1, Behaviour.LEAVES_EARLY):
            goal = max(1, int(program.steps * FAILS_AT))
        remaining_s = max(0.0, (goal - self._steps) / self._rate) + 1e-6
        saves_in_s = program.checkpoint_every_s
        act = self._reaches_goal if remaining_s <= saves_in_s else self._saves
        self._schedule.after(min(remaining_s, saves_in_s), lambda: act() if version == self._version else None)

    def _saves(self) -> None:
        self._advance()
        self._forge()
        version = self._version

        def done() -> None:
            if version == self._version and not self._is_over:
                self._save()
                self._plan()

        self._schedule.after(self._disk.write_s, done)

    def _reaches_goal(self) -> None:
        self.pause()
        match self._program.behaviour:
            case Behaviour.EXITS_1:
                self._exit(ENDS_ONE)
            case Behaviour.LEAVES_EARLY:
                self._save()
                self._exit(0)
            case _:
                self._schedule.after(self._disk.write_s, self._finishes)

    def _finishes(self) -> None:
        if not self._is_over and not self._is_frozen():
            self._steps = float(self._program.steps)
            self._save("finished")
            self._exit(0)

    def _advance(self) -> None:
        if self._since_s is not None:
            self._steps = min(
                self._steps + (self._schedule.now_s - self._since_s) * self._rate, float(self._program.steps)
            )
            self._since_s = self._schedule.now_s

    def _whole_steps(self) -> int:
        return int(self._steps + 1e-6)

    def _is_unsaved(self) -> bool:
        return self._whole_steps() > self._saved

    def _exit(self, code: int) -> None:
        self._is_over = True
        self._version += 1
        for shard in list(self._ready.values()):
            shard.ranks_exit(code)

    # --- checkpoints and reports ---

    def _begins(self) -> bool:
        """Begin, under a plan that works, at the accepted checkpoint; return False if the gang has failed."""
        if not self._rate:
            self._exit(ENDS_ONE)
            return False
        return self._restore()

    def _restore(self) -> bool:
        """Begin at the accepted checkpoint; a single rank falls back to the one before, a gang of several fails."""
        if self._accepted is None:
            return True
        name = self._accepted
        step = self._disk.read(self.key[0], name)
        if step is None and self._ranks == 1:
            name = self._disk.before(self.key[0], name)
            step = self._disk.read(self.key[0], name) if name else None
            self._fallen_back = {"note": f"{self._accepted} could not be loaded", "restored": name}
        if step is None:
            self._exit(ENDS_ONE)
            return False
        self._steps, self._saved, self._reported = float(step), step, step
        return True

    def _save(self, kind: str = "checkpoint") -> None:
        step = self._whole_steps()
        if not self._is_unsaved() and kind == "checkpoint":
            return
        name = self._disk.write(*self.key, step)
        if name is not None:
            self._saved = step
            self._report(kind, step, more={"checkpoint": name})
        elif kind == "finished":
            self._report(kind, step)

    def _report(self, kind: str, step: int, more: Mapping[str, Any] | None = None) -> None:
        if step < self._reported or (kind == "progress" and step == self._reported and self._sequence):
            return
        steps, self._reported, self._reported_at_s = step - self._reported, step, self._schedule.now_s
        self._sequence += 1
        line = {"sequence": self._sequence, "kind": kind, "step": step, "steps": steps, "seconds": steps / self._rate}
        self._reports.append(json.dumps({**line, **(more or {})}).encode())

    def _forge(self) -> None:
        if self._program.behaviour is Behaviour.FORGES:
            self._reports += FORGED
            step = self._reported + 1
            self._sequence += 1
            name = f"{self.key[1]}-{step}"
            lie = {"sequence": self._sequence, "kind": "checkpoint", "step": step, "checkpoint": name}
            self._reports.append(json.dumps(lie).encode())
