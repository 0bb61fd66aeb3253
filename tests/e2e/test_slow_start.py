"""Real programs whose start takes longer than a round share a worker and complete."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gavel.config import Settings
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.simulator.oracle import OracleThroughputs
from gavel.store.memory import MemoryStore
from gavel.types import Job
from tests.backends.clusters import LocalHarness
from tests.builders import a_spec

ROUND_S = 0.5
TICKS_MAX = 4000
SLOW = f"""
import time
time.sleep({3 * ROUND_S})  # what it imports
from gavel_runtime import job

def save(folder):
    (folder / "state").write_text("saved")

for step in job.steps(checkpoint=save, restore=lambda folder: None):
    time.sleep(0.01)
"""


class OneWorker:
    """A driver over real processes, whose jobs run on one worker."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.harness = LocalHarness(folder)
        self.store = MemoryStore()
        self.driver = Driver(
            store=self.store,
            backend=self.harness.backend,
            runner=InlineRunner(),
            estimator=OracleThroughputs({("slow", 1, "b"): 100.0}),
            fallback=EqualShare(),
            clock=self.harness.clock,
            settings=Settings(policy="max_min_fairness", round_duration_s=ROUND_S, **settings),
        )

    def submit(self, name: str, argv: tuple[str, ...], **over: Any) -> str:
        spec = a_spec(name=name, kind="slow", tier="default", argv=argv, total_steps=60, **over)
        return self.store.submit(spec, key=None, body_hash="", now_s=self.harness.now_s()).job.id

    def run_to_the_end(self, *ids: str) -> list[Job]:
        for _ in range(TICKS_MAX):
            due_s = self.driver.tick()
            assert self.driver.halted is None, self.driver.halted
            jobs = [self.store.job(job_id) for job_id in ids]
            if all(job.state.is_terminal for job in jobs):
                return jobs
            self.harness.clock.wait(min(due_s, self.harness.now_s() + 0.05))
        raise AssertionError(f"not ended: {[(job.state, job.explanation) for job in jobs]}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[OneWorker]:
    made = OneWorker(tmp_path / "state")
    yield made
    made.harness.close()


@pytest.mark.full
def test_jobs_that_start_for_three_rounds_share_a_worker_and_complete(world: OneWorker) -> None:
    jobs = world.run_to_the_end(*(world.submit(name, (sys.executable, "-c", SLOW)) for name in ("one", "other")))
    assert [(job.state.value, job.steps_done) for job in jobs] == [("COMPLETED", 60)] * 2
    assert all(job.startup_s is not None and job.startup_s >= 3 * ROUND_S for job in jobs)
    (times,) = world.store.snapshot().startup_times
    assert (times.kind, times.accelerator_type) == ("slow", "b") and times.checkpoint_s


def test_a_program_that_knows_nothing_of_the_runtime_completes_by_its_exit(world: OneWorker) -> None:
    """It reports nothing, so its first lease lasts, too, and others wait for it."""
    plain = (sys.executable, "-c", f"import time; time.sleep({3 * ROUND_S})")
    jobs = world.run_to_the_end(world.submit("plain", plain), world.submit("other", plain))
    assert [job.state.value for job in jobs] == ["COMPLETED"] * 2
