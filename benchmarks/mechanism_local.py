"""How fast the local backend carries a plan out: gangs, leases, durable resources. Medians of wall time.

"Durable" is a real SQLite journal with full synchronisation: the command's commit, the tick that decides it, the commit
of what it decided, and the cluster told.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks.table import Row, run
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.launch import Preparation
from gavel.backends.local import LocalBackend
from gavel.backends.sandbox import bubblewrap
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import ForgetGang, Instruction, LaunchGang, SetResources, StopGang
from gavel.store.sql import SqlStore
from gavel.types import EphemeralResource, GangSeen, GangState, OperationState, Worker

LIMIT_S = 30.0
NODE = "here"
TRAIN = """
import pickle
from gavel_runtime import job

model = {"weights": [0.5] * 4096}


def save(path):
    (path / "model").write_bytes(pickle.dumps(model))


for step in job.steps(checkpoint=save, restore=lambda path: None):
    model["weights"][step % 4096] += 1e-3
"""


def rows(quick: bool) -> Iterator[Row]:
    """Figures of the local backend on this machine; it is done in well under a minute."""
    for size, limit_ms in ((8, 150.0), (64, 600.0)):
        with a_cluster(size) as cluster:
            spent = [cluster.gang_start_ms(size) for _ in range(3 if quick else 15)]
        yield Row(f"gang of {size}, from plan to all processes executing", statistics.median(spent), "ms", limit_ms)
    yield from sandbox_rows(3 if quick else 21)
    with a_cluster(1) as cluster:
        spent = [cluster.hand_over_ms() for _ in range(3 if quick else 9)]
    yield Row("lease hand-over: stop, checkpoint, next gang executing", statistics.median(spent), "ms", 500.0)
    with a_cluster(8) as cluster, a_scheduler(cluster) as scheduler:
        for count_, limit_ms in ((1, 5.0), (64, None)):
            repetitions, began_s = 20 if quick else 200, time.process_time()
            spent = [scheduler.set_resources_ms(count_) for _ in range(repetitions)]
            cpu_ms = (time.process_time() - began_s) * 1e3 / repetitions
            name = "set_resource with durable journal" if count_ == 1 else f"{count_} of them in one batch"
            yield Row(name, statistics.median(spent), "ms", limit_ms)
            yield Row(f"{name}, CPU", cpu_ms, "CPU ms")


def sandbox_rows(repetitions: int) -> Iterator[Row]:
    """What a sandbox adds to the start of a gang, measured in turns with and without one."""
    if bubblewrap().problem:
        return
    for size in (1, 8):
        with a_cluster(size) as sandboxed, a_cluster(size, "none") as plain:
            pairs = [(sandboxed.gang_start_ms(size), plain.gang_start_ms(size)) for _ in range(repetitions)]
        within_ms, without_ms = (statistics.median(spent) for spent in zip(*pairs, strict=True))
        yield Row(f"start of a gang of {size}: what a sandbox adds", within_ms - without_ms, "ms", 30.0)
        yield Row(f"start of a gang of {size}: with a sandbox to without", within_ms / without_ms, "ratio")


class Bench:
    """A local backend of oversubscribed workers, observed as the service does: whenever something has ended."""

    def __init__(self, folder: Path, workers: int, isolation: str) -> None:
        self._changed = threading.Event()
        self._clock = SystemClock()
        self._numbers = count(1)
        cpus = sorted(os.sched_getaffinity(0))
        self._workers = [f"w-{index}" for index in range(workers)]
        self.folder, self.clock = folder, self._clock
        self.backend = LocalBackend(
            state_dir=folder,
            accelerators=[_accelerator(each, cpus[index % len(cpus)]) for index, each in enumerate(self._workers)],
            clock=self._clock,
            lease_grace_s=5.0,
            log_bytes_per_job=1 << 16,
            on_change=self._changed.set,
            preparation=Preparation(isolation=isolation),
        )

    def gang_start_ms(self, size: int) -> float:
        """From the instructions of a plan to the last of `size` processes executing."""
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        job_id = self._launch("sleep", "60", size=size)
        started = self._wait(job_id, lambda seen: seen.started_at_s is not None)
        spent_s = (started.started_at_s or 0.0) - self._instant_s(began_s)
        self._end(job_id)
        return spent_s * 1e3

    def hand_over_ms(self) -> float:
        """From the stop of a gang that trains to the next one executing on its worker."""
        first = self._launch(sys.executable, "-c", TRAIN)
        self._wait(first, lambda seen: any(report.steps for report in seen.reports))
        second = self._launch("sleep", "60")
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.backend.execute([StopGang(job_id=first, generation=1)])
        started = self._wait(second, lambda seen: seen.started_at_s is not None)
        spent_s = (started.started_at_s or 0.0) - self._instant_s(began_s)
        self._end(first, second)
        return spent_s * 1e3

    def _launch(self, *argv: str, size: int = 1) -> str:
        job_id, now_s = f"job-{next(self._numbers)}", self._clock.now_s()
        name = EphemeralResource(
            name=job_id, node=NODE, capacity=size, owner="gavel", lease_expires_at_s=now_s + 90, generation=1
        )
        self.backend.execute([SetResources(resources=(name,)), _gang(job_id, argv, self._workers[:size], now_s + 60)])
        return job_id

    def _wait(self, job_id: str, holds: Callable[[GangSeen], bool]) -> GangSeen:
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s:
            self._changed.clear()
            for seen in self.backend.observe().gangs:
                if seen.job_id == job_id and holds(seen):
                    return seen
            self._changed.wait(0.01)
        raise TimeoutError(f"{job_id} did not come so far within {LIMIT_S} s")

    def _end(self, *job_ids: str) -> None:
        """Stop and forget, so that the next measurement begins alike."""
        self.backend.execute([StopGang(job_id=job_id, generation=1) for job_id in job_ids])
        for job_id in job_ids:
            self._wait(job_id, lambda seen: seen.state is GangState.ENDED)
        forget: list[Instruction] = [ForgetGang(job_id=job_id, generation=1) for job_id in job_ids]
        self.backend.execute(forget)

    def _instant_s(self, boottime_s: float) -> float:
        return self._clock.now_s() - time.clock_gettime(time.CLOCK_BOOTTIME) + boottime_s


class Scheduler:
    """The production driver over a SQLite store and the bench's cluster, ticked by hand."""

    def __init__(self, bench: Bench, store: SqlStore) -> None:
        self._clock, self._store = bench.clock, store
        self._generations = count(1)
        self._driver = Driver(
            store=store,
            backend=bench.backend,
            runner=InlineRunner(),
            estimator=ReconciledThroughputs.from_table(()),
            fallback=EqualShare(),
            clock=bench.clock,
            settings=Settings(state_dir=bench.folder),
        )
        self._driver.tick()

    def set_resources_ms(self, size: int) -> float:
        """From the call to the names being in force, on disk and on the cluster."""
        capacity = next(self._generations)
        items = [
            {"owner": "app", "name": f"n{index}", "nodes": NODE, "capacity": capacity, "ttl_s": 60.0}
            for index in range(size)
        ]
        began = time.perf_counter()
        asked = self._store.add_command(
            "resources.set", subject="bench", body={"resources": items}, by="bench", now_s=self._clock.now_s()
        )
        self._driver.tick()
        spent_s = time.perf_counter() - began
        assert self._store.operation(asked.id).state is OperationState.DONE
        return spent_s * 1e3


@contextmanager
def a_scheduler(bench: Bench) -> Iterator[Scheduler]:
    """A scheduler with a database in the bench's folder."""
    store = SqlStore(f"sqlite:///{bench.folder / 'gavel.db'}")
    try:
        yield Scheduler(bench, store)
    finally:
        store.close()


@contextmanager
def a_cluster(workers: int, isolation: str = "auto") -> Iterator[Bench]:
    """A bench in a folder of its own; no process of it is left afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        made = Bench(Path(folder), workers, isolation)
        try:
            yield made
        finally:
            made.backend.close()


def _accelerator(name: str, cpu: int) -> LocalAccelerator:
    return LocalAccelerator(worker=Worker(id=name, node=NODE, accelerator_type="cpu"), cpus=(cpu,))


def _gang(job_id: str, argv: Sequence[str], workers: Sequence[str], expires_at_s: float) -> LaunchGang:
    return LaunchGang(
        job_id=job_id,
        generation=1,
        user="bench",
        argv=tuple(argv),
        env={},
        accelerator_type="cpu",
        worker_ids=tuple(workers),
        resource=f"gavel/{job_id}",
        lease_expires_at_s=expires_at_s,
        start_step=0,
        total_steps=10**9,
        checkpoint=None,
    )


if __name__ == "__main__":
    run("The local backend", rows)
