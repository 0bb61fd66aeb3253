"""What a leader does beside its rounds: again and again, and one task's trouble is not another's."""

import os
import threading
from dataclasses import replace
from pathlib import Path

from gavel.backends.disk import Disk
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.background import Periodic, in_background
from gavel.daemon.chores import chores
from gavel.ports import Changes
from gavel.store.sql import SqlStore
from gavel.types import JobState
from tests.builders import a_spec

LIMIT_S = 60.0


def test_a_task_that_fails_is_run_again_and_holds_up_no_other() -> None:
    failures, runs, is_done = [], [], threading.Event()

    def fail() -> None:
        failures.append(1)
        raise OSError("the disk has a bad moment")

    def run() -> None:
        runs.append(1)
        if len(runs) >= 3 and len(failures) >= 3:
            is_done.set()

    with in_background((Periodic(fail, 0.0), Periodic(run, 0.0))):
        assert is_done.wait(LIMIT_S)
    assert threading.active_count() == len([each for each in threading.enumerate() if each.name != "gavel-background"])


def test_output_folders_go_some_time_after_the_end_of_their_jobs(tmp_path: Path) -> None:
    """1 the job has ended long ago, 2 it lives, 3 nobody knows it; a folder written lately stays in any case."""
    store = SqlStore(f"sqlite:///{tmp_path / 'gavel.db'}")
    ended, living = (store.submit(a_spec(tier="default"), key=None, body_hash="", now_s=1.0).job for _ in range(2))
    gone = replace(ended, state=JobState.CANCELLED, finished_at_s=10.0)
    store.commit(store.snapshot().version, Changes(jobs=(gone,)))
    for name in (ended.id, living.id, "unknown", "new"):
        (tmp_path / "outputs" / name).mkdir(parents=True)
        if name != "new":
            os.utime(tmp_path / "outputs" / name, (0, 0))
    settings = Settings(state_dir=tmp_path, keep_outputs_s=3600.0)
    for each in chores(settings, store, SystemClock(), Disk(settings, lambda _: None), lambda _: None):
        each.run()
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == {living.id, "new"}
    store.close()
