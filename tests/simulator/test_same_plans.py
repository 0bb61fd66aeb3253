"""A run on real processes and a simulated one plan the same rounds from the same inputs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gavel.backends.harness import Behaviour
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import Clock, ClusterBackend
from gavel.simulator.cluster import VirtualCluster, program
from gavel.simulator.oracle import OracleThroughputs
from gavel.store.memory import MemoryStore
from tests.backends.clusters import LocalHarness
from tests.builders import a_spec

ROUNDS = 5
RATES = {("long", size, name): rate * size for size in (1, 2) for name, rate in (("a", 4.0), ("b", 1.0))}
Planned = list[tuple[int, float, list[tuple[str, str, tuple[str, ...], int]]]]


def rounds_planned(
    backend: ClusterBackend, clock: Clock, argv: tuple[str, ...], next_event_at_s: Callable[[], float], policy: str
) -> Planned:
    """The first rounds of five endless jobs on three workers: index, length, and each lease with its token."""
    store = MemoryStore()
    for index, size in enumerate((1, 1, 2, 1, 1)):
        spec = a_spec(
            name=f"job-{index}", kind="long", tier="default", argv=argv, total_steps=1_000_000_000, scale_factor=size
        )
        store.submit(spec, key=None, body_hash="", now_s=clock.now_s())
    driver = Driver(
        store=store,
        backend=backend,
        runner=InlineRunner(),
        estimator=OracleThroughputs(RATES),
        fallback=EqualShare(),
        clock=clock,
        settings=Settings(policy=policy, round_duration_s=0.8, price_moves=False, start_limit_s=0),
    )
    for _ in range(2000):
        due_s = driver.tick()
        if len(store.rounds()) >= ROUNDS:
            break
        clock.wait(min(due_s, next_event_at_s(), clock.now_s() + 0.05))
    return [
        (
            plan.round_index,
            plan.duration_s,
            [(store.job(x.job_id).spec.name, x.accelerator_type, x.worker_ids, x.generation) for x in plan.leases],
        )
        for plan in store.rounds()[::-1]
    ]


@pytest.mark.small("max_min_fairness")
@pytest.mark.parametrize("policy", ["equal_share", "max_min_fairness"])
def test_real_and_simulated_runs_plan_the_same_rounds(tmp_path: Path, policy: str) -> None:
    real = LocalHarness(tmp_path / "state")
    try:
        cluster = real.backend.observe().cluster
        argv = real.argv(Behaviour.TRAINS)
        planned = rounds_planned(real.backend, real.clock, argv, lambda: float("inf"), policy)
    finally:
        real.close()
    clock = ManualClock()
    virtual = VirtualCluster(cluster, RATES, clock)
    simulated = rounds_planned(virtual, clock, program("long"), virtual.next_event_at_s, policy)
    assert len(planned) == ROUNDS
    assert planned == simulated
