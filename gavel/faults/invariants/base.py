"""What an invariant is given, and when it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gavel.config import Settings
from gavel.faults.crash_points import CrashCounter
from gavel.faults.disk import CheckpointDisk
from gavel.faults.invariants.violation import Violation
from gavel.faults.ledger import Ledger
from gavel.faults.network import Network
from gavel.faults.node import SimulatedNode
from gavel.faults.scenario import Scenario
from gavel.faults.schedule import Schedule
from gavel.faults.shard import SimulatedShard
from gavel.ports import Changes, Snapshot
from gavel.store.samples import SimulationStore
from gavel.types import Job, JobId


@dataclass(slots=True, kw_only=True)
class Evidence:
    """The whole of the simulated world. `jobs` are as last committed by a scheduler, ended ones included."""

    scenario: Scenario
    settings: Settings
    schedule: Schedule
    store: SimulationStore
    ledger: Ledger
    nodes: Sequence[SimulatedNode]
    networks: Mapping[str, Network]  # by region
    disks: Mapping[str, CheckpointDisk]
    crashes: CrashCounter
    jobs: dict[JobId, Job] = field(default_factory=dict)

    def can_read(self, job_id: JobId, checkpoint: str) -> bool:
        """Return whether a checkpoint can be read on any disk."""
        return any(disk.read(job_id, checkpoint) is not None for disk in self.disks.values())

    def has(self, job_id: JobId, checkpoint: str) -> bool:
        """Return whether a checkpoint is on any disk, readable or not."""
        return any(disk.exists(job_id, checkpoint) for disk in self.disks.values())

    def running(self) -> list[tuple[SimulatedNode, SimulatedShard]]:
        """Return every part of a gang whose ranks are alive now, with its node."""
        return [(node, shard) for node in self.nodes for shard in node.shards.values() if shard.has_ranks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a scheduler: what it wrote, and the jobs of it before and after. `leader`: its generation."""

    process: int
    leader: int
    version: int
    changes: Changes
    before: dict[JobId, Job]
    after: dict[JobId, Job]


class Invariant:
    """Something that must hold. Each method is asked at its time, and raises Violation."""

    name = ""

    def after_look(self, evidence: Evidence, snapshot: Snapshot) -> None:
        """Check what a scheduler has seen of the store."""

    def after_commit(self, evidence: Evidence, commit: Commit) -> None:
        """Check what a scheduler has committed."""

    def after_change(self, evidence: Evidence) -> None:
        """Check what runs, after a part of a gang has started or ended."""

    def at_end(self, evidence: Evidence) -> None:
        """Check what is left after everything has ended."""

    def fail(self, message: str) -> Violation:
        """Return the error to raise."""
        return Violation(self.name, message)
