"""A node: its agent obeys orders by the production rules, and its disk outlives the agent."""

from collections import Counter
from collections.abc import Callable, Iterator

from gavel.backends.gang import GangKey
from gavel.backends.nodes.obeying import Action, action_of, is_refused, may_launch, raises_fence
from gavel.backends.nodes.protocol import Answer, ListedNode, Order, ShardLaunch, ShardWanted, Slot
from gavel.faults.clocks import MachineClock
from gavel.faults.gang import GangRun
from gavel.faults.scenario import NodePlan
from gavel.faults.schedule import Schedule
from gavel.faults.shard import SimulatedShard
from gavel.types import JobId

FIRST_PORT, PORTS_KEPT = 20_000, 8


class SimulatedNode:
    """One machine with its agent. `run_of` gives the program of a gang, which its parts on all nodes share."""

    def __init__(
        self,
        index: int,
        plan: NodePlan,
        schedule: Schedule,
        run_of: Callable[[ShardLaunch], GangRun],
        on_change: Callable[[SimulatedShard], None],
    ) -> None:
        self.index, self.name, self.region = index, f"node-{index}", plan.region
        self.node_id = f"{self.name}-0"  # under which the cluster lists it now
        self.clock = MachineClock(schedule.true_s, booted_at_s=-1000.0 * (index + 1), rate=plan.clock_rate)
        self.is_up = True
        self.cut_since_s: float | None = None  # its network is cut since then
        self.shards: dict[GangKey, SimulatedShard] = {}
        self.starts: Counter[GangKey] = Counter()  # of parts, ever
        self.hears_until_s = 0.0  # supervisors of new parts are suspended until then
        self._schedule, self._run_of, self._on_change = schedule, run_of, on_change
        self._free_ports: list[int] = []
        self._used_ports = 0  # ever
        self._epoch = 0
        self._fences: dict[JobId, int] = {}
        self._boots = self._joins = 0
        self._listed: ListedNode | None = None  # as it was listed last
        self.has_lost_one = False  # of its accelerators
        self._slots = tuple(
            Slot(accelerator_type=plan.accelerator_type, resource=f"gavel:{plan.accelerator_type}", index=place)
            for place in range(plan.slots)
        )

    def as_listed(self, problem: str = "") -> ListedNode:
        """Return the node as the cluster lists it."""
        listed, slots = self._listed, self.slots
        if listed is None or (listed.node_id, listed.problem, listed.slots) != (self.node_id, problem, slots):
            self._listed = listed = ListedNode(
                node_id=self.node_id, name=self.name, slots=slots, cpu_cores=8, problem=problem
            )
        return listed

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Return the accelerators that the node has now."""
        return self._slots[:-1] if self.has_lost_one else self._slots

    # --- the agent ---

    def exchange(self, order: Order) -> Answer:
        """Carry out the order and return the state of the node, as NodeAgent does."""
        if is_refused(order.epoch, self._epoch):
            return self._answer((), refused="a service that started later has taken this node over")
        self._epoch = order.epoch
        for wanted in order.shards:
            self._obey(wanted, is_of_this_boot=order.boot_id == self._boot_id)
        return self._answer(order.shards)

    @property
    def _boot_id(self) -> str:
        return f"{self.name}-boot-{self._boots}"

    def _obey(self, wanted: ShardWanted, *, is_of_this_boot: bool) -> None:
        shard = self.shards.get(wanted.key)
        if raises_fence(wanted):
            self._raise_fence(wanted.key[0], wanted.key[1] + 1)
        action = action_of(
            wanted,
            is_here=shard is not None,
            is_live=shard is not None and shard.is_live,
            has_problem=False,
            is_of_this_boot=is_of_this_boot,
        )
        if shard is None:
            if action is Action.LAUNCH and wanted.launch is not None:
                self._launch(wanted.launch, wanted.lease_node_boottime_s)
        elif action is Action.FORGET:
            del self.shards[wanted.key]
        elif action is Action.STOP:
            shard.stop()
        elif action is Action.KEEP:
            shard.extend(wanted.lease_node_boottime_s)

    def _launch(self, launch: ShardLaunch, lease_boottime_s: float) -> None:
        is_over = self.clock.boottime_s() >= lease_boottime_s
        fence = self._fences.get(launch.key[0], 0)
        if not may_launch(launch, is_over=is_over, fence=fence, live=self._live()):
            return
        self._raise_fence(launch.key[0], launch.key[1] + 1)
        self._free_ports = [port for port in self._free_ports if port not in launch.ports]
        shard = SimulatedShard(
            launch,
            lease_boottime_s,
            node_name=self.name,
            clock=self.clock,
            schedule=self._schedule,
            run=self._run_of(launch),
            on_end=self._on_change,
        )
        self.shards[launch.key] = shard
        self.starts[launch.key] += 1
        if self._schedule.now_s < self.hears_until_s:
            shard.suspend_supervisor(self.hears_until_s)
        self._on_change(shard)

    def _raise_fence(self, job_id: JobId, fence: int) -> None:
        self._fences[job_id] = max(fence, self._fences.get(job_id, 0))

    def _live(self) -> Iterator[ShardLaunch]:
        for shard in self.shards.values():
            shard.look()
            if shard.is_live:
                yield shard.launch

    def _ports(self) -> tuple[int, ...]:
        """Return the free ports, always the same number."""
        while len(self._free_ports) < PORTS_KEPT:
            self._free_ports.append(FIRST_PORT + self._used_ports)
            self._used_ports += 1
        return tuple(self._free_ports)

    def _answer(self, asked: tuple[ShardWanted, ...], refused: str = "") -> Answer:
        by_key = {wanted.key: wanted for wanted in asked}
        shards = () if refused else tuple(shard.seen(by_key.get(key)) for key, shard in self.shards.items())
        return Answer(
            boot_id=self._boot_id,
            node_boottime_s=self.clock.boottime_s(),
            shards=shards,
            ports=self._ports(),
            refused=refused,
        )

    # --- faults ---

    def join_again(self) -> None:
        """Join the cluster under another id, with a new agent: it was given up."""
        self._joins += 1
        self.node_id = f"{self.name}-{self._joins}"
        self.restart_agent()

    def restart_agent(self) -> None:
        """Let a new agent find everything on the disk, and reserve other ports."""
        self._free_ports.clear()
        for shard in self.shards.values():
            shard.read_anew()

    def lose_power(self) -> None:
        """End everything that runs; the disk stays."""
        self.is_up = False
        for shard in list(self.shards.values()):
            if shard.is_live:
                shard.lose_power()

    def boot(self) -> None:
        """Come back with a new boot."""
        self.is_up = True
        self._boots += 1
        self.clock.reboot()
        for shard in self.shards.values():
            shard.take_new_boot()
        self.join_again()

    def freeze(self, until_s: float) -> None:
        """Let the ranks that run now hang until the instant of true time."""
        for shard in self.shards.values():
            if shard.has_ranks:
                shard.run.pause()
                shard.frozen_until_s = max(shard.frozen_until_s, until_s)
                self._schedule.at(until_s, shard.run.resume)

    def pause_supervisors(self, until_s: float) -> None:
        """Suspend the supervisors that run now, and those that start meanwhile."""
        self.hears_until_s = max(self.hears_until_s, until_s)
        for shard in self.shards.values():
            shard.suspend_supervisor(until_s)
