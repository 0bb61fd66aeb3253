"""A leader that completes no tick gives way, and one that is stopped in the middle of a write is ended."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.child import Message, SchedulerState
from gavel.daemon.leading import Candidate
from gavel.daemon.scheduler import Scheduler
from gavel.demo.service import wait_until
from gavel.store.sql import SqlStore

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
LIMIT_S = 30.0
LEASE_S = 0.5


class Skips:
    """A driver that skips every tick until it is messages to work."""

    def __init__(self) -> None:
        self.ticks, self.newest_round = 0, (0, 0.0)
        self.halted: str | None = None
        self.skipped, self.is_idle = "the disk is gone", False
        self.works = False

    def tick(self) -> float:
        if self.works:
            self.ticks, self.skipped = self.ticks + 1, ""
        return 0.0


@contextmanager
def scheduling(store: SqlStore, driver: Skips, folder: Path) -> Iterator[list[Message]]:
    """A scheduler over the driver, in a thread; yields what it has messages."""
    settings = Settings(state_dir=folder, stall_limit_s=0.2, idle_tick_s=0.01, tick_s=0.01, leader_lease_s=LEASE_S)

    @contextmanager
    def opened(_term: object) -> Iterator[Skips]:
        yield driver

    messages: list[Message] = []
    found_nothing = SimpleNamespace(accelerators=(), notes=())
    parts: Any = SimpleNamespace(
        store=store, clock=SystemClock(), settings=settings, open=opened, notes=tuple, discovery=found_nothing
    )
    scheduler = Scheduler(parts, messages.append)
    thread = threading.Thread(target=scheduler.run, daemon=True)
    thread.start()
    yield messages
    scheduler.stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_leader_that_skips_every_tick_says_so_and_lets_another_lead(tmp_path: Path) -> None:
    """1 it skips, 2 it says why and gives way, 3 it tries again when nobody else leads, 4 it works and is well."""
    store, driver = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}"), Skips()
    other = Candidate(SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}").leadership, lease_s=LEASE_S)
    with scheduling(store, driver, tmp_path) as messages:

        def states() -> list[SchedulerState]:
            return [each for each in messages if isinstance(each, SchedulerState)]

        assert wait_until(lambda: bool(states()) and not states()[-1].leads, LIMIT_S)
        assert states()[-1].is_stuck and states()[-1].stalled == "the disk is gone"
        assert other.leader() == "" or len([each for each in states() if each.leads]) > 1
        driver.works = True
        assert wait_until(lambda: states()[-1].leads and not states()[-1].is_stuck, LIMIT_S)
    store.close()


def test_another_process_takes_over_from_a_leader_that_is_halted(tmp_path: Path) -> None:
    store, driver = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}"), Skips()
    driver.works, driver.halted = True, "one_lease_per_job: it was broken"
    second = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}")
    other = Candidate(second.leadership, lease_s=60.0)
    with scheduling(store, driver, tmp_path):
        assert wait_until(lambda: store.leadership.generation is not None, LIMIT_S)
        assert wait_until(lambda: other.try_to_lead() is not None, LIMIT_S, 0.01)
    second.close()
    store.close()


# --- a leader that is stopped in the middle of a write ---

WRITER = """
import os, signal, sys
from sqlalchemy import text
from gavel.daemon.leading import own_name
from gavel.store.sql import SqlStore
store = SqlStore(sys.argv[1])
leadership = store.leadership
assert leadership.take(own_name(), lease_s=1.0, seen=leadership.current())
is_in_a_write = sys.argv[2] == "in a write"
print("leads", flush=True)
while True:
    with store._write_engine.begin() as connection:
        connection.execute(text("UPDATE counters SET change = change + 1"))
        if is_in_a_write:
            os.kill(os.getpid(), signal.SIGSTOP)
    leadership.beat()
"""


@contextmanager
def leading_and_writing(url: str, how: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", WRITER, url, how], stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"leads\n"
        yield process
        process.kill()


def test_a_leader_that_is_stopped_in_a_write_is_ended_by_its_successor(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gavel.db'}"
    store, now_s = SqlStore(url), [0.0]
    candidate = Candidate(store.leadership, lease_s=1.0, monotonic_s=lambda: now_s[0])
    with leading_and_writing(url, "in a write") as leader:
        os.waitpid(leader.pid, os.WUNTRACED)
        assert candidate.try_to_lead() is None, "it has not been silent for a lease"
        assert leader.poll() is None
        now_s[0] += 1.1
        assert candidate.try_to_lead() is not None
        assert leader.wait(LIMIT_S) == -signal.SIGKILL
    store.close()


@pytest.mark.skipif(not IS_FULL, reason="100 processes: GAVEL_TEST_PROFILE=full")
@pytest.mark.timeout(1200)
def test_a_pause_at_any_instant_costs_the_lease_and_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gavel.db'}"
    store, seeded = SqlStore(url), random.Random(0)
    for _ in range(100):
        now_s = [0.0]
        candidate = Candidate(store.leadership, lease_s=1.0, monotonic_s=lambda now_s=now_s: now_s[0])  # type: ignore[misc]
        with leading_and_writing(url, "at any instant") as leader:
            threading.Event().wait(seeded.uniform(0.0, 0.05))
            leader.send_signal(signal.SIGSTOP)
            os.waitpid(leader.pid, os.WUNTRACED)
            candidate.leader()
            now_s[0] += 1.1
            assert candidate.try_to_lead() is not None
        store.leadership.resign()
    store.close()
