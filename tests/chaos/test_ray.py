"""A real Ray cluster and a service on it lose processes at random moments: no acknowledged job is lost or doubled."""

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path

import psutil
import pytest

from gavel.backends.ray.local_cluster import REPORT_PERIOD_S, LocalRayCluster, NodeSpec
from gavel.client import Client
from gavel.demo.service import ServiceProcess, wait_until
from tests.backends.ray.clusters import agent_pids
from tests.chaos.ledger import ClientLedger
from tests.chaos.victims import Victim, processes_of, strike

FAULTS = int(os.environ.get("GAVEL_CHAOS_RAY_FAULTS", "14"))
SEED = int(os.environ.get("GAVEL_CHAOS_SEED", "1"))
NODES = ("node-0", "node-1")
SETTINGS = {"GAVEL_ROUND_DURATION_S": "6", "GAVEL_LEASE_GRACE_S": "1", "GAVEL_LEADER_LEASE_S": "3"}
SETTINGS |= {"GAVEL_LOST_RETRIES": "10000", "GAVEL_START_LIMIT_S": "60", "GAVEL_BACKEND": "ray"}
DRAIN_S = 240.0 + 20 * FAULTS


class Part(StrEnum):
    """What is struck. Of Ray: an agent of ours, a node with all its processes, or every process there is."""

    SERVICE = "service"
    SUPERVISOR = "supervisor"
    RANK = "rank"
    AGENT = "agent"
    NODE = "node"
    CONTROL_SERVICE = "control service"  # it keeps nothing, so that every node starts anew with it


class Chaos:
    """One run: what was done to which part, and how what is gone comes back."""

    def __init__(self, service: ServiceProcess, cluster: LocalRayCluster, ledger: ClientLedger) -> None:
        self._service, self._cluster, self._ledger = service, cluster, ledger
        self._chance = random.Random(SEED)
        self.done: list[Part] = []

    def run(self, faults: int) -> None:
        """Strike so often, each part about as often as any other."""
        parts = list(Part)
        with Client(self._service.url, self._service.operator_token) as client:
            assert wait_until(lambda: len(client.cluster()["workers"]) == len(NODES), DRAIN_S, 0.2)
        while len(self.done) < faults:
            part = parts[len(self.done) % len(parts)]
            assert wait_until(partial(self._strikes, part), DRAIN_S, 0.2), f"no {part} was ever there: {self._states()}"

    def _states(self) -> list[str]:
        with Client(self._service.url, self._service.operator_token) as client:
            return [f"{job['state']}: {job['explanation']} {job['message']}" for job in client.jobs()]

    def _strikes(self, part: Part) -> bool:
        """Return False if there is nothing of the part to be struck at the moment."""
        with Client(self._service.url, self._service.operator_token) as client:
            self._ledger.submit(client)
        time.sleep(self._chance.uniform(0.0, 2.0))  # the moment is what varies, not something waited for
        act: Mapping[Part, Callable[[], bool]] = {
            Part.SERVICE: self._kill_service,
            Part.SUPERVISOR: lambda: self._harm(processes_of(Victim.SUPERVISOR, self._service, None)),
            Part.RANK: lambda: self._harm(processes_of(Victim.RANK, self._service, None)),
            Part.AGENT: lambda: self._harm([psutil.Process(pid) for pid in agent_pids(self._cluster)]),
            Part.NODE: lambda: self._lose_node(self._chance.choice(NODES)),
            Part.CONTROL_SERVICE: self._lose_control_service,
        }
        is_struck = act[part]()
        if is_struck:
            self.done.append(part)
        return is_struck

    def _harm(self, there: list[psutil.Process]) -> bool:
        return bool(there and strike(self._chance.choice(there), time.sleep, self._chance))

    def _kill_service(self) -> bool:
        self._service.kill()
        self._service.start()
        return True

    def _lose_node(self, name: str) -> bool:
        self._cluster.kill_node(name)
        time.sleep(self._chance.uniform(0.0, 8.0))  # with a lease's length the job starts elsewhere, or waits for it
        self._cluster.start_node(name)
        return True

    def _lose_control_service(self) -> bool:
        self._cluster.kill_all()
        self._cluster.start()
        return True


@pytest.mark.ray
@pytest.mark.full
@pytest.mark.timeout(900 + 60 * FAULTS)
def test_nothing_acknowledged_is_lost_whatever_of_ray_dies_or_sleeps(tmp_path: Path) -> None:
    nodes = [NodeSpec(name="head", resources={}), *(NodeSpec(name=name, resources={"gavel:a": 1}) for name in NODES)]
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalRayCluster(nodes))
        own = {
            "GAVEL_RAY_ADDRESS": cluster.address,
            "GAVEL_RAY_NODE_DIR": str(tmp_path / "state" / "nodes"),
            "GAVEL_RAY_CHECKPOINT_DIR": str(tmp_path / "shared"),
            "GAVEL_RAY_REPORT_PERIOD_S": str(REPORT_PERIOD_S),
        }
        service = stack.enter_context(ServiceProcess(tmp_path / "state", {**SETTINGS, **own, **cluster.environment}))
        ledger = ClientLedger(tmp_path / "ledger", SEED)
        chaos = Chaos(service, cluster, ledger)
        chaos.run(FAULTS)
        with Client(service.url, service.operator_token) as client:
            ledger.check(client, DRAIN_S)
        assert set(chaos.done) == set(Part)
        logs = [path.read_text() for path in (tmp_path / "state").glob("scheduler*.log")]
        assert not [log for log in logs if "InvariantViolated" in log]
        assert wait_until(lambda: not service.processes_left(), 30)
