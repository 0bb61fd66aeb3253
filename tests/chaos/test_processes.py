"""Processes of a real service are killed and suspended at random moments: no acknowledged job is lost or doubled."""

import os
import random
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from gavel.client import Client, GavelApiError, ServiceUnreachable
from gavel.demo.service import ServiceProcess, wait_until
from tests.chaos.ledger import ClientLedger
from tests.chaos.victims import Victim, processes_of, strike
from tests.postgresql import Server, running_server

FAULTS = int(os.environ.get("GAVEL_CHAOS_KILLS", "24"))
SEED = int(os.environ.get("GAVEL_CHAOS_SEED", "1"))
SETTINGS = {"GAVEL_ROUND_DURATION_S": "2", "GAVEL_LEASE_GRACE_S": "1", "GAVEL_LEADER_LEASE_S": "2"}
SETTINGS |= {"GAVEL_LOST_RETRIES": "10000", "GAVEL_START_LIMIT_S": "60"}
DRAIN_S = 180.0 + 12 * FAULTS


class Chaos:
    """One run: what was done to whom, and how a service that is gone comes back."""

    def __init__(self, service: ServiceProcess, server: Server | None, ledger: ClientLedger) -> None:
        self._service, self._server, self._ledger = service, server, ledger
        self._chance = random.Random(SEED)
        self._progress: dict[str, int] = {}
        self.done: list[tuple[Victim, str]] = []

    def run(self, faults: int) -> None:
        """Do so many faults, each kind of process about as often as any other."""
        victims = [each for each in Victim if each is not Victim.DATABASE or self._server]
        while len(self.done) < faults:
            self._ask()
            time.sleep(self._chance.uniform(0.0, 2.0))  # the moment is what varies, not something waited for
            victim = victims[len(self.done) % len(victims)]
            there = processes_of(victim, self._service, self._server)
            if there:
                self._harm(victim, there)

    def _harm(self, victim: Victim, there: list[psutil.Process]) -> None:
        how = strike(self._chance.choice(there), time.sleep, self._chance)
        if how:
            self.done.append((victim, how))
        if victim is Victim.SERVICE and how == "killed":
            self._service.kill()
            self._service.start()

    def _ask(self) -> None:
        """Submit something, and look: no job's durable steps have become fewer, and nobody else's are there."""
        with Client(self._service.url, self._service.operator_token) as client:
            for _ in range(self._chance.randint(0, 2)):
                self._ledger.submit(client)
            with suppress(GavelApiError, ServiceUnreachable):
                for job in client.jobs():
                    assert job["steps_done"] >= self._progress.get(job["id"], 0), job
                    self._progress[job["id"]] = job["steps_done"]


@pytest.mark.full
@pytest.mark.timeout(600 + 40 * FAULTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_acknowledged_is_lost_whatever_process_dies_or_sleeps(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running_server()) if kind == "postgresql" else None
        url = {"GAVEL_DATABASE_URL": server.new_database()} if server else {}
        ledger = ClientLedger(tmp_path / "ledger", SEED)
        service = stack.enter_context(ServiceProcess(tmp_path / "state", SETTINGS | url))
        chaos = Chaos(service, server, ledger)
        chaos.run(FAULTS)
        with Client(service.url, service.operator_token) as client:
            ledger.check(client, DRAIN_S)
        assert {victim for victim, _ in chaos.done} == {each for each in Victim if server or each != Victim.DATABASE}
        logs = [path.read_text() for path in (tmp_path / "state").glob("scheduler*.log")]
        assert not [log for log in logs if "InvariantViolated" in log]
        assert wait_until(lambda: not service.processes_left(), 20)
