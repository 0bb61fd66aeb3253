"""A run of the demo of elastic jobs on real processes: a service of its own, and each job submitted at its arrival."""

import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from gavel.client import Client
from gavel.client import Job as JobView
from gavel.demo.elastic.workload import (
    GLOBAL_BATCH,
    RIGID_SIZE,
    SAMPLE_MS,
    SIZES,
    WORKERS,
    WORKERS_PER_CORE,
    ElasticJob,
)
from gavel.demo.first_job import FIRST, TERMINAL, run_first_job
from gavel.demo.service import ServiceProcess
from gavel.types import FloatArray
from workloads.training import elastic as program

LOOK_EVERY_S = 1.0
TOLD_EVERY_S = 10.0
ROUND_S = 2.5
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": str(ROUND_S),
    "GAVEL_PLANNING_LEAD_FRACTION": "0.4",  # a round is planned in time on a busy machine, too
    "GAVEL_LEASE_GRACE_S": "2",
    "GAVEL_SPACE_SHARING": "false",  # workers whose time is mostly waited would seem to be free for a second job
    "GAVEL_CPU_WORKERS": str(WORKERS),
    "GAVEL_CPU_WORKERS_PER_CORE": str(WORKERS_PER_CORE),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A job that was completed. `curve`, (steps, 3): of each step its loss, the gang's size, when it was done."""

    name: str
    submitted_at_s: float
    jct_s: float
    curve: FloatArray

    @property
    def losses(self) -> FloatArray:
        """Return the loss of each step."""
        return self.curve[:, 0]

    @property
    def sizes(self) -> list[tuple[int, float, float]]:
        """Return each size that it had, one after another, with the instants between which its steps were done."""
        sizes, at_s = self.curve[:, 1], self.curve[:, 2]
        firsts = [0, *(int(each) for each in np.flatnonzero(np.diff(sizes)) + 1)]
        lasts = [*(each - 1 for each in firsts[1:]), len(sizes) - 1]
        began = [float(2 * at_s[first] - at_s[min(first + 1, last)]) for first, last in zip(firsts, lasts, strict=True)]
        return [
            (int(sizes[first]), from_s, float(at_s[last]))
            for first, last, from_s in zip(firsts, lasts, began, strict=True)
        ]

    @property
    def changes_s(self) -> list[float]:
        """Return how long each change of size kept it from training: from one step's end to the next one's begin."""
        sizes = self.sizes
        return [after[1] - before[2] for before, after in pairwise(sizes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run left: the jobs that were completed, by their arrival, and the processes of its service."""

    trained: tuple[Trained, ...]
    left: tuple[str, ...]

    @property
    def mean_jct_s(self) -> float:
        """Return the mean time from the submission of a job to its end."""
        return float(np.mean([each.jct_s for each in self.trained]))


def ran(
    workload: Sequence[ElasticJob], folder: Path, until_s: float, tell: Callable[[str], None], *, is_elastic: bool
) -> Ran:
    """Return the run, which is cut off at `until_s` of the monotonic clock. All that it started is stopped."""
    with ServiceProcess(folder.resolve(), SETTINGS) as service:
        title = f"sizes {', '.join(map(str, SIZES))}" if is_elastic else f"always {RIGID_SIZE} workers"
        tell(f"{title}: {service.url}")
        with Client(service.url, service.operator_token) as operator:
            run_first_job(operator)
            _run(operator, workload, until_s, tell, is_elastic=is_elastic)
            trained = tuple(_trained(operator, job) for job in _own(operator) if job["state"] == "COMPLETED")
    return Ran(trained=trained, left=tuple(f"pid {each.pid}" for each in service.processes_left()))


def _run(
    operator: Client, workload: Sequence[ElasticJob], until_s: float, tell: Callable[[str], None], *, is_elastic: bool
) -> None:
    """Submit each job at its arrival, until all have ended."""
    waiting, start_s, told_s = list(workload), time.monotonic(), 0.0
    while time.monotonic() < until_s:
        elapsed_s = time.monotonic() - start_s
        while waiting and waiting[0].arrives_s <= elapsed_s:
            _submit(operator, waiting.pop(0), is_elastic=is_elastic)
        jobs = _own(operator)
        if elapsed_s - told_s >= TOLD_EVERY_S:
            told_s = elapsed_s
            tell(_line(jobs, elapsed_s))
        if not waiting and all(each["state"] in TERMINAL for each in jobs):
            return
        time.sleep(LOOK_EVERY_S)


def _submit(operator: Client, job: ElasticJob, *, is_elastic: bool) -> None:
    argv = [sys.executable, program.__file__, "--seed", str(job.seed), "--sample-ms", str(SAMPLE_MS)]
    argv += ["--global-batch", str(GLOBAL_BATCH)]
    if is_elastic:
        operator.submit(name=job.name, argv=argv, total_steps=job.steps, sizes=SIZES, global_batch=GLOBAL_BATCH)
    else:
        operator.submit(name=job.name, argv=argv, total_steps=job.steps, scale_factor=RIGID_SIZE)


def _own(operator: Client) -> list[JobView]:
    """Return the jobs of the demo by their arrival."""
    jobs = [each for each in operator.jobs() if each["name"] != FIRST]
    return sorted(jobs, key=lambda each: each["submitted_at_s"])


def _line(jobs: Sequence[JobView], elapsed_s: float) -> str:
    sizes = ", ".join(f"{each['name']} {len(each['worker_ids'])}" for each in jobs if each["worker_ids"])
    ended = sum(each["state"] in TERMINAL for each in jobs)
    return f"  {elapsed_s:4.0f} s  {ended} of {len(jobs)} jobs have ended; workers: {sizes or 'none are held'}"


def _trained(operator: Client, job: JobView) -> Trained:
    written = b"".join(operator.read_file(job["id"], program.CURVE_FILE))
    return Trained(
        name=job["name"],
        submitted_at_s=job["submitted_at_s"],
        jct_s=job["jct_s"] or 0.0,
        curve=np.load(io.BytesIO(written), allow_pickle=False),
    )
