"""One run: the world of a scenario, its faults, the quiet after them, and what must hold all along."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from gavel.backends import machine
from gavel.backends.gang import GangKey
from gavel.backends.nodes.protocol import Answer, Order, ShardLaunch
from gavel.config import Settings
from gavel.faults.clients import Clients
from gavel.faults.clocks import MachineClock
from gavel.faults.crash_points import CrashCounter
from gavel.faults.disk import CheckpointDisk
from gavel.faults.gang import GangRun
from gavel.faults.injection import Injection
from gavel.faults.invariants.base import Commit, Evidence
from gavel.faults.invariants.registry import all_invariants
from gavel.faults.invariants.violation import Violation
from gavel.faults.ledger import Ledger
from gavel.faults.network import Network
from gavel.faults.node import SimulatedNode
from gavel.faults.scenario import (
    LONGEST_ROUND_S,
    MEMORY_BYTES,
    NO_CAP,
    PLENTY_H,
    ROUND_S,
    TYPES,
    Behaviour,
    ClientRequest,
    FaultKind,
    Request,
    Scenario,
)
from gavel.faults.schedule import Schedule
from gavel.faults.service import ServiceProcess
from gavel.faults.shard import SimulatedShard
from gavel.faults.stores import InMemory, OnFile, OpenStores, SharedStores
from gavel.faults.surroundings import Surroundings
from gavel.ports import Changes, Snapshot
from gavel.types import OperationState

EVENTS_MAX = 60_000
SETTLE_S = 30.0  # after the last job has ended, until nothing of it may be left
TICK_S, IDLE_TICK_S, GRACE_S = 2.5, 6.0, 2.0
LOOKS_S = 5.0  # from one look at moves between regions to the next
PAUSED_AT_MOST_S = 1.0  # into the quiet phase
TAKEN_BACK = (
    ClientRequest(at_s=0.0, kind=Request.BUDGET, amount=PLENTY_H),
    ClientRequest(at_s=0.0, kind=Request.LIMITS, amount=NO_CAP),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of a run. `violation` is None if everything held; `lines` are its trace, if it was kept."""

    seed: int
    digest: str
    events: int
    violation: Violation | None = None
    lines: tuple[str, ...] = ()


def run(
    scenario: Scenario,
    *,
    keeps_lines: bool = False,
    crashes: CrashCounter | None = None,
    open_stores: OpenStores | None = None,
) -> RunResult:
    """Return the outcome of the scenario: always the same one. `crashes` counts, and ends the process where it says.

    `open_stores` gives the stores for a seed and a folder in place of those that the scenario names.
    """
    folder = Path(mkdtemp(prefix="gavel-faults-", dir=_fast_dir()))
    stores = (open_stores or (OnFile if scenario.is_durable else InMemory))(scenario.seed, folder)
    world = World(scenario, folder, stores, crashes or CrashCounter(), keeps_lines=keeps_lines)
    try:
        with machine.boottime_from(world.boottime_s), machine.writes_unless(world.is_state_folder_full):
            violation = world.run()
    finally:
        world.close()
        shutil.rmtree(folder, ignore_errors=True)
    schedule = world.schedule
    return RunResult(
        seed=scenario.seed,
        digest=schedule.digest(),
        events=schedule.events,
        violation=violation,
        lines=tuple(schedule.lines),
    )


class World:
    """Everything there is. `clock` is that of the machine whose code runs now."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        stores: SharedStores,
        crashes: CrashCounter,
        *,
        keeps_lines: bool = False,
    ) -> None:
        self.scenario, self._crashes = scenario, crashes
        self.schedule = schedule = Schedule(keeps_lines=keeps_lines)
        self.clock = self._api_clock = MachineClock(schedule.true_s)
        self._programs: dict[tuple[str, GangKey], GangRun] = {}
        disks = _disks(scenario, folder)
        nodes = [
            SimulatedNode(index, plan, schedule, partial(self._run_of, plan.region), self._changed)
            for index, plan in enumerate(scenario.nodes)
        ]
        networks = {
            region: Network(f"{scenario.seed}{region}", schedule, [each for each in nodes if each.region == region])
            for region in scenario.regions
        }
        self._stores = stores
        self._ledger = Ledger()
        settings = _settings(scenario.leave_after_s, *scenario.regions).model_copy(
            update={"policy": scenario.policy, "state_dir": folder, **scenario.settings}
        )
        self._evidence = Evidence(
            scenario=scenario,
            settings=settings,
            schedule=schedule,
            store=self._stores.requests,
            ledger=self._ledger,
            nodes=nodes,
            networks=networks,
            disks=disks,
            crashes=crashes,
        )
        self._invariants = all_invariants()
        self._has_changed = False
        self._commits = 0
        self._readers = Random(f"readers-{scenario.seed}")  # noqa: S311 - not for secrets
        self._looked_after = (-1, 0)  # commits and acknowledgements at the last look whether all has ended
        self._injection = Injection(scenario, schedule, nodes, networks, [*disks.values()])
        around = self._surroundings(folder, settings)
        ended: set[str] = set()
        self._processes = [
            ServiceProcess(index, around, rate=rate, sees_others=scenario.shares_folder, ended=ended)
            for index, rate in zip(range(scenario.processes), scenario.process_rates, strict=True)
        ]
        self._clients = Clients(
            self._stores.requests,
            scenario,
            schedule,
            self._ledger,
            clock=self._api_clock,
            is_store_down=self._injection.is_store_down,
            loses_answer=self._injection.loses_answer,
            crashes=crashes,
        )

    def _surroundings(self, folder: Path, settings: Settings) -> Surroundings:
        return Surroundings(
            seed=self.scenario.seed,
            schedule=self.schedule,
            networks=self._evidence.networks,
            disks=self._evidence.disks,
            stores=self._stores,
            folder=folder,
            settings=settings,
            within=self._within,
            on_node=self._on_node,
            run_until=self._run_until,
            is_store_down=self._injection.is_store_down,
            loses_answer=self._injection.loses_answer,
            held_up=self._injection.held_up,
            solver_fault=self._injection.solver_fault,
            before_commit=self._before_commit,
            committed=self._committed,
            another_reads=lambda: self._readers.random() < 0.5,
            looked=self._looked,
            crashes=self._crashes,
        )

    def boottime_s(self) -> float:
        """Return the boottime of the machine whose code runs now."""
        return self.clock.boottime_s()

    def is_state_folder_full(self) -> bool:
        """Return True while services can write nothing into their state folders."""
        return self._injection.is_state_folder_full()

    def close(self) -> None:
        """End the processes, which hold descriptors, and close the stores."""
        for process in self._processes:
            process.kill()
        self._stores.close()

    # --- the run ---

    def run(self) -> Violation | None:
        """Return the first violation; None if everything held."""
        try:
            self._run()
        except Violation as violation:
            return violation
        return None

    def _run(self) -> None:
        for process in self._processes:
            self.schedule.after(0.1 * process.index, process.start)
        if self.scenario.tiers:
            self._clients.create_tiers(self.scenario.tiers)
        for request in self.scenario.requests:
            self.schedule.at(request.at_s, partial(self._clients.come, request))
        self._injection.schedule_all(self._processes)
        self._run_until(self.scenario.faults_until_s)
        self._calm()
        self._drain()

    def _calm(self) -> None:
        """End every fault, and let clients and operators take back what keeps jobs from running."""
        self.schedule.note("all is well")
        self._clients.close()
        self._injection.calm(self._processes)
        back = [ClientRequest(at_s=0.0, kind=Request.UNCORDON, target=node) for node in range(len(self.scenario.nodes))]
        for job, program in enumerate(self.scenario.programs):
            is_hopeless = program.behaviour in (Behaviour.IGNORES_LEASE, Behaviour.DELETES_FOLDER)
            kind = Request.CANCEL if is_hopeless or program.replicas else Request.RESUME
            back.append(ClientRequest(at_s=0.0, kind=kind, target=job))
        asked = {request.kind for request in self.scenario.requests}
        back += [each for each in TAKEN_BACK if each.kind in asked]
        for request in back:
            self._clients.send(request)

    def _drain(self) -> None:
        """Let everything end within the bound of I12, and check what is left."""
        deadline_s = self.schedule.now_s + self._bound_s()
        while not self._is_drained():
            if not self._step_until(deadline_s):
                raise Violation("I12_everything_ends", self._unfinished())
        self._run_until(self.schedule.now_s + SETTLE_S)
        for invariant in self._invariants:
            invariant.at_end(self._evidence)

    def _bound_s(self) -> float:
        """Return three times what the jobs would take one after the other, and what the service needs around it.

        A reservation ends by the clock of its service, so it lasts longer by as much as that is behind the one that
        it was made by.
        """
        programs, faults = self.scenario.programs, self.scenario.faults
        steps_s = [fault.amount for fault in faults if fault.kind is FaultKind.CLOCK_STEP]
        set_back_s = sum(map(abs, steps_s)) if any(each.reserved_after_s for each in programs) else 0.0
        slowest_s = sum(program.slowest_s + (program.reserved_after_s or 0.0) for program in programs)
        return 300.0 + set_back_s + 3.0 * (slowest_s + LONGEST_ROUND_S * len(programs))

    def _is_drained(self) -> bool:
        """Look, if anything has been committed or acknowledged since it was looked last."""
        written = (self._commits, len(self._ledger.submitted))
        if written == self._looked_after:
            return False
        self._looked_after = written
        submitted = self._ledger.submitted.keys() >= self._ledger.attempted
        operations = map(self._stores.requests.operation, self._ledger.operations)
        has_ended = all(each.state is not OperationState.PENDING for each in operations)
        return submitted and has_ended and not self._stores.requests.snapshot().jobs

    def _unfinished(self) -> str:
        jobs = self._stores.requests.snapshot().jobs.values()
        left = "; ".join(f"{job.spec.name} {job.state} at {job.position}: {job.explanation}" for job in jobs)
        unanswered = self._ledger.attempted - self._ledger.submitted.keys()
        return f"not drained at {self.schedule.now_s:.0f} s: {left or f'no answer for {sorted(unanswered)}'}"

    def _run_until(self, until_s: float) -> None:
        if self._injection.is_active:  # a suspension ends with all other faults
            until_s = min(until_s, max(self.schedule.now_s, self.scenario.faults_until_s + PAUSED_AT_MOST_S))
        while self._step_until(until_s):
            pass
        self.schedule.now_s = max(self.schedule.now_s, until_s)

    def _step_until(self, until_s: float) -> bool:
        """Let the next event until then happen; return False if there is none."""
        if not self.schedule.has_more(until_s):
            return False
        if self.schedule.events > EVENTS_MAX:
            raise Violation("time_goes_on", f"{EVENTS_MAX} events until {self.schedule.now_s:.0f} s")
        self.schedule.step()
        if self._has_changed:
            self._has_changed = False
            for invariant in self._invariants:
                invariant.after_change(self._evidence)
        return True

    # --- what its parts call ---

    def _within(self, clock: MachineClock, act: Callable[[], None]) -> None:
        before, self.clock = self.clock, clock
        try:
            act()
        finally:
            self.clock = before

    def _on_node(self, node: SimulatedNode, order: Order) -> Answer:
        before, self.clock = self.clock, node.clock
        try:
            return node.exchange(order)
        finally:
            self.clock = before

    def _run_of(self, region: str, launch: ShardLaunch) -> GangRun:
        gang = region, launch.key
        if gang not in self._programs:
            program = self.scenario.programs[int(launch.instruction.argv[1])]
            self._programs[gang] = GangRun(launch, program, self.schedule, self._evidence.disks[region])
        return self._programs[gang]

    def _changed(self, shard: SimulatedShard) -> None:
        self._has_changed = True
        how = f"ended {shard.exit.outcome} {shard.exit.exit_code}" if shard.exit else "started"
        job_id, generation = shard.launch.key
        self.schedule.note(f"{shard.node_name} {shard.launch.instruction.argv[1]} {job_id} {generation} {how}")

    def _before_commit(self) -> None:
        """Let requests be written between a scheduler's snapshot and its commit."""
        self._within(self._api_clock, self._clients.send_waiting)

    def _looked(self, snapshot: Snapshot) -> None:
        for invariant in self._invariants:
            invariant.after_look(self._evidence, snapshot)

    def _committed(self, process: int, leader: int, changes: Changes, version: int) -> None:
        self._commits += 1
        evidence = self._evidence
        after = {job.id: evidence.store.job(job.id) for job in changes.jobs}
        commit = Commit(
            process=process,
            leader=leader,
            version=version,
            changes=changes,
            before={job_id: evidence.jobs[job_id] for job_id in after if job_id in evidence.jobs},
            after=after,
        )
        index = changes.round.plan.round_index if changes.round else 0
        jobs = " ".join(f"{job.spec.name}:{job.state}:{job.generation}:{job.steps_done}" for job in after.values())
        self.schedule.note(f"service-{process} commits {version} round {index} {jobs}")
        for invariant in self._invariants:
            invariant.after_commit(evidence, commit)
        evidence.jobs.update(after)


def _disks(scenario: Scenario, folder: Path) -> dict[str, CheckpointDisk]:
    """Return the disk for the checkpoints of each region."""
    if scenario.shares_disk:
        return dict.fromkeys(scenario.regions, CheckpointDisk(folder / "checkpoints"))
    return {region: CheckpointDisk(folder / "checkpoints" / region) for region in scenario.regions}


@cache
def _settings(leave_after_s: float, *regions: str) -> Settings:
    """Return the settings of every run: short rounds, few ticks, and a job that keeps losing gangs gives up soon.

    Nodes are behind a network, as on Ray: leases of sessions and replicas end with their rounds, as those of others do.
    Jobs move between regions readily.
    """
    several: dict[str, Any] = {
        "backend": "several",
        "backends": {name: {"backend": "ray", "ray_address": name} for name in regions},
        "regions": {"margin_fraction": 0.0, "interval_s": LOOKS_S, "leave_after_s": leave_after_s},
    }
    chosen: dict[str, Any] = {
        **({"backend": "ray"} if regions == ("",) else several),
        "round_duration_s": ROUND_S,
        "tick_s": TICK_S,
        "idle_tick_s": IDLE_TICK_S,
        "lease_grace_s": GRACE_S,
        "lost_retries": 6,
        "start_limit_s": 60.0,
        "accelerator_memory_bytes": dict.fromkeys(TYPES, MEMORY_BYTES),
    }
    return Settings(**chosen)


@cache
def _fast_dir() -> str | None:
    """Return a folder in memory, where there is one: what is simulated survives no power cut anyway."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
