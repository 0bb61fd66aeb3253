"""The jobs of a replay that have arrived and not ended: one row of numbers each, in order of arrival."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gavel.mechanism.priority import fastest_first
from gavel.types import FloatArray, IntArray, WorkerId
from workloads.traces.job import TraceJob

SCALARS = (
    "weight",
    "total_steps",
    "steps_done",
    "base_steps",
    "training_from_s",
    "running_rate",
    "submitted_at_s",
    "deadline_at_s",
    "isolated_time_s",
    "equal_rate",
    "tier",
    "preemptions",
    "lost_s",
    "alone_rate",
)
BLOCKS = ("rates", "promised", "ledger", "received_s", "shared_s", "rounds_received")


class Active:
    """n jobs and their numbers. Scalars are (n,), blocks (n, types): views of one array, so that a job that ends is
    one deletion. `column` is the column of the type that a job's gang runs on, -1: it waits; `workers` those it holds;
    `partner` the place in the trace of the job that it shares them with, -1: none; `running_rate` the steps/s it makes
    there, `alone_rate` what it would make without a partner. It has done `base_steps` when `training_from_s` comes.
    """

    weight: FloatArray
    total_steps: FloatArray
    steps_done: FloatArray
    base_steps: FloatArray
    training_from_s: FloatArray
    running_rate: FloatArray
    submitted_at_s: FloatArray
    deadline_at_s: FloatArray
    isolated_time_s: FloatArray
    equal_rate: FloatArray
    tier: FloatArray
    preemptions: FloatArray
    lost_s: FloatArray
    alone_rate: FloatArray
    rates: FloatArray
    received_s: FloatArray
    shared_s: FloatArray
    rounds_received: FloatArray

    def __init__(self, types: int) -> None:
        self.jobs: list[TraceJob] = []
        self.indices: list[int] = []  # place of each job in the trace
        self.ids: list[str] = []
        self.sizes: list[int] = []
        self.workers: list[tuple[WorkerId, ...]] = []
        self.partner: list[int] = []
        self.column: IntArray = np.zeros(0, dtype=np.int64)
        self.scale_factor: IntArray = np.zeros(0, dtype=np.int64)
        self._types = types
        self._numbers = np.zeros((0, len(SCALARS) + len(BLOCKS) * types))
        self._look()

    def _look(self) -> None:
        """Name the columns of the array anew; views, so that writing to one writes to the array."""
        self._fastest_first: list[int] | None = None
        for index, name in enumerate(SCALARS):
            setattr(self, name, self._numbers[:, index])
        for index, name in enumerate(BLOCKS):
            start = len(SCALARS) + index * self._types
            attribute = f"_{name}" if name in ("promised", "ledger") else name
            setattr(self, attribute, self._numbers[:, start : start + self._types])

    _promised: FloatArray
    _ledger: FloatArray

    @property
    def promised(self) -> FloatArray:
        """Time fractions of the allocation in force; 0 for a job that came after it."""
        return self._promised

    @promised.setter
    def promised(self, fractions: FloatArray) -> None:
        self._promised[:] = fractions

    @property
    def ledger(self) -> FloatArray:
        """What the planner keeps from round to round."""
        return self._ledger

    @ledger.setter
    def ledger(self, rounds: FloatArray) -> None:
        self._ledger[:] = rounds

    @property
    def fastest_first(self) -> list[int]:
        """Columns of the types in that order for the jobs there are."""
        if self._fastest_first is None:
            self._fastest_first = fastest_first(self.rates)
        return self._fastest_first

    def finishes_at_s(self, rows: IntArray | Sequence[int]) -> FloatArray:
        """When each of these gangs would end at the rate it has now."""
        left = self.total_steps[rows] - self.base_steps[rows]
        at_s: FloatArray = self.training_from_s[rows] + left / self.running_rate[rows]
        return at_s

    def go_on(self, row: int, at_s: float, rate: float) -> None:
        """From that instant a gang runs at another rate, without losing what it did since its last whole step."""
        trained_s = max(0.0, at_s - float(self.training_from_s[row]))
        self.base_steps[row] += trained_s * self.running_rate[row]
        self.training_from_s[row] = max(self.training_from_s[row], at_s)
        self.running_rate[row] = rate

    def add(self, job: TraceJob, index: int, *, rates: FloatArray, equal_rate: float, tier: int) -> None:
        """A job arrives."""
        spec = job.spec
        values: dict[str, Any] = {
            "weight": spec.weight,
            "total_steps": spec.total_steps,
            "submitted_at_s": job.submitted_at_s,
            "deadline_at_s": np.inf if spec.deadline_at_s is None else spec.deadline_at_s,
            "equal_rate": equal_rate,
            "tier": tier,
        }
        row = np.zeros((1, self._numbers.shape[1]))
        row[0, : len(SCALARS)] = [values.get(name, 0.0) for name in SCALARS]
        row[0, len(SCALARS) : len(SCALARS) + self._types] = rates
        self._numbers = np.concatenate([self._numbers, row])
        self.column = np.append(self.column, -1)
        self.scale_factor = np.append(self.scale_factor, spec.scale_factor)
        self.jobs.append(job)
        self.indices.append(index)
        self.ids.append(f"{index:08d}")
        self.sizes.append(spec.scale_factor)
        self.workers.append(())
        self.partner.append(-1)
        self._look()

    def remove(self, rows: IntArray) -> None:
        """Jobs end."""
        self._numbers = np.delete(self._numbers, rows, axis=0)
        self.column = np.delete(self.column, rows)
        self.scale_factor = np.delete(self.scale_factor, rows)
        for row in sorted(rows.tolist(), reverse=True):
            for each in (self.jobs, self.indices, self.ids, self.sizes, self.workers, self.partner):
                del each[row]
        self._look()
