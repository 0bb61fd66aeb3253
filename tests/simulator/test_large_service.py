"""Thousands of jobs on hundreds of nodes through the whole service; what grows with what is counted, never timed."""

import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.scale_state import fill
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.demo.service import ServiceProcess, wait_until
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.mechanism.explaining.waiting import MESSAGES_PER_TIER
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import Changes
from gavel.simulator.simulated_backend import SimulatedBackend, simulated_cluster
from gavel.store.sql import SqlStore
from gavel.types import Tier
from tests.builders import a_spec

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
JOBS, NODES = (20_000, 2_000) if IS_FULL else (1_000, 100)
LIMIT_S = 300.0
SERVED = {
    "GAVEL_BACKEND": "simulated",
    "GAVEL_SIMULATED_NODES": f'{{"v100": {NODES // 2}, "k80": {NODES - NODES // 2}}}',
    "GAVEL_ROUND_DURATION_S": "60" if IS_FULL else "5",
}


class CountingStore(SqlStore):
    """Counts the rows of jobs that commits without a round write."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.rows = self.ends = 0

    def commit(self, expected_version: int, changes: Changes) -> int:
        if changes.round is None:
            self.rows += len(changes.jobs)
            self.ends += sum(job.state.is_terminal for job in changes.jobs)
        return super().commit(expected_version, changes)


@pytest.mark.parametrize("waiting", [500, 1000])
def test_what_ends_between_rounds_writes_does_not_grow_with_the_jobs_that_wait(tmp_path: Path, waiting: int) -> None:
    """1. Ten jobs run, many wait. 2. Within the round some of the ten end. 3. Their rows change, and a bounded part."""
    settings = Settings(
        simulated_nodes={"a": 10}, simulated_report_period_s=1e4, round_duration_s=1000, planning_lead_fraction=0.0
    )
    store, clock = CountingStore(f"sqlite:///{tmp_path}/gavel.db"), ManualClock(1e9)
    store.put_tier(Tier(name="gold", within_user="equal"), expected_version=None, by="test", now_s=1e9)
    specs = [a_spec(total_steps=500 * (1 + index % 10)) for index in range(10 + waiting)]
    store.submit_many(specs, key=None, body_hash="", now_s=1e9)
    driver = Driver(
        store=store,
        backend=SimulatedBackend(simulated_cluster(settings), settings, clock),
        runner=InlineRunner(),
        estimator=ReconciledThroughputs(),
        fallback=EqualShare(),
        clock=clock,
        settings=settings,
    )
    driver.tick()
    driver.tick()
    store.rows = store.ends = 0
    while not store.ends:
        clock.advance(5.0)
        driver.tick()
        assert clock.now_s() < 1e9 + settings.round_duration_s
    assert 1 <= store.rows <= 2 * 10 + MESSAGES_PER_TIER
    store.close()


def answers(service: ServiceProcess) -> dict[str, Any]:
    """Of the operator: summary, queue and grouped matrix."""
    headers = {"Authorization": f"Bearer {service.operator_token}"}
    paths = ("summary", "queue", "allocations/current?group_by=tier_and_kind")
    with httpx.Client(base_url=service.url, headers=headers, timeout=LIMIT_S, trust_env=False) as client:
        return {path.split("?")[0]: client.get(f"/v1/{path}").raise_for_status().json() for path in paths}


@pytest.mark.full
def test_thousands_of_jobs_run_through_a_restart_of_the_whole_service(tmp_path: Path) -> None:
    """1. Jobs are stored. 2. The service plans rounds of them. 3. It is killed. 4. The next goes on with every gang."""
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    store = SqlStore(f"sqlite:///{state_dir}/gavel.db")
    fill(store, 1e9, jobs=JOBS)
    with ServiceProcess(state_dir, SERVED) as service:
        assert wait_until(lambda: len(store.rounds(limit=2)) == 2, LIMIT_S), service.output()
        assert wait_until(lambda: answers(service)["summary"]["busy_workers"] > 0.8 * NODES, LIMIT_S)
        service.kill()
        newest = store.rounds(limit=1)[0].round_index
        service.start()
        assert wait_until(lambda: store.rounds(limit=1)[0].round_index > newest, LIMIT_S), service.output()
        given = answers(service)
    unfinished = store.snapshot().jobs.values()
    assert sum(given["summary"]["jobs"].values()) >= len(unfinished)
    assert given["queue"]["waiting"] == sum(given["queue"]["reasons"].values()) > JOBS - 2 * NODES
    assert sum(row["jobs"] for row in given["allocations/current"]["rows"]) > 0.9 * JOBS
    assert not [job.id for job in unfinished if job.losses]
    held = [each for lease in store.rounds(limit=1)[0].leases for each in lease.worker_ids]
    assert 0.5 * NODES < len(set(held)) <= NODES
    store.close()
