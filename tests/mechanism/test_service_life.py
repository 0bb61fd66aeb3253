"""Services in a whole scheduler: replicas are spread, replaced before they leave, and few enough are taken at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gavel.ports import JobEdit
from gavel.simulator.cluster import program
from gavel.types import (
    Check,
    Cluster,
    GangState,
    Job,
    JobState,
    Observation,
    Reason,
    ServiceSpec,
    ServiceStatus,
    Serving,
)
from tests.conftest import IS_FULL
from tests.mechanism.world import RATES, WatchedCluster, World, a_cluster_of_nodes

ENDLESS = 10**9
LOADS_S = 4.0  # from the start of a replica to its being ready
DRAIN_S = 5.0
GOOD = program("mlp", ENDLESS)
BAD = (*GOOD[:-1], "mlp-bad", GOOD[-1])  # its replicas run and never get ready
NODES = ("n0", "n1", "n2", "n3")


class ServingCluster(WatchedCluster):
    """A replica is ready LOADS_S after its start, unless its program is bad."""

    def observe(self) -> Observation:
        seen = super().observe()
        gangs = tuple(replace(gang, endpoint=self._endpoint(gang.job_id, gang.generation)) for gang in seen.gangs)
        self.seen = replace(seen, gangs=gangs)
        return self.seen

    def forget_gangs(self) -> None:
        """Nobody knows of any gang any more, as after a loss of all nodes with their disks."""
        self._gangs.clear()

    def _endpoint(self, job_id: str, generation: int) -> str:
        gang = next(
            each
            for key, each in self._gangs.items()
            if each.launched.generation == generation and each.launched.job_id == job_id
        )
        began_s = gang.started_at_s
        is_ready = gang.state is GangState.RUNNING and began_s is not None and self._clock.now_s() >= began_s + LOADS_S
        return f"{gang.launched.worker_ids[0]}:80" if is_ready and gang.launched.argv == GOOD else ""


class ServiceWorld:
    """One service in a world where a batch job of somebody else wants all that is free."""

    def __init__(self, cluster: Cluster, *, others: int = 4, **service: Any) -> None:
        self.world = World(cluster=cluster)
        self.world.backend = ServingCluster(cluster, RATES, self.world.clock)
        self.world.driver = self.world.new_driver()
        fields = {"replicas": 2, "replicas_min": 0, "replicas_max": 4, "min_available": 1, "drain_s": DRAIN_S} | service
        serving = Serving(port=0, readiness=Check())
        spec = ServiceSpec(serving=serving, rollout_s=200.0, **fields)
        self.id = self.world.submit(total_steps=None, argv=GOOD, preemptible=False, service=spec)
        self.others = [self.world.submit(ENDLESS, user="bob") for _ in range(others)]

    @property
    def job(self) -> Job:
        return self.world.job(self.id)

    @property
    def status(self) -> ServiceStatus:
        return self.job.serving or ServiceStatus()

    @property
    def service(self) -> ServiceSpec:
        assert self.job.spec.service
        return self.job.spec.service

    @property
    def replicas(self) -> list[Job]:
        jobs = self.world.store.snapshot().jobs.values()
        return sorted((job for job in jobs if job.spec.replica), key=lambda job: job.id)

    @property
    def endpoints(self) -> list[Job]:
        return [job for job in self.replicas if job.endpoint and job.leaving_at_s is None and not job.over]

    def nodes(self) -> list[str]:
        """Nodes that hold a gang of a replica, one for each gang."""
        node_of = {worker.id: worker.node for worker in self.world.backend.whole.workers}
        own = {job.id for job in self.replicas}
        gangs = [each for each in self.world.backend.seen.gangs if each.state is not GangState.ENDED]
        return [node_of[gang.worker_ids[0]] for gang in gangs if gang.job_id in own]

    def edit(self, **changes: Any) -> None:
        now_s = self.world.clock.now_s()
        self.world.store.edit_job(self.id, JobEdit(**changes), expected_version=None, now_s=now_s)

    def is_whole(self) -> bool:
        """All replicas that are wanted are ready, of one version, and nothing else is left of the service."""
        wanted = self.status.stable if self.status.refused == self.service.version else self.service.version
        ready = [job for job in self.endpoints if job.spec.replica and job.spec.replica.version == wanted]
        return len(ready) == len(self.replicas) == self.service.replicas

    def run(self, until: Callable[[], bool], watched: Callable[[], None] = lambda: None) -> None:
        def look() -> bool:
            watched()
            return until()

        self.world.run(look, ticks=1500)


def four_nodes(per_node: int = 2) -> Cluster:
    return a_cluster_of_nodes(**dict.fromkeys(NODES, " ".join(["fast"] * per_node)))


def test_replicas_start_beside_jobs_that_may_be_preempted_and_are_never_taken_from() -> None:
    there = ServiceWorld(four_nodes(), others=10)
    there.run(there.is_whole)
    first = {job.id for job in there.replicas}
    there.world.run_until_s(there.world.clock.now_s() + 100.0)
    assert {job.id for job in there.replicas} == first
    assert all(job.preemptions == 0 and job.attempt == 1 for job in there.replicas)
    assert (there.job.state, there.job.reason) == (JobState.QUEUED, Reason.SERVING)
    assert there.job.message == "2 of 2 replicas are ready."


def test_replicas_that_end_by_themselves_are_made_again_after_pauses_that_grow() -> None:
    there = ServiceWorld(four_nodes(), replicas=1, others=0)
    there.edit(program={"argv": program("mlp", 10)})  # done after a second, before it is ready
    began_s: dict[int, float] = {}

    def note() -> None:
        began_s.setdefault(there.status.failures, there.world.clock.now_s())

    there.run(lambda: there.status.failures == 5, note)
    assert began_s[5] - began_s[1] >= 1 + 2 + 4 + 8
    assert there.job.message == "0 of 1 replicas are ready. 5 replicas in a row have failed."


def test_a_replica_that_its_user_cancels_is_replaced_at_once() -> None:
    there = ServiceWorld(four_nodes(), replicas=1)
    there.run(there.is_whole)
    (old,) = there.replicas
    there.world.store.request_cancel(old.id, now_s=there.world.clock.now_s())
    there.run(lambda: there.is_whole() and there.replicas[0].id != old.id)
    assert there.status.failures == 0, "its user ended it"


def test_a_service_that_is_cancelled_takes_its_replicas_with_it_after_their_drain_time() -> None:
    there = ServiceWorld(four_nodes())
    there.run(there.is_whole)
    replicas = [job.id for job in there.replicas]
    at_s = there.world.clock.now_s()
    there.world.store.request_cancel(there.id, now_s=at_s)
    there.run(lambda: not there.replicas)
    assert there.job.state is JobState.CANCELLED
    ends = [there.world.job(each) for each in replicas]
    assert [each.state for each in ends] == [JobState.COMPLETED] * 2
    assert all(each.finished_at_s and each.finished_at_s >= at_s + DRAIN_S for each in ends)


def test_a_replica_that_is_to_end_and_is_lost_without_a_trace_has_ended() -> None:
    """It waited for ever, as a job that nobody wants and nobody ends."""
    there = ServiceWorld(four_nodes(), replicas=1, others=0)
    there.run(there.is_whole)
    (replica,) = there.replicas
    there.world.store.request_cancel(there.id, now_s=there.world.clock.now_s())
    there.run(lambda: bool(there.world.job(replica.id).over))
    there.world.backend.forget_gangs()
    there.run(lambda: there.world.job(replica.id).state.is_terminal)
    assert there.world.job(replica.id).message == "The service of the replica has ended."


def test_a_service_that_is_paused_has_no_replicas_until_it_is_resumed() -> None:
    there = ServiceWorld(four_nodes())
    there.run(there.is_whole)
    now_s = there.world.clock.now_s()
    there.world.store.request_pause(there.id, is_paused=True, now_s=now_s)
    there.run(lambda: not there.replicas)
    assert there.world.clock.now_s() >= now_s + DRAIN_S, "requests in flight have their time"
    assert (there.job.reason, there.job.message) == (Reason.PAUSED, "The service is paused.")
    there.world.store.request_pause(there.id, is_paused=False, now_s=there.world.clock.now_s())
    there.run(there.is_whole)
    assert there.job.reason is Reason.SERVING


def test_replicas_that_must_be_apart_are_and_one_without_a_place_waits_and_says_so() -> None:
    there = ServiceWorld(
        a_cluster_of_nodes(n0="fast fast fast", n1="fast"), replicas=3, spread_by="node", spread_hard=True
    )
    there.run(lambda: len(there.endpoints) == 2)
    there.world.run_until_s(there.world.clock.now_s() + 60.0)
    assert sorted(there.nodes()) == ["n0", "n1"]
    (waiting,) = [job for job in there.replicas if not job.endpoint]
    assert waiting.reason is Reason.SPREAD


def test_replicas_that_should_be_apart_share_a_node_when_there_is_no_other() -> None:
    cluster = a_cluster_of_nodes(n0="fast fast fast", n1="fast")
    there = ServiceWorld(cluster, replicas=3, spread_by="node", others=0)
    there.run(there.is_whole)
    assert sorted(there.nodes()) == ["n0", "n0", "n1"]


def test_racks_are_apart_by_the_label_of_their_nodes() -> None:
    cluster = four_nodes(1)
    racks = tuple(replace(node, labels={"rack": f"r{index // 2}"}) for index, node in enumerate(cluster.nodes))
    there = ServiceWorld(replace(cluster, nodes=racks), replicas=2, spread_by="rack", spread_hard=True)
    there.run(there.is_whole)
    rack_of = {node.name: node.labels["rack"] for node in racks}
    assert sorted(rack_of[name] for name in there.nodes()) == ["r0", "r1"]


def test_a_version_that_is_never_ready_is_given_up_and_the_old_one_serves_throughout() -> None:
    there = ServiceWorld(four_nodes(), min_available=2)
    there.run(lambda: there.status.stable == 1)
    there.edit(program={"argv": BAD})

    def serves() -> None:
        assert len(there.endpoints) >= 2

    there.run(lambda: there.status.refused == 2 and there.is_whole(), serves)
    assert {job.spec.argv for job in there.replicas} == {GOOD}
    assert "version 1 serves" in there.job.message


class Life(RuleBasedStateMachine):
    """A service through drains, new versions, changes of its size, restarts, and nodes that are lost.

    Replicas that must be apart are, always. As many are ready as have to be, through everything but a loss.
    """

    @initialize(
        replicas=st.integers(1, 3),
        least=st.integers(0, 2),
        surge=st.integers(0, 2),
        hard=st.booleans(),
        spread=st.booleans(),
    )
    def start(self, replicas: int, least: int, surge: int, hard: bool, spread: bool) -> None:
        least = min(least, replicas - (surge == 0))
        how: dict[str, Any] = {"spread_by": "node", "spread_hard": hard} if spread else {}
        self.there = ServiceWorld(four_nodes(), replicas=replicas, min_available=least, surge=surge, **how)
        self.is_apart = spread and hard
        self.drained: set[str] = set()
        self.lost: set[str] = set()
        self.floor = 0  # how many have to be ready now
        self.there.run(self.there.is_whole, self.look)

    def look(self) -> None:
        there = self.there
        nodes = there.nodes()
        assert not self.is_apart or len(set(nodes)) == len(nodes), nodes
        ready = len(there.endpoints)
        least = min(there.service.min_available, there.service.replicas)
        self.floor = min(least, max(self.floor, ready))
        assert ready >= self.floor, f"{ready} are ready, of {self.floor} that have to be"

    def after(self, seconds: float) -> None:
        ends_at_s = self.there.world.clock.now_s() + seconds
        self.there.run(lambda: self.there.world.clock.now_s() >= ends_at_s, self.look)

    @rule(seconds=st.sampled_from([1.0, 7.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.after(seconds)

    @rule(argv=st.sampled_from([GOOD, BAD]), seed=st.integers(0, 99))
    def change_the_program(self, argv: tuple[str, ...], seed: int) -> None:
        self.there.edit(program={"argv": argv, "env": {"SEED": str(seed)}})
        self.after(1.0)

    @rule(replicas=st.integers(1, 3))
    def change_the_number(self, replicas: int) -> None:
        self.floor = min(self.floor, replicas)
        self.there.edit(replicas=replicas)
        self.after(1.0)

    @precondition(lambda self: not self.drained)
    @rule(node=st.sampled_from(NODES))
    def drain_a_node(self, node: str) -> None:
        self.drained.add(node)
        self.there.world.ask("node.drain", f"node/{node}", window_s=3000)
        self.after(1.0)

    @precondition(lambda self: self.drained)
    @rule()
    def take_a_drained_node_back(self) -> None:
        self.there.world.ask("node.uncordon", f"node/{self.drained.pop()}")
        self.after(1.0)

    @precondition(lambda self: not self.lost and not self.drained)
    @rule(node=st.sampled_from(NODES))
    def lose_a_node(self, node: str) -> None:
        self.lost.add(node)
        self.floor = 0
        self.there.world.backend.lose_node(node)
        self.after(1.0)

    @precondition(lambda self: self.lost)
    @rule()
    def return_a_node(self) -> None:
        self.there.world.backend.return_node(self.lost.pop())

    @rule()
    def restart_the_scheduler(self) -> None:
        self.there.world.driver = self.there.world.new_driver()

    @invariant()
    def nothing_is_left_over(self) -> None:
        if hasattr(self, "there"):
            most = self.there.service.replicas_max + self.there.service.surge
            staying = [job for job in self.there.replicas if job.leaving_at_s is None and not job.over]
            assert len(staying) <= most

    def teardown(self) -> None:
        if hasattr(self, "there"):
            for name in self.lost:
                self.there.world.backend.return_node(name)
            for name in self.drained:
                self.there.world.ask("node.uncordon", f"node/{name}")
            self.there.run(self.there.is_whole, self.look)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60 if IS_FULL else 6, stateful_step_count=20 if IS_FULL else 8)
