"""Begins and ends the faults of a scenario."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from gavel.faults.disk import CheckpointDisk
from gavel.faults.network import Network, Weather
from gavel.faults.node import SimulatedNode
from gavel.faults.regions import HeldUp
from gavel.faults.scenario import Behaviour, Fault, FaultKind, Scenario
from gavel.faults.schedule import Schedule
from gavel.faults.service import ServiceProcess

CONDEMNED_AFTER_S = 6.0  # a program that deletes its folder does so this often
ARMED = (
    FaultKind.CRASH_BEFORE_COMMIT,
    FaultKind.CRASH_AFTER_COMMIT,
    FaultKind.CRASH_IN_EXCHANGE,
    FaultKind.PAUSE_BEFORE_COMMIT,
    FaultKind.PAUSE_AFTER_COMMIT,
)
WRITE_S = 0.2


class Injection:
    """The faults of one run. `is_active` until `calm`."""

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        nodes: Sequence[SimulatedNode],
        networks: Mapping[str, Network],
        disks: Collection[CheckpointDisk],
    ) -> None:
        self._scenario, self._schedule = scenario, schedule
        self._nodes, self._networks, self._disks = nodes, networks, disks
        self.is_active = True
        self._until_s: dict[FaultKind, float] = {}  # of faults that are states of the world
        self._held_up = dict.fromkeys(networks, HeldUp())
        self._solver_fault = 0

    def schedule_all(self, processes: list[ServiceProcess]) -> None:
        """Schedule every fault of the scenario."""
        for fault in self._scenario.faults:
            self._schedule.at(fault.at_s, partial(self._begin, fault, processes))
        if any(program.behaviour is Behaviour.DELETES_FOLDER for program in self._scenario.programs):
            self._schedule.after(CONDEMNED_AFTER_S, self._delete_folders)

    def calm(self, processes: list[ServiceProcess]) -> None:
        """End every fault."""
        self.is_active = False
        self._until_s.clear()
        self._held_up = dict.fromkeys(self._networks, HeldUp())
        self._set_disks(WRITE_S)
        for network in self._networks.values():
            network.calm()
        for node in self._nodes:
            if not node.is_up or node.has_lost_one:
                node.has_lost_one = False
                node.boot() if not node.is_up else node.join_again()
        for process in processes:
            process.calm()
            process.start()

    # --- states of the world ---

    def is_store_down(self) -> bool:
        """Return True while no call to the store succeeds."""
        return self._lasts(FaultKind.STORE_DOWN)

    def is_state_folder_full(self) -> bool:
        """Return True while services can write nothing into their state folders."""
        return self._lasts(FaultKind.STATE_FOLDER_FULL)

    def loses_answer(self) -> bool:
        """Return True while answers to what was written are lost."""
        return self._lasts(FaultKind.ANSWER_LOST)

    def solver_fault(self) -> int | None:
        """Return how solvers fail now; None: they do not."""
        return self._solver_fault if self._lasts(FaultKind.SOLVER) else None

    def held_up(self, region: str) -> HeldUp:
        """Return what befalls calls to a region."""
        return self._held_up[region]

    def _lasts(self, kind: FaultKind) -> bool:
        return self._schedule.now_s < self._until_s.get(kind, 0.0)

    # --- faults ---

    def _begin(self, fault: Fault, processes: list[ServiceProcess]) -> None:
        if not self.is_active:
            return
        self._schedule.note(f"fault {fault.kind} {fault.target} {fault.lasts_s:g} {fault.amount:g}")
        until_s = self._schedule.now_s + fault.lasts_s
        if fault.kind in self._of_processes:
            self._of_processes[fault.kind](fault, processes[fault.target], until_s)
        elif fault.kind in ARMED:
            processes[fault.target].strike(fault.kind, until_s)
        elif fault.kind in self._of_nodes:
            self._of_nodes[fault.kind](fault, until_s)
        else:
            self._of_the_world(fault, until_s)

    @property
    def _of_processes(self) -> Mapping[FaultKind, Callable[[Fault, ServiceProcess, float], None]]:
        return {
            FaultKind.CRASH: self._crash,
            FaultKind.PAUSE: lambda _, process, until_s: process.suspend(until_s),
            FaultKind.CLOCK_STEP: lambda fault, process, _: process.clock.step(fault.amount),
            FaultKind.BRIDGE_DOWN: lambda fault, process, until_s: process.lose_bridge(self._hit(fault), until_s),
        }

    def _crash(self, fault: Fault, process: ServiceProcess, until_s: float) -> None:
        process.kill()
        self._schedule.at(until_s, process.start)

    @property
    def _of_nodes(self) -> Mapping[FaultKind, Callable[[Fault, float], None]]:
        nodes = self._nodes
        return {
            FaultKind.PARTITION: self._cut,
            FaultKind.DELAY: lambda fault, until_s: self._weather_of(fault).be_late(until_s, fault.amount),
            FaultKind.DUPLICATE: lambda fault, until_s: self._weather_of(fault).come_twice(until_s, fault.amount),
            FaultKind.CALLS_LATE: lambda fault, until_s: self._hold_up(fault, calls_until_s=until_s),
            FaultKind.ANSWERS_LATE: lambda fault, until_s: self._hold_up(fault, answers_until_s=until_s),
            FaultKind.REBOOT: self._reboot,
            FaultKind.ACCELERATOR_LOST: self._lose_accelerator,
            FaultKind.AGENT_CRASH: lambda fault, _: nodes[fault.target].restart_agent(),
            FaultKind.SUPERVISOR_PAUSE: lambda fault, until_s: nodes[fault.target].pause_supervisors(until_s),
            FaultKind.HANG: lambda fault, until_s: nodes[fault.target].freeze(until_s),
        }

    def _weather_of(self, fault: Fault) -> Weather:
        node = self._nodes[fault.target]
        return self._networks[node.region].weather[node.name]

    def _hit(self, fault: Fault) -> str:
        """Return the region that is hit by a fault of a whole cluster."""
        regions = [*self._networks]
        return regions[int(fault.amount) % len(regions)]

    def _hold_up(self, fault: Fault, **until_s: float) -> None:
        region = self._nodes[fault.target].region
        self._held_up[region] = replace(self._held_up[region], **until_s)

    def _cut(self, fault: Fault, until_s: float) -> None:
        node = self._nodes[fault.target]
        network = self._networks[node.region]
        network.cut(node)
        self._schedule.at(until_s, lambda: network.heal(node))

    def _reboot(self, fault: Fault, until_s: float) -> None:
        node = self._nodes[fault.target]
        if node.is_up:
            node.lose_power()
            self._schedule.at(until_s, lambda: None if node.is_up else node.boot())

    def _lose_accelerator(self, fault: Fault, until_s: float) -> None:
        """Let a node join again with one less, and later with all; what ran there goes on unless it is booted."""
        self._has_one_less(fault, True)
        self._schedule.at(until_s, lambda: self._has_one_less(fault, False))

    def _has_one_less(self, fault: Fault, is_lost: bool) -> None:
        node = self._nodes[fault.target]
        if node.has_lost_one is is_lost:
            return
        node.has_lost_one = is_lost
        if node.is_up and fault.amount:
            node.lose_power()
            node.boot()
        elif node.is_up:
            node.join_again()

    def _of_the_world(self, fault: Fault, until_s: float) -> None:
        self._until_s[fault.kind] = until_s
        if fault.kind is FaultKind.SOLVER:
            self._solver_fault = int(fault.amount)
        if fault.kind is FaultKind.CONTROL_PLANE:
            self._networks[self._hit(fault)].restart_control_plane(until_s)
        if fault.kind in (FaultKind.DISK_FULL, FaultKind.DISK_SLOW, FaultKind.DISK_TORN):
            self._set_disks(fault.amount)
            self._schedule.at(until_s + 1e-6, lambda: self._set_disks(fault.amount))

    def _set_disks(self, slow_s: float) -> None:
        for disk in self._disks:
            disk.is_full = self._lasts(FaultKind.DISK_FULL)
            disk.is_torn = self._lasts(FaultKind.DISK_TORN)
            disk.write_s = slow_s if self._lasts(FaultKind.DISK_SLOW) else WRITE_S

    def _delete_folders(self) -> None:
        """Let programs that delete their gang's folder do so; their nodes end those gangs."""
        for node in self._nodes:
            for shard in list(node.shards.values()):
                program = self._scenario.programs[int(shard.launch.instruction.argv[1])]
                if shard.is_live and program.behaviour is Behaviour.DELETES_FOLDER:
                    shard.condemn("its folder was removed or replaced")
        self._schedule.after(CONDEMNED_AFTER_S, self._delete_folders)
