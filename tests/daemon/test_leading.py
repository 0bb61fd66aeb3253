"""When a process takes over, when it does not, and how a leader that slept finds out."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from gavel.backends import machine
from gavel.daemon.leading import Candidate, Heart, is_gone, own_name, shown
from gavel.demo.service import wait_until
from gavel.errors import LeadershipLost
from gavel.store.sql import SqlStore

LEASE_S = 4.0
LIMIT_S = 30.0
FOREIGN = "elsewhere:7:7:000000000000"  # a process of another machine: nobody here can see whether it lives

Open = Callable[[], SqlStore]


@pytest.fixture
def open_it(tmp_path: Path) -> Iterator[Open]:
    opened: list[SqlStore] = []

    def open_one() -> SqlStore:
        opened.append(SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}"))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


class HandClock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lead_elsewhere(store: SqlStore) -> None:
    seen = store.leadership.current()
    assert store.leadership.take(FOREIGN, lease_s=LEASE_S, seen=seen)


def test_a_silence_counts_from_when_it_was_first_heard_and_any_beat_ends_it(open_it: Open) -> None:
    leader, clock = open_it(), HandClock()
    lead_elsewhere(leader)
    candidate = Candidate(open_it().leadership, lease_s=LEASE_S, monotonic_s=clock)
    clock.now_s = 1000.0  # however long this process has run: it has just looked for the first time
    assert candidate.try_to_lead() is None and candidate.leader() == FOREIGN
    clock.now_s += LEASE_S - 0.1
    leader.leadership.beat()
    assert candidate.try_to_lead() is None
    clock.now_s += LEASE_S - 0.1
    assert candidate.try_to_lead() is None and candidate.leader() == FOREIGN
    clock.now_s += 0.2
    assert candidate.leader() == ""
    term = candidate.try_to_lead()
    assert term is not None and term.generation == 2


def test_a_standby_that_slept_itself_blames_nobody(open_it: Open) -> None:
    leader, clock = open_it(), HandClock()
    lead_elsewhere(leader)
    candidate = Candidate(open_it().leadership, lease_s=LEASE_S, monotonic_s=clock)
    assert candidate.try_to_lead() is None
    leader.leadership.beat()  # while the standby sleeps for an hour
    clock.now_s += 3600.0
    assert candidate.try_to_lead() is None


def test_a_leader_that_resigned_is_followed_at_once(open_it: Open) -> None:
    leader = open_it()
    lead_elsewhere(leader)
    candidate = Candidate(open_it().leadership, lease_s=LEASE_S, monotonic_s=HandClock())
    assert candidate.try_to_lead() is None
    leader.leadership.resign()
    term = candidate.try_to_lead()
    assert term is not None and term.generation == 2 and shown(candidate.leader()).endswith(f"pid {os.getpid()}")


def test_a_leader_of_this_machine_that_was_killed_is_followed_at_once(open_it: Open) -> None:
    program = "import sys; from gavel.daemon.leading import own_name; print(own_name(), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        name = process.stdout.readline().decode().strip()
        assert not is_gone(name) and not is_gone(own_name()) and not is_gone(FOREIGN)
        store = open_it()
        assert store.leadership.take(name, lease_s=LEASE_S, seen=store.leadership.current())
        candidate = Candidate(open_it().leadership, lease_s=LEASE_S, monotonic_s=HandClock())
        assert candidate.try_to_lead() is None
        process.kill()
        process.wait()
        assert is_gone(name) and candidate.try_to_lead() is not None


def test_a_leader_whose_process_is_hidden_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the restrictions of a unit, or a `/proc` that is mounted with `hidepid`, hide it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        name = own_name().replace(f":{os.getpid()}:", f":{process.pid}:")
        monkeypatch.setattr(machine, "stat_fields", Mock(side_effect=FileNotFoundError))
        assert not is_gone(name)
        process.kill()
        process.wait()
        assert is_gone(name)


def test_a_heart_beats_while_the_loop_is_well_and_says_when_another_leads(open_it: Open) -> None:
    store, other = open_it(), open_it()
    leadership = store.leadership
    assert leadership.take("a", lease_s=0.2, seen=leadership.current())
    is_lost, is_well = threading.Event(), threading.Event()
    is_well.set()
    with Heart(leadership, lease_s=0.2, is_well=is_well.is_set, on_lost=is_lost.set) as heart:
        first = leadership.current().beat
        assert wait_until(lambda: leadership.current().beat > first + 2, LIMIT_S, 0.01)
        heart.check()
        seen = other.leadership.current()
        while other.leadership.take("b", lease_s=9.0, seen=seen) is None:
            seen = other.leadership.current()
        assert is_lost.wait(LIMIT_S)
        with pytest.raises(LeadershipLost):
            heart.check()


def test_a_loop_that_hangs_lets_its_lease_run_out(open_it: Open) -> None:
    leadership = open_it().leadership
    assert leadership.take("a", lease_s=0.2, seen=leadership.current())
    asked = threading.Semaphore(0)

    def is_well() -> bool:
        asked.release()
        return False

    with Heart(leadership, lease_s=0.2, is_well=is_well, on_lost=lambda: None):
        before = leadership.current()
        assert all(asked.acquire(timeout=LIMIT_S) for _ in range(3))
        assert leadership.current() == before


SLEEPER = """
import os, signal, sys
from gavel.errors import LeadershipLost
from gavel.ports import Changes, JobEvent
from gavel.store.sql import SqlStore
store = SqlStore(sys.argv[1])
leadership = store.leadership
assert leadership.take("sleeper", lease_s=1.0, seen=leadership.current())
version = store.snapshot().version  # it has decided, and is about to commit
os.kill(os.getpid(), signal.SIGSTOP)
try:
    store.commit(version, Changes(events=(JobEvent(job_id="", at_s=1.0, kind="planned", message="late"),)))
except LeadershipLost:
    print("refused", flush=True)
"""


def test_a_commit_that_was_asleep_before_it_began_is_refused_though_nothing_else_changed(
    open_it: Open, tmp_path: Path
) -> None:
    store = open_it()
    command = [sys.executable, "-c", SLEEPER, f"sqlite:///{tmp_path / 'gavel.db'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sleeper:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert store.leadership.take("next", lease_s=9.0, seen=store.leadership.current())
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.stdout and sleeper.stdout.read() == "refused\n"
    assert store.snapshot().version == 0 and not store.events("")
