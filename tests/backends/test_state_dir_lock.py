"""One writer of a state directory: a newer term takes it from a suspended service of the same database only."""

from pathlib import Path

import pytest

from gavel.backends.folder import StateFolder
from gavel.backends.harness import find, gang, is_in, stop
from gavel.backends.nodes.gang import NodesGang, stored_gangs
from gavel.backends.state_dir_lock import StateDirLock
from gavel.errors import BackendUnavailable
from gavel.types import GangState, Term
from tests.backends.clusters import LocalHarness
from tests.backends.ray.test_agent import a_launch


def term(generation: int, database: str = "db1") -> Term:
    return Term(database=database, generation=generation)


def test_what_the_one_before_writes_late_fails_and_reaches_nothing(tmp_path: Path) -> None:
    old = StateFolder(tmp_path, term(1))
    old.raise_fence("job-1", 3)
    new = StateFolder(tmp_path, term(2))
    with pytest.raises(FileNotFoundError):
        old.raise_fence("job-1", 9)
    with pytest.raises(FileNotFoundError):
        old.keep_resources([])
    newest = StateFolder(tmp_path, term(3))
    assert newest.fence("job-1") == 3 == new.fence("job-1")
    for each in (old, new, newest):
        each.close()


@pytest.mark.parametrize("late", [term(1), term(2), term(9, "db2"), None])
def test_no_older_term_no_other_database_and_nobody_without_a_term_takes_over(tmp_path: Path, late: Term) -> None:
    held = StateFolder(tmp_path, term(2))
    with pytest.raises(BackendUnavailable, match="another service uses"):
        StateDirLock(tmp_path, late)
    held.raise_fence("job-1", 3)
    held.close()


@pytest.mark.parametrize("later", [term(1), term(1, "db2"), None])
def test_a_directory_that_nobody_holds_is_anybodys(tmp_path: Path, later: Term) -> None:
    """The database may have been restored from a backup, or be another one."""
    old = StateFolder(tmp_path, term(5))
    old.close()
    new = StateFolder(tmp_path, later)
    new.raise_fence("job-1", 3)
    with pytest.raises(FileNotFoundError):
        old.raise_fence("job-1", 9)
    new.close()


def test_one_that_fell_asleep_between_lock_and_name_finds_the_directory_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Term 2 has the lock and sleeps. 2. Term 3 takes over. 3. Term 2 goes on: it is refused, term 3 works on."""
    StateFolder(tmp_path, term(1)).close()
    entered: list[StateFolder] = []
    enter = StateDirLock._enter

    def asleep(self: StateDirLock, mine: Term) -> Term:
        monkeypatch.setattr(StateDirLock, "_enter", enter)
        entered.append(StateFolder(tmp_path, term(3)))
        return enter(self, mine)

    monkeypatch.setattr(StateDirLock, "_enter", asleep)
    with pytest.raises(BackendUnavailable, match="another service uses"):
        StateFolder(tmp_path, term(2))
    entered[0].raise_fence("job-1", 3)
    with pytest.raises(BackendUnavailable, match="another service uses"):
        StateDirLock(tmp_path, None)
    entered[0].close()


def test_gangs_run_on_under_the_next_leader_whatever_the_last_one_still_tries(harness: LocalHarness) -> None:
    """1. Term 1 runs a gang, another waits. 2. Term 2 adopts both. 3. What term 1 still does has no effect."""
    harness.crash()
    old = harness.backend = harness.open(term=term(1))
    old.execute([*gang(harness, "runs", "a-0", "a-1"), *gang(harness, "waits", "a-0")])
    harness.wait_until(is_in(GangState.RUNNING, "runs"))
    harness.backend = harness.open(term=term(2))
    late = [gang(harness, "new", "b-0"), gang(harness, "waits", "b-0", generation=2), stop("runs")]
    for instructions in late:
        with pytest.raises(BackendUnavailable, match="cannot execute"):
            old.execute(instructions)
    seen = harness.wait_until(is_in(GangState.RUNNING, "runs"))
    assert is_in(GangState.WAITING, "waits")(seen) and find(seen, "new") is None
    old.close()  # it steps down: the newer one does not notice
    harness.backend.execute(stop("runs"))
    harness.wait_until(is_in(GangState.RUNNING, "waits"))
    assert harness.processes() == 1


def stored_by(folder: StateFolder) -> None:
    """Store a gang there as the service of a Ray cluster does."""
    launch = a_launch(Path("/nodes"))
    made = NodesGang(
        instruction=launch.instruction, directory=folder.own_gang(folder.places("j1", 1)), lease_boottime_s=0.0
    )
    made.remember(0.0)


@pytest.mark.parametrize(("later", "is_current"), [(term(2), True), (term(1), True), (term(3), False), (None, True)])
def test_what_is_stored_of_gangs_counts_unless_another_service_has_led_since(
    tmp_path: Path, later: Term | None, is_current: bool
) -> None:
    """It has a folder of its own, and may have extended or ended any of them."""
    before = StateFolder(tmp_path, term(1))
    stored_by(before)
    before.close()
    folder = StateFolder(tmp_path, later)
    current, outdated = stored_gangs(folder, 0.0)
    assert ([gang.key for gang in current], [*outdated]) == (([("j1", 1)], []) if is_current else ([], [("j1", 1)]))
    assert len([*folder.gangs()]) == len(current), "what no longer counts is not read again"
    folder.close()


def test_a_fence_is_withdrawn_only_from_what_it_was_assumed_for(tmp_path: Path) -> None:
    """A stored fence stays, and that of a newer gang."""
    folder = StateFolder(tmp_path)
    folder.assume_fence("j1", 4)
    folder.withdraw_fence("j1", 2)
    assert folder.fence("j1") == 4
    folder.withdraw_fence("j1", 3)
    assert folder.fence("j1") == 0
    folder.raise_fence("j1", 4)
    folder.withdraw_fence("j1", 3)
    assert folder.fence("j1") == 4
    folder.close()
