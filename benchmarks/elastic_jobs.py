"""Elastic jobs of the published workloads: how fast each is on which type, with how many workers and which batch.

Read from the folder `elastic` of GAVEL_DATA: `fits.csv` (times of a step), `efficiency.csv` (what a step is worth) and
a file for each workload. Work is counted in steps of the family's smallest batch. A worker is taken to hold so many
samples at once as that batch has, on every type: the data does not say how many it does.
"""

import csv
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from gavel.types import FloatArray, IntArray

TYPES = ("t4", "rtx2080ti", "a100")
WORKERS_OF_NODE, WORKERS = np.array([4, 8, 8]), np.array([24, 24, 16])
SIZES = np.array([1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24])
RESTART_S = {"cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A job of a workload, with the workers and the batch that a user would choose for it by hand."""

    name: str
    arrival_s: float
    family: "Family"
    tuned_workers: int
    tuned_batch: int


@dataclass
class Active:
    """A job that has arrived and not ended."""

    job: ElasticJob
    done: float = 0.0
    held: int = -1  # its configuration
    restart_s: float = 0.0  # left of it
    restarts: int = 0
    worked_s: float = 0.0  # in the last round
    isolated_rate: float = 1.0  # work a second that it would make of a 1/n share now
    isolated_s: float = 0.0  # that the work done would have taken at the isolated rate
    rivals: list[int] = field(default_factory=list)
    misstated: float = 1.0  # what the rule takes to be left of it, times the truth


Speeds = Callable[[ElasticJob, float], FloatArray]
"""Work a second of a job that has done so much, by type and size, (m, k)."""


@dataclass(frozen=True, eq=False)
class Family:
    """Models of one family: `fits` by type are a step's times, `worth` by batch the (iterations, work) so far."""

    name: str
    fits: Mapping[str, Mapping[str, float]]
    worth: Mapping[int, FloatArray]  # (epochs + 1, 2)

    @cached_property
    def work(self) -> float:
        """Return the work of a whole training."""
        return float(self.worth[min(self.worth)][-1, 1])

    @cached_property
    def _step_s(self) -> Mapping[int, FloatArray]:
        """Seconds of a step, by batch (m, k); +inf where a size is not possible."""
        return {batch: self._step_times(batch) for batch in self.worth}

    def _step_times(self, batch: int) -> FloatArray:
        times = np.full((len(TYPES), len(SIZES)), np.inf)
        for row, name in enumerate(TYPES):
            for column, size in enumerate(SIZES.tolist()):
                if size <= min(batch, WORKERS[row]):
                    is_inside = size <= WORKERS_OF_NODE[row]
                    times[row, column] = step_s(self.fits[name], size, batch, min(self.worth), is_inside)
        return times

    def speeds(self, work_done: float, batches: Iterable[int] = ()) -> FloatArray:
        """Return the work a second, (m, k), with the best of these batches (all, if none is named); 0: not possible."""
        each = [self.worth_of_step(batch, work_done) / self._step_s[batch] for batch in (batches or self.worth)]
        best: FloatArray = np.max(each, axis=0)
        return best

    def worth_of_step(self, batch: int, work_done: float) -> float:
        """Return the work that a step of so many samples does once `work_done` is done."""
        so_far = self.worth[batch]
        epoch = min(max(1, int(np.searchsorted(so_far[:, 1], work_done, side="right"))), len(so_far) - 1)
        iterations, work = so_far[epoch] - so_far[epoch - 1]
        return float(work / iterations)


def step_s(fit: Mapping[str, float], size: int, batch: int, local_most: int, is_inside: bool) -> float:
    """Return the seconds of a step of `batch` samples on `size` workers, in as few micro-steps as a worker can hold."""
    parts = max(1, -(-batch // (size * local_most)))
    micro_s = fit["alpha_c"] + fit["beta_c"] * batch / (size * parts)
    place, gamma = ("r" if is_inside else "n"), fit["gamma"]
    network_s = 0.0 if size == 1 else fit[f"alpha_{place}"] + fit[f"beta_{place}"] * (size - 2)
    return (parts - 1) * micro_s + float((micro_s**gamma + network_s**gamma) ** (1 / gamma))


def is_usual() -> FloatArray:
    """Return where elastic jobs may run, (m, k): powers of two inside a node, and whole nodes."""
    powers = (SIZES & (SIZES - 1)) == 0
    inside = powers & (WORKERS_OF_NODE[:, None] >= SIZES)
    whole = (SIZES % WORKERS_OF_NODE[:, None] == 0) & (WORKERS[:, None] >= SIZES)
    return np.asarray(inside | whole, dtype=np.float64)


def workload(name: str) -> list[ElasticJob]:
    """Return the jobs of a workload in the order of their arrival. Raises KeyError without GAVEL_DATA."""
    families = _families()
    return [
        ElasticJob(
            name=row["job"],
            arrival_s=float(row["arrival_s"]),
            family=families[row["family"]],
            tuned_workers=int(row["tuned_workers"]),
            tuned_batch=int(row["tuned_global_batch"]),
        )
        for row in _rows(name)
    ]


def place_of(size: int) -> int:
    """Return the index of a size in SIZES."""
    return int(np.searchsorted(SIZES, size))


def _families() -> dict[str, Family]:
    fits: defaultdict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for row in _rows("fits"):
        family, name = row.pop("family"), row.pop("gpu_type")
        fits[family][name] = {key: float(value) for key, value in row.items()}
    worth: defaultdict[str, defaultdict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows("efficiency"):
        worth[row["family"]][int(row["global_batch"])].append((float(row["iterations_done"]), float(row["progress"])))
    return {
        name: Family(name, fits[name], {batch: np.array([(0.0, 0.0), *rows]) for batch, rows in worth[name].items()})
        for name in fits
    }


def _rows(name: str) -> list[dict[str, str]]:
    with (Path(os.environ["GAVEL_DATA"]) / "elastic" / f"{name}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def configurations(held: IntArray) -> tuple[IntArray, IntArray]:
    """Return the workers and the type of each configuration in `held`; 0 workers where it is -1."""
    return np.where(held < 0, 0, SIZES[held % len(SIZES)]), held // len(SIZES)
