"""What a process of the service meets outside of itself: nodes, stores, disks, other processes, and what befalls it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gavel.backends.nodes.protocol import Answer, Order
from gavel.config import Settings
from gavel.faults.clocks import MachineClock
from gavel.faults.crash_points import CrashCounter
from gavel.faults.disk import CheckpointDisk
from gavel.faults.network import Network
from gavel.faults.node import SimulatedNode
from gavel.faults.regions import HeldUp
from gavel.faults.schedule import Schedule
from gavel.faults.stores import SharedStores
from gavel.ports import Changes, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is outside of a process. `run_until` lets the rest of the world go on while the process is suspended.

    `networks` and `disks` are those of each region, of "" where there are none; regions may have one disk together.
    `held_up` says what befalls calls to a region.
    """

    seed: int
    schedule: Schedule
    networks: Mapping[str, Network]
    disks: Mapping[str, CheckpointDisk]
    stores: SharedStores
    folder: Path
    settings: Settings
    within: Callable[[MachineClock, Callable[[], None]], None]
    on_node: Callable[[SimulatedNode, Order], Answer]
    run_until: Callable[[float], None]
    is_store_down: Callable[[], bool]
    loses_answer: Callable[[], bool]
    held_up: Callable[[str], HeldUp]
    solver_fault: Callable[[], int | None]
    before_commit: Callable[[], None]
    committed: Callable[[int, int, Changes, int], None]
    another_reads: Callable[[], bool]
    looked: Callable[[Snapshot], None]
    crashes: CrashCounter
