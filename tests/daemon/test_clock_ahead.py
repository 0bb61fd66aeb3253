"""Nothing is deleted by its age for a day after a clock was set far ahead: nearly all would look old."""

from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gavel.backends.disk import Disk
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.daemon import clock_ahead
from gavel.daemon.chores import CLOCK_FILE, chores
from gavel.daemon.clock_ahead import FAR_S, WAITS_S, ClockAhead
from gavel.errors import NotFound
from gavel.ports import Changes
from gavel.store.sql import SqlStore
from gavel.types import JobState
from tests.builders import a_spec

DAY_S = 86_400.0
NOW_S = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / CLOCK_FILE


def looked(path: Path) -> ManualClock:
    """A clock at which a service has looked."""
    clock = ManualClock(NOW_S)
    assert ClockAhead(path, clock).waits_s() == 0.0
    return clock


@pytest.mark.parametrize("step_s", [FAR_S, -FAR_S, -400 * DAY_S, 3600.0])
def test_a_clock_that_is_set_back_or_a_little_ahead_is_believed(path: Path, step_s: float) -> None:
    clock = looked(path)
    clock.step(step_s)
    assert ClockAhead(path, clock).waits_s() == 0.0


def test_time_that_passes_is_no_step_however_long(path: Path) -> None:
    clock = looked(path)
    for _ in range(3):
        clock.advance(40 * DAY_S)
        assert ClockAhead(path, clock).waits_s() == 0.0


def test_after_a_clock_was_set_far_ahead_a_day_passes_and_the_log_says_so_once(path: Path) -> None:
    clock = looked(path)
    clock.step(31 * DAY_S)
    with capture_logs() as logs:
        assert ClockAhead(path, clock).waits_s() == WAITS_S
        clock.advance(0.75 * DAY_S)
        assert ClockAhead(path, clock).waits_s() == pytest.approx(0.25 * DAY_S)
    assert logs == [
        {"event": "clock.far_ahead", "by_s": 31 * DAY_S, "nothing_is_deleted_for_s": WAITS_S, "log_level": "warning"}
    ]
    clock.advance(0.25 * DAY_S)
    assert ClockAhead(path, clock).waits_s() == 0.0


def test_a_clock_that_is_put_right_is_believed_at_once(path: Path) -> None:
    clock = looked(path)
    clock.step(31 * DAY_S)
    assert ClockAhead(path, clock).waits_s() == WAITS_S
    clock.step(-31 * DAY_S)
    assert ClockAhead(path, clock).waits_s() == 0.0


@pytest.mark.parametrize(("off_s", "waits_s"), [(0.9 * DAY_S, 0.0), (1.1 * DAY_S, WAITS_S)])
def test_a_machine_that_was_off_for_longer_than_a_day_waits_too(
    path: Path, monkeypatch: pytest.MonkeyPatch, off_s: float, waits_s: float
) -> None:
    """The time since the boot begins anew, so that nobody knows for how long it was off."""
    looked(path)
    monkeypatch.setattr(clock_ahead, "boot_id", lambda: "another boot")
    clock = ManualClock(0.0)
    clock.step(NOW_S + off_s)
    assert ClockAhead(path, clock).waits_s() == waits_s


LOOK = '{"now_s": %s, "steady_s": %s, "boot_id": "b", "waits_s": %s}'


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", '{"now_s": 1}', LOOK % ('"x"', "0", "0"), LOOK % ("0", "null", "0"), LOOK % ("0", "0", "NaN")],
)
def test_a_file_that_cannot_be_read_is_as_none(path: Path, content: str) -> None:
    path.write_text(content)
    assert ClockAhead(path, ManualClock(NOW_S)).waits_s() == 0.0


def test_jobs_keys_and_outputs_outlive_a_clock_that_is_set_a_year_ahead(tmp_path: Path) -> None:
    clock = ManualClock(NOW_S)
    store = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}")
    job = store.submit(a_spec(tier="default"), key="k", body_hash="h", now_s=NOW_S).job
    gone = replace(job, state=JobState.CANCELLED, finished_at_s=NOW_S)
    store.commit(store.snapshot().version, Changes(jobs=(gone,)))
    (tmp_path / "outputs" / job.id).mkdir(parents=True)
    settings = Settings(state_dir=tmp_path)
    tasks = chores(settings, store, clock, Disk(settings, lambda _: None), lambda _: None)

    def clear() -> None:
        for each in tasks:
            each.run()

    clear()
    clock.step(400 * DAY_S)
    clear()
    assert store.submit(a_spec(tier="default"), key="k", body_hash="h", now_s=NOW_S).job.id == job.id
    assert (tmp_path / "outputs" / job.id).is_dir()
    clock.advance(DAY_S)
    clear()
    with pytest.raises(NotFound):
        store.job(job.id)
    store.close()
