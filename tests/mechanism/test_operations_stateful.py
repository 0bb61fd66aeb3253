"""Any sequence of commands, losses, returns, submits and restarts, under the production driver on a virtual cluster.

The model knows what was wished for each node; the machine checks after every tick what may run where, and at the end
that everything still finishes, exactly.
"""

import os
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gavel.errors import StoreUnavailable
from gavel.ports import Changes, Instruction, LaunchGang
from gavel.store.memory import MemoryStore
from gavel.types import GangState, JobState, NodeState, OperationState
from tests.mechanism.world import GRACE_S, World, a_cluster_of_nodes

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROFILE = settings(
    max_examples=600 if IS_FULL else 5,
    stateful_step_count=60 if IS_FULL else 40,
    suppress_health_check=list(HealthCheck),
)
NODES = {"n0": "fast fast", "n1": "slow slow", "n2": "fast slow"}
NODE = st.sampled_from(sorted(NODES))


class Refusing(MemoryStore):
    """Refuses the next commit when told so."""

    refuses = False

    def commit(self, expected_version: int, changes: Changes) -> int:
        if self.refuses:
            self.refuses = False
            raise StoreUnavailable("database is locked")
        return super().commit(expected_version, changes)


class Operators(RuleBasedStateMachine):
    """Three nodes of two types, gangs of one and two."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Refusing()
        self.world = World(
            store=self.store, cluster=a_cluster_of_nodes(**NODES), gang_grace_s=GRACE_S, lost_backoff_s=0.5
        )
        self.present = set(NODES)
        self.wished: dict[str, tuple[bool, float | None]] = dict.fromkeys(NODES, (False, None))
        self.asked: list[tuple[str, str, str, float]] = []  # operation, what, node, window
        self.jobs: list[str] = []
        self.launched: list[LaunchGang] = []
        self._watch_launches()
        for size in (1, 1, 2, 1, 1):
            self.jobs.append(self.world.submit(600, scale_factor=size, preemptible=size == 1))
        self.world.run_until_s(1.0)

    def _watch_launches(self) -> None:
        execute = self.world.backend.execute

        def watched(instructions: Sequence[Instruction]) -> None:
            launches = [each for each in instructions if isinstance(each, LaunchGang)]
            node_of = {worker.id: worker.node for worker in self.world.backend.whole.workers}
            statuses = self.store.snapshot().nodes
            for each in launches:
                states = {statuses[node_of[worker]].state for worker in each.worker_ids}
                assert states == {NodeState.READY}, f"{each.job_id} was launched on {states}"
            execute(instructions)

        self.world.backend.execute = watched  # type: ignore[method-assign]

    # --- what people do -----------------------------------------------------------------------------------------

    @rule(steps=st.integers(1, 400), size=st.sampled_from([1, 1, 2]), may_be_moved=st.booleans())
    def submit(self, steps: int, size: int, may_be_moved: bool) -> None:
        if len(self.jobs) < 12:
            self.jobs.append(self.world.submit(steps, scale_factor=size, preemptible=may_be_moved))

    @rule(what=st.sampled_from(["cordon", "uncordon", "drain"]), node=NODE, window_s=st.sampled_from([0.0, 3.0, 25.0]))
    def ask(self, what: str, node: str, window_s: float) -> None:
        body = {"window_s": window_s} if what == "drain" else {}
        self.asked.append((self.world.ask(f"node.{what}", f"node/{node}", **body), what, node, window_s))

    # --- what happens -------------------------------------------------------------------------------------------

    @rule(node=NODE)
    def node_goes_or_comes(self, node: str) -> None:
        if node not in self.present:
            self.present.add(node)
            self.world.backend.return_node(node)
        elif len(self.present) > 1:
            self.present.remove(node)
            self.world.backend.lose_node(node)

    @rule(is_death=st.booleans())
    def mishap(self, is_death: bool) -> None:
        """The scheduler dies and comes back, or the store refuses its next commit."""
        if is_death:
            self.world.driver = self.world.new_driver()
            return
        self.store.refuses = True
        self.world.driver.tick()
        self.store.refuses = False
        self.tick()

    @rule()
    def tick(self) -> None:
        self.world.driver.tick()
        self._applied()

    @rule(seconds=st.sampled_from([0.3, 4.0, 9.0]))
    def let_pass(self, seconds: float) -> None:
        self._pass(seconds)

    @rule(seconds=st.sampled_from([2.0, 6.0]))
    def let_more_pass(self, seconds: float) -> None:
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        self.world.run_until_s(self.world.clock.now_s() + seconds)
        self._applied()

    # --- what must hold -----------------------------------------------------------------------------------------

    def _applied(self) -> None:
        """Every command has been applied, in order, to the model too."""
        for operation_id, what, node, window_s in self.asked:
            done = self.world.operation(operation_id)
            is_draining = self.wished[node][1] is not None
            refused = what == "cordon" and is_draining
            assert done.state is (OperationState.FAILED if refused else OperationState.DONE), done
            by_s = done.created_at_s + window_s
            if not refused:
                self.wished[node] = {"cordon": (True, None), "uncordon": (False, None), "drain": (True, by_s)}[what]
        self.asked.clear()
        kept = self.store.snapshot().nodes
        assert {name: (node.is_cordoned, node.drain_by_s) for name, node in kept.items()} == self.wished
        assert self.store.snapshot().commands == ()
        self._nothing_outlives_its_window()

    def _nothing_outlives_its_window(self) -> None:
        self.world.driver.tick()  # looks at what the last one did
        now_s = self.world.clock.now_s()
        node_of = {worker.id: worker.node for worker in self.world.backend.whole.workers}
        for gang in self.world.backend.seen.gangs:
            by_s = [self.wished[node_of[worker]][1] for worker in gang.worker_ids]
            assert gang.state is GangState.ENDED or all(at_s is None or now_s < at_s for at_s in by_s), gang

    @invariant()
    def planning_goes_on(self) -> None:
        assert self.world.driver.halted is None

    @invariant()
    def only_terminal_jobs_are_completed(self) -> None:
        states = {self.world.job(job_id).state for job_id in self.jobs}
        assert states <= {JobState.QUEUED, JobState.LEASED, JobState.COMPLETED}

    def teardown(self) -> None:
        """Once everything is in service again, every job does exactly its steps."""
        for node in NODES:
            self.world.backend.return_node(node)
            self.world.ask("node.uncordon", f"node/{node}")
        self.world.run(lambda: self.world.is_done(*self.jobs), ticks=3000)
        for job_id in self.jobs:
            assert self.world.job(job_id).steps_done == self.world.job(job_id).spec.total_steps


def test_operators_may_do_anything_at_any_time() -> None:
    run_state_machine_as_test(Operators, settings=PROFILE)  # type: ignore[no-untyped-call]
