"""How long an accelerator is idle at a hand-over: from the end of a gang to the first step of the next one.

Two jobs take turns on one worker under the production driver, with programs started before their lease and without. The
script imports PyTorch where `make frameworks-env` has installed it, else a library that takes two seconds.
"""

import os
import statistics
import tempfile
import venv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.table import Row, run
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.local import LocalBackend
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import Instruction, StopGang
from gavel.store.sql import SqlStore
from gavel.types import GangSeen, GangState, JobSpec, Observation, Worker

FRAMEWORKS = Path(__file__).parents[1] / ".venv-frameworks" / "bin" / "python"
LIMIT_S = 400.0
SCRIPT = """
import {library}
from gavel_runtime import job

for step in job.steps(checkpoint=lambda path: None, restore=lambda path: None):
    __import__("time").sleep(0.02)
"""


def rows(quick: bool) -> Iterator[Row]:
    """Medians over hand-overs; it takes four minutes, with PyTorch ten; with QUICK=1 a half of that."""
    for is_warm in (False, True):
        library, idle_s = hand_overs_s(is_warm=is_warm, count=3 if quick else 8)
        name = f"idle accelerator at a hand-over, import {library}, {'warm' if is_warm else 'cold'}"
        yield Row(name, statistics.median(idle_s), "s", 1.0 if is_warm else None)
        yield Row(f"{name}, longest", max(idle_s), "s")


def hand_overs_s(*, is_warm: bool, count: int) -> tuple[str, list[float]]:
    """Return which library the script imports, and how long the worker was idle at each of `count` hand-overs."""
    with tempfile.TemporaryDirectory() as folder:
        library, python = _interpreter(Path(folder))
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT.format(library=library))
        settings = Settings(
            state_dir=Path(folder) / "state",
            round_duration_s=16.0 if library == "torch" else 6.0,  # half of it is enough for the import
            planning_lead_fraction=0.5,
            price_moves=False,
            policy="max_min_fairness",  # both jobs at the same speed, and so in turns
            warm_starts=is_warm,
            warm_memory_bytes=1 << 28,
        )
        with closing(Turns(settings, python, script)) as turns:
            return library, turns.idle_s(count)


def _interpreter(folder: Path) -> tuple[str, str]:
    """Return a library that takes its time, and an interpreter that has it."""
    if FRAMEWORKS.exists():
        return "torch", str(FRAMEWORKS)
    venv.create(folder / "venv", symlinks=True)
    installed = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (installed / "slow_library.py").write_text("import time\ntime.sleep(2.0)\n")
    return "slow_library", str(folder / "venv" / "bin" / "python")


class Watched(LocalBackend):
    """Remembers when each gang began to train, and when it ended."""

    trained_at_s: dict[tuple[str, int], float]
    ended_at_s: dict[tuple[str, int], float]

    def observe(self) -> Observation:
        """Return the observation, after noting the instants in it."""
        seen = super().observe()
        for gang in seen.gangs:
            self._note(gang)
        return seen

    def _note(self, gang: GangSeen) -> None:
        key = (gang.job_id, gang.generation)
        first = next((report for report in gang.reports if report.startup_s is not None), None)
        if first is not None and gang.started_at_s is not None:
            self.trained_at_s[key] = gang.started_at_s + (first.startup_s or 0.0) + (first.restore_s or 0.0)
        if gang.ended_at_s is not None:
            self.ended_at_s.setdefault(key, gang.ended_at_s)


class Turns:
    """Two jobs on one worker, and the production driver that lets them take turns."""

    def __init__(self, settings: Settings, python: str, script: Path) -> None:
        self._clock = SystemClock()
        cpu = sorted(os.sched_getaffinity(0))[:1]
        self._backend = Watched(
            state_dir=settings.state_dir,
            accelerators=[
                LocalAccelerator(worker=Worker(id="w-0", node="here", accelerator_type="cpu"), cpus=tuple(cpu))
            ],
            clock=self._clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=1 << 16,
            warm_memory_bytes=settings.warm_memory_bytes,
            on_change=self._clock.wake,
        )
        self._backend.trained_at_s, self._backend.ended_at_s = {}, {}
        self._store = SqlStore(f"sqlite:///{settings.state_dir / 'gavel.db'}")
        self._tick_s = settings.tick_s
        self._driver = Driver(
            store=self._store,
            backend=self._backend,
            runner=InlineRunner(),
            estimator=ReconciledThroughputs.from_table(()),
            fallback=EqualShare(),
            clock=self._clock,
            settings=settings,
        )
        for _ in range(2):
            spec = JobSpec(
                kind="bench",
                user="bench",
                tier="default",
                argv=("python", str(script)),
                python=python,
                total_steps=10**9,
            )
            self._store.submit(spec, key=None, body_hash="", now_s=self._clock.now_s())

    def idle_s(self, count: int) -> list[float]:
        """Return how long the worker was idle at the next `count` hand-overs, after one of each job."""
        deadline_s = self._clock.now_s() + LIMIT_S
        while len(idle_s := self._gaps_s()[2:]) < count:
            if self._clock.now_s() > deadline_s:
                raise TimeoutError(f"{len(idle_s)} of {count} hand-overs came within {LIMIT_S} s")
            due_s = self._driver.tick()
            self._clock.wait(min(due_s, self._clock.now_s() + self._tick_s))
        return idle_s

    def _gaps_s(self) -> list[float]:
        """Return the seconds from the end of each gang to the training of the next one."""
        began_s = sorted(self._backend.trained_at_s.values())[1:]
        ended_s = sorted(self._backend.ended_at_s.values())
        return [began - ended for began, ended in zip(began_s, ended_s, strict=False)]

    def close(self) -> None:
        """End the gangs, wait until they have ended, and close all."""
        stops: list[Instruction] = [
            StopGang(job_id=gang.job_id, generation=gang.generation) for gang in self._backend.observe().gangs
        ]
        self._backend.execute(stops)
        while any(gang.state is not GangState.ENDED for gang in self._backend.observe().gangs):
            self._clock.wait(self._clock.now_s() + self._tick_s)
        self._backend.close()
        self._store.close()


if __name__ == "__main__":
    run("Warm starts", rows)
