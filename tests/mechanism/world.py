"""A driver with everything it drives: a virtual cluster, a manual clock, the store in memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import ExtendLease, Instruction, PolicyRunner
from gavel.simulator.cluster import VirtualCluster, program
from gavel.store.memory import MemoryStore
from gavel.types import Cluster, GangState, Job, JobState, Lease, Node, Observation, Operation, RoundPlan, Tier, Worker
from tests.builders import a_cluster, a_spec

RATES = {("mlp", 1, "fast"): 10.0, ("mlp", 1, "slow"): 5.0, ("mlp", 2, "fast"): 15.0, ("mlp", 2, "slow"): 8.0}
GRACE_S = 0.5


def a_cluster_of_nodes(**nodes: str) -> Cluster:
    """`a_cluster_of_nodes(n0="fast fast", n1="slow")` has workers n0-0 and n0-1 of type fast, and n1-0 of type slow."""
    workers = tuple(
        Worker(id=f"{name}-{index}", node=name, accelerator_type=kind)
        for name, kinds in nodes.items()
        for index, kind in enumerate(kinds.split())
    )
    return Cluster(nodes=tuple(Node(name=name) for name in nodes), workers=workers)


class WatchedCluster(VirtualCluster):
    """Remembers what it showed last: looking a second time would take reports away from the driver."""

    def __init__(self, cluster: Cluster, *rest: Any, **parts: Any) -> None:
        super().__init__(cluster, *rest, **parts)
        self.whole, self.seen = cluster, super().observe()
        self.extended: list[ExtendLease] = []
        self.executed: list[list[Instruction]] = []

    def execute(self, instructions: Sequence[Instruction]) -> None:
        self.executed.append([*instructions])
        self.extended += [each for each in instructions if isinstance(each, ExtendLease)]
        super().execute(instructions)

    def lease_end_s(self, job_id: str) -> float:
        """The end of the last extension that a gang of the job was sent."""
        return next(each.expires_at_s for each in reversed(self.extended) if each.job_id == job_id)

    def observe(self) -> Observation:
        self.seen = super().observe()
        return self.seen


def _where_jobs_share_alike() -> MemoryStore:
    """A store whose default tier lets the jobs of one user take turns: most tests of rounds are about that."""
    store = MemoryStore()
    store.put_tier(Tier(name="default", within_user="equal"), expected_version=1, by="test", now_s=0.0)
    return store


class World:
    """`run` moves the clock from event to event."""

    def __init__(
        self,
        *,
        store: MemoryStore | None = None,
        runner: PolicyRunner | None = None,
        cluster: Cluster | None = None,
        rates: Mapping[tuple[str, int, str], float] = RATES,
        switch_cost_s: float = 0.0,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.store = store or _where_jobs_share_alike()
        self.runner = runner or InlineRunner()
        cluster = cluster or a_cluster(fast=2, slow=2)
        grace_s, colocated = settings.pop("gang_grace_s", 0.0), settings.pop("colocated", None)
        self.backend = WatchedCluster(cluster, rates, self.clock, switch_cost_s, grace_s, colocated=colocated)
        self.settings = Settings(**{"round_duration_s": 10.0, "lease_grace_s": GRACE_S, **settings})
        self.driver = self.new_driver()

    def new_driver(self, **parts: Any) -> Driver:
        """As after a restart: everything it knows comes from store and backend, and from `parts` that are named."""
        return Driver(
            store=self.store,
            backend=self.backend,
            runner=self.runner,
            estimator=ReconciledThroughputs.from_table(self.store.throughputs()),
            fallback=EqualShare(),
            clock=self.clock,
            settings=self.settings,
            **parts,
        )

    def submit(self, total_steps: int | None = 100, **spec: Any) -> str:
        fields = {"tier": "default", "total_steps": total_steps, "argv": program("mlp")} | spec
        job = self.store.submit(a_spec(**fields), key=None, body_hash="", now_s=self.clock.now_s()).job
        return job.id

    def ask(self, kind: str, subject: str, **body: Any) -> str:
        """A command row, as the API writes it; its id."""
        now_s = self.clock.now_s()
        return self.store.add_command(kind, subject=subject, body=body, by="op", now_s=now_s).id

    def operation(self, operation_id: str) -> Operation:
        return self.store.operation(operation_id)

    def run(self, until: Callable[[], bool], ticks: int = 500) -> None:
        for _ in range(ticks):
            due_s = self.driver.tick()
            assert self.driver.halted is None, self.driver.halted
            if until():
                return
            self.clock.wait(min(due_s, self.backend.next_event_at_s(), self.clock.now_s() + 5.0))
        raise AssertionError(f"not reached after {ticks} ticks at {self.clock.now_s()} s")

    def run_until_s(self, at_s: float) -> None:
        """Tick at every event up to the instant, and at it."""
        while self.clock.now_s() < at_s:
            due_s = self.driver.tick()
            assert self.driver.halted is None, self.driver.halted
            self.clock.wait(min(at_s, max(due_s, self.clock.now_s()), self.backend.next_event_at_s()))
        self.driver.tick()

    def job(self, job_id: str) -> Job:
        return self.store.job(job_id)

    def is_done(self, *job_ids: str) -> bool:
        return all(self.job(job_id).state is JobState.COMPLETED for job_id in job_ids)

    def in_force(self) -> RoundPlan:
        """The plan of the round that is now."""
        now_s = self.clock.now_s()
        return next(plan for plan in self.store.rounds() if plan.starts_at_s <= now_s < plan.ends_at_s)

    def holding(self, node: str) -> set[str]:
        """Ids of the jobs whose gangs were on a node at the last tick."""
        node_of = {worker.id: worker.node for worker in self.backend.whole.workers}
        gangs = [gang for gang in self.backend.seen.gangs if gang.state is not GangState.ENDED]
        return {gang.job_id for gang in gangs if node in {node_of[worker] for worker in gang.worker_ids}}

    def leases_of(self, job_id: str) -> list[Lease]:
        """Every lease that a stored plan gives to the job, oldest first."""
        return [x for plan in reversed(self.store.rounds(limit=1000)) for x in plan.leases if x.job_id == job_id]
