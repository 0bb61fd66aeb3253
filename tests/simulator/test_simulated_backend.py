"""The backend `simulated`: it conforms, its speeds stay, and a service that starts again finds its gangs."""

from pathlib import Path

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.simulator.simulated_backend import DrawnRates, SimulatedBackend, simulated_cluster
from gavel.store.sql import SqlStore
from gavel.types import Cluster, GangState, JobState, Node, Tier, Worker
from tests.builders import a_spec
from tests.simulator.test_conformance import VirtualHarness

SETTINGS = Settings(
    backend="simulated",
    simulated_nodes={"fast": 2, "slow": 1},
    simulated_workers_per_node=2,
    simulated_report_period_s=5.0,
    planning_lead_fraction=0.0,
)


class SimulatedHarness(VirtualHarness):
    """The same nodes and workers as for the virtual cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._serve(self.backend.observe().cluster)

    def spread(self, nodes: int) -> None:
        names = [f"node-{index}" for index in range(nodes)]
        workers = tuple(Worker(id=f"a-{index}", node=name, accelerator_type="a") for index, name in enumerate(names))
        self._serve(Cluster(nodes=tuple(Node(name=name) for name in names), workers=workers))

    def _serve(self, cluster: Cluster) -> None:
        settings = Settings(lease_grace_s=0.1, simulated_report_period_s=0.0)
        self.backend = SimulatedBackend(cluster, settings, self.clock)


@pytest.mark.parametrize(
    "check", [c for c in CHECKS if c.__name__ not in SimulatedHarness.cannot], ids=lambda c: c.__name__
)
def test_the_simulated_backend_conforms(check: Check) -> None:
    check(SimulatedHarness())


def test_nodes_are_those_of_the_settings() -> None:
    cluster = simulated_cluster(SETTINGS)
    assert cluster.capacity_workers() == {"fast": 4, "slow": 2}
    assert [node.name for node in cluster.nodes] == ["fast-0", "fast-1", "slow-0"]


def test_a_kind_has_the_same_speed_each_time_and_others_on_other_types() -> None:
    rates = DrawnRates()
    assert rates["mlp", 4, "fast"] == 4 * DrawnRates()["mlp", 1, "fast"]
    assert rates["mlp", 1, "fast"] != rates["mlp", 1, "slow"]


def _driver(store: SqlStore, clock: ManualClock) -> tuple[Driver, SimulatedBackend]:
    backend = SimulatedBackend(simulated_cluster(SETTINGS), SETTINGS, clock)
    backend.resume(store.snapshot())
    driver = Driver(
        store=store,
        backend=backend,
        runner=InlineRunner(),
        estimator=ReconciledThroughputs(),
        fallback=EqualShare(),
        clock=clock,
        settings=SETTINGS,
    )
    return driver, backend


def _tick(driver: Driver, clock: ManualClock, times: int) -> None:
    for _ in range(times):
        driver.tick()
        clock.advance(1.0)


@pytest.mark.full
def test_a_scheduler_that_starts_again_finds_its_gangs(tmp_path: Path) -> None:
    store, clock = SqlStore(f"sqlite:///{tmp_path}/gavel.db"), ManualClock(1e9)
    store.put_tier(Tier(name="gold"), expected_version=None, by="test", now_s=clock.now_s())
    specs = [a_spec(argv=("virtual", kind), kind=kind, total_steps=150) for kind in ("mlp", "cnn") for _ in range(4)]
    made = store.submit_many(specs, key=None, body_hash="", now_s=clock.now_s())
    driver, before = _driver(store, clock)
    _tick(driver, clock, 4)
    running = {(gang.job_id, gang.generation) for gang in before.observe().gangs if gang.state is GangState.RUNNING}
    assert len(running) == 6
    driver, after = _driver(store, clock)
    assert {(gang.job_id, gang.generation) for gang in after.observe().gangs} == running
    _tick(driver, clock, 150)
    jobs = [store.job(each.job.id) for each in made]
    assert [(job.state, job.steps_done, job.losses) for job in jobs] == [(JobState.COMPLETED, 150, 0)] * 8
    store.close()


def test_nodes_may_be_in_regions() -> None:
    cluster = simulated_cluster(
        SETTINGS.model_copy(update={"simulated_nodes": {"fast@eu": 1, "fast@us": 1, "slow": 1}})
    )
    assert [(node.name, node.region) for node in cluster.nodes] == [
        ("fast-eu-0", "eu"),
        ("fast-us-0", "us"),
        ("slow-0", "local"),
    ]
    assert cluster.capacity_workers() == {"fast": 4, "slow": 2}
