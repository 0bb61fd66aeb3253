"""The active jobs of a simulation (arrived, not ended): one row of numbers per job, in the order that rounds serve."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, TypeVar

import numpy as np

from gavel.finish_time import isolated_rate
from gavel.mechanism.planning.lengths import length_error, steps_left
from gavel.mechanism.planning.priority import fastest_first
from gavel.mechanism.planning.problem import JobColumns, deadline_or_inf
from gavel.types import (
    NO_NEEDS,
    SECONDS_PER_HOUR,
    Configurations,
    FloatArray,
    IntArray,
    JobSpec,
    Needs,
    WorkerId,
    worker_s,
)
from workloads.traces.job import TraceJob

SCALARS = (
    "stated_weight",
    "total_steps",
    "stated_steps",
    "steps_done",
    "base_steps",
    "training_from_s",
    "running_rate",
    "submitted_at_s",
    "deadline_at_s",
    "isolated_steps",
    "whole_rate",
    "cpu_cores",
    "memory_bytes",
    "preemptions",
    "lost_s",
    "alone_rate",
    "started_at_s",
    "begun_steps",
    "leases_without_checkpoint",
    "longest_without_checkpoint_s",
    "has_trained",
)
BLOCKS = ("rates", "ledger", "received_s", "shared_s", "rounds_received")
COUNTS = ("column", "scale_factor", "priority", "tier", "preemptible")

Rows = IntArray | slice
"""Rows of the active jobs; `slice(None)` for all of them, which copies nothing."""
Each = TypeVar("Each")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActiveState:
    """All that `Active` knows of its n jobs at one instant, as plain values that another process can be sent.

    `numbers` (n, scalars and blocks) and `counts` (name -> (n,)) are copies.
    """

    jobs: tuple[TraceJob, ...]
    indices: tuple[int, ...]
    workers: tuple[tuple[WorkerId, ...], ...]
    partner: tuple[int, ...]
    numbers: FloatArray
    counts: Mapping[str, IntArray]

    def ending_at(self, steps: Sequence[int]) -> "ActiveState":
        """Return the same jobs, which end at these steps (n,), whatever they state."""
        numbers = self.numbers.copy()
        numbers[:, SCALARS.index("total_steps")] = steps
        jobs = tuple(replace(job, ends_at_step=end) for job, end in zip(self.jobs, steps, strict=True))
        return replace(self, jobs=jobs, numbers=numbers)


class Active:
    """n jobs and their numbers, of the highest priority and earliest arrival first (as `schedulable` has them).

    Scalars are (n,), blocks (n, types): views of one array, so that a job that ends is one deletion. `column` is the
    column of the type that a job's gang runs on, -1: it waits; `workers` those it holds; `partner` the place in the
    trace of the job that it shares them with, -1: none; `running_rate` the steps/s it makes there, `alone_rate` what it
    would make without a partner. It has done `base_steps` when `training_from_s` comes; its lease began at
    `started_at_s` with `begun_steps`. Leases without a checkpoint are those without a step.
    """

    stated_weight: FloatArray
    total_steps: FloatArray
    stated_steps: FloatArray  # what submission or program say, and policies see
    steps_done: FloatArray
    base_steps: FloatArray
    training_from_s: FloatArray
    running_rate: FloatArray
    submitted_at_s: FloatArray
    deadline_at_s: FloatArray
    isolated_steps: FloatArray
    whole_rate: FloatArray  # T_iso with all the cluster
    cpu_cores: FloatArray
    memory_bytes: FloatArray
    preemptions: FloatArray
    lost_s: FloatArray
    alone_rate: FloatArray
    started_at_s: FloatArray
    begun_steps: FloatArray
    leases_without_checkpoint: FloatArray
    longest_without_checkpoint_s: FloatArray
    has_trained: FloatArray  # 1 once a gang of the job has begun to train, and has said how long the job is
    rates: FloatArray
    received_s: FloatArray
    shared_s: FloatArray
    rounds_received: FloatArray
    column: IntArray
    scale_factor: IntArray
    priority: IntArray
    tier: IntArray
    preemptible: IntArray  # 0: no plan moves its gang

    def __init__(self, types: int) -> None:
        self.jobs: list[TraceJob] = []
        self.indices: list[int] = []  # place of each job in the trace
        self.ids: list[str] = []
        self.sizes: list[int] = []
        self.all_needs: list[Needs] = []  # equal ones are one object, which is quicker to look up
        self._needing = 0  # how many of them need more than a worker
        self._different: dict[Needs, Needs] = {}
        self.workers: list[tuple[WorkerId, ...]] = []
        self.partner: list[int] = []
        self.orders: list[int] = []  # the sort key of each job
        self.changes = 0  # how often a job has come or gone
        self._types = types
        self._configurations: Callable[[], Configurations | None] = lambda: None
        self._numbers = np.zeros((0, len(SCALARS) + len(BLOCKS) * types))
        for name in COUNTS:
            setattr(self, name, np.zeros(0, dtype=np.int64))
        self._look()

    def _look(self) -> None:
        """Make the named columns of the array anew. They are views: writing to one writes to the array."""
        self.changes += 1
        self._fastest_first: list[int] | None = None
        self._isolated_rate: FloatArray | None = None
        self._names: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        for index, name in enumerate(SCALARS):
            setattr(self, name, self._numbers[:, index])
        for index, name in enumerate(BLOCKS):
            start = len(SCALARS) + index * self._types
            attribute = "_ledger" if name == "ledger" else name
            setattr(self, attribute, self._numbers[:, start : start + self._types])

    @classmethod
    def of(cls, state: ActiveState) -> "Active":
        """Return the jobs of `state`, to go on from there."""
        active = cls((state.numbers.shape[1] - len(SCALARS)) // len(BLOCKS))
        active.jobs, active.indices = list(state.jobs), list(state.indices)
        active.workers, active.partner = list(state.workers), list(state.partner)
        active.ids = [_id(index) for index in state.indices]
        active.sizes = [job.spec.scale_factor for job in state.jobs]
        active.orders = [-job.spec.priority for job in state.jobs]
        active.all_needs = [active._one_object(job.spec.needs) for job in state.jobs]
        active._needing = sum(needs != NO_NEEDS for needs in active.all_needs)
        active._numbers = state.numbers.copy()
        for name in COUNTS:
            setattr(active, name, state.counts[name].copy())
        active._look()
        return active

    def state(self) -> ActiveState:
        """Return a copy of all that is here."""
        return ActiveState(
            jobs=tuple(self.jobs),
            indices=tuple(self.indices),
            workers=tuple(self.workers),
            partner=tuple(self.partner),
            numbers=self._numbers.copy(),
            counts={name: getattr(self, name).copy() for name in COUNTS},
        )

    def _one_object(self, needs: Needs) -> Needs:
        return self._different.setdefault(needs, needs)

    _ledger: FloatArray

    @property
    def ledger(self) -> FloatArray:
        """Return the planner's ledger, (n, types), which it keeps from round to round."""
        return self._ledger

    def keep_ledger(self, rows: Rows, columns: IntArray, rounds: FloatArray) -> None:
        """Keep `rounds` (k, p) of these rows and columns until the next round, and nothing of all others."""
        if isinstance(rows, slice):
            self._ledger[:] = rounds
            return
        self._ledger[:] = 0.0
        self._ledger[np.ix_(rows, columns)] = rounds

    @property
    def fastest_first(self) -> list[int]:
        """Return the columns of the types, sorted by how fast the active jobs run on them."""
        if self._fastest_first is None:
            self._fastest_first = fastest_first(self.rates)
        return self._fastest_first

    @property
    def needs(self) -> Sequence[Needs]:
        """Return what the ranks of each job need, (n,); () if no job needs more than workers."""
        return self.all_needs if self._needing else ()

    @property
    def is_sharing(self) -> bool:
        """Return True if any gangs share their workers."""
        return max(self.partner, default=-1) >= 0

    def held_workers(self) -> IntArray:
        """Return how many workers of each type gangs hold, (m,), while none share theirs."""
        column = self.column[self.column >= 0]
        held = np.bincount(column, self.scale_factor[self.column >= 0], minlength=self._types)
        return np.asarray(held, dtype=np.int64)

    @property
    def isolated_time_s(self) -> FloatArray:
        """Return the seconds that the steps done would have taken on a 1/n share of the cluster, (n,)."""
        return np.asarray(self.isolated_steps / self.whole_rate)

    def isolated_rate(self, workers: IntArray) -> FloatArray:
        """Return each job's T_iso on a 1/n share of a cluster with these workers of each type, (n,) steps/s."""
        if self._isolated_rate is None:
            share = np.full(len(self.jobs), 1 / len(self.jobs))
            choice = self._configurations()
            self._isolated_rate = isolated_rate(self.rates, workers, self.scale_factor, share, choice)
        return self._isolated_rate

    def isolate_by(self, configurations: Callable[[], Configurations | None]) -> None:
        """Take the isolated share of elastic jobs over all of their configurations, which the function returns."""
        self._configurations = configurations

    @property
    def fastest_rate(self) -> FloatArray:
        """Return each job's rate alone on its fastest type, in the best of its sizes and plans, (n,) steps/s."""
        return np.array([self.fastest_rate_of(row) for row in range(len(self.jobs))], dtype=np.float64)

    def fastest_rate_of(self, row: int) -> float:
        """Return the rate of one job, as `fastest_rate` has it, steps/s."""
        stated = self.jobs[row].fastest_steps_per_s
        return float(self.rates[row].max(initial=0.0)) if stated is None else stated

    def left_alone_s(self) -> FloatArray:
        """Return the seconds to each job's end alone on its fastest type, in its present size and plan, (n,)."""
        return np.asarray((self.total_steps - self.steps_done) / self.rates.max(axis=1, initial=0.0))

    def cost_usd(self, price_usd_per_hour: FloatArray) -> FloatArray:
        """Return what the workers that each job has held cost, (n,), at the prices of the types (m,)."""
        held_s = worker_s(self.received_s, self.shared_s, self.scale_factor[:, None])
        return np.asarray(held_s @ price_usd_per_hour / SECONDS_PER_HOUR)

    def of_rows(self, rows: Rows, each: Sequence[Each]) -> Sequence[Each]:
        """Return the items of these rows, of a sequence with one for each job."""
        return each if isinstance(rows, slice) else [each[row] for row in rows.tolist()]

    def columns(self, rows: Rows, steps_per_s: FloatArray) -> JobColumns:
        """Return the part of these rows in a problem, with these rates (k, m). What keeps changing is copied."""
        ids, users = self._ids_and_users()
        return JobColumns(
            job_ids=tuple(self.of_rows(rows, ids)),
            users=tuple(self.of_rows(rows, users)),
            tier_of_job=self.tier[rows],
            scale_factor=self.scale_factor[rows],
            steps_per_s=steps_per_s,
            stated_weight=self.stated_weight[rows],
            priority=self.priority[rows],
            steps_left=self._steps_left(rows, steps_per_s),
            length_error=length_error(self._known_steps(rows), np.zeros(len(steps_per_s))),
            submitted_at_s=self.submitted_at_s[rows],
            attained_service_s=self.received_s[rows].sum(axis=1) * self.scale_factor[rows],
            isolated_time_s=self.isolated_time_s[rows],
            deadline_at_s=self.deadline_at_s[rows],
            cpu_cores=self.cpu_cores[rows],
            memory_bytes=self.memory_bytes[rows],
        )

    def _ids_and_users(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self._names is None:
            self._names = tuple(self.ids), tuple([job.spec.user for job in self.jobs])
        return self._names

    def _known_steps(self, rows: Rows) -> FloatArray:
        """Return how many steps each row has, (k,), NaN where rounds do not know: programs say it when they start."""
        is_said, jobs = self.has_trained[rows] > 0, self.of_rows(rows, self.jobs)
        total_steps = self.stated_steps[rows]
        if unsaid := [row for row, job in enumerate(jobs) if job.spec.total_steps is None and not is_said[row]]:
            total_steps = total_steps.copy()
            total_steps[unsaid] = nan
        return total_steps

    def _steps_left(self, rows: Rows, steps_per_s: FloatArray) -> FloatArray:
        """Return how many steps each row has left, (k,), as far as rounds know."""
        total_steps = self._known_steps(rows)
        kinds = [job.spec.kind for job in self.of_rows(rows, self.jobs)] if np.isnan(total_steps).any() else []
        return steps_left(total_steps, self.steps_done[rows], kinds=kinds, steps_per_s=steps_per_s)

    def finishes_at_s(self, rows: IntArray | Sequence[int]) -> FloatArray:
        """Return when each of these gangs would end at its present rate, in simulated seconds, (rows,)."""
        left = self.total_steps[rows] - self.base_steps[rows]
        at_s: FloatArray = self.training_from_s[rows] + left / self.running_rate[rows]
        return at_s

    def go_on(self, row: int, at_s: float, rate: float) -> None:
        """Let a gang run at another rate (steps/s) from `at_s` on; the part of a step that is done is kept."""
        trained_s = max(0.0, at_s - float(self.training_from_s[row]))
        self.base_steps[row] += trained_s * self.running_rate[row]
        self.training_from_s[row] = max(self.training_from_s[row], at_s)
        self.running_rate[row] = rate

    def add(self, job: TraceJob, index: int, *, rates: FloatArray, capacity_workers: IntArray, tier: int) -> None:
        """Add a job that has arrived, behind all jobs of the same or a higher priority."""
        spec = job.spec
        whole = isolated_rate(rates[None, :], capacity_workers, np.array([spec.scale_factor]), np.ones(1))[0]
        values: dict[str, Any] = {
            "stated_weight": spec.weight,
            "total_steps": job.total_steps,
            "stated_steps": job.stated_steps,
            "submitted_at_s": job.submitted_at_s,
            "deadline_at_s": deadline_or_inf(spec),
            "whole_rate": whole or 1.0,  # only a unit of what follows from it; 0 where another size alone can run
            **_of_gang(spec),
        }
        numbers = np.zeros(self._numbers.shape[1])
        numbers[: len(SCALARS)] = [values.get(name, 0.0) for name in SCALARS]
        numbers[len(SCALARS) : len(SCALARS) + self._types] = rates
        row = bisect_right(self.orders, -spec.priority)
        self._numbers = np.concatenate([self._numbers[:row], numbers[None, :], self._numbers[row:]])
        counts = {"column": -1, "scale_factor": spec.scale_factor, "priority": spec.priority, "tier": tier}
        counts["preemptible"] = int(spec.preemptible)
        for name in COUNTS:
            before = getattr(self, name)
            setattr(self, name, np.concatenate([before[:row], [counts[name]], before[row:]]))
        self.orders.insert(row, -spec.priority)
        self.jobs.insert(row, job)
        self.indices.insert(row, index)
        self.ids.insert(row, _id(index))
        self.sizes.insert(row, spec.scale_factor)
        needs = spec.needs
        self.all_needs.insert(row, self._one_object(needs))
        self._needing += needs != NO_NEEDS
        self.workers.insert(row, ())
        self.partner.insert(row, -1)
        self._look()

    def configure(self, row: int, spec: JobSpec, rates: FloatArray) -> None:
        """Give a job another size or plan, with its steps/s there on each type (m,). Its worker seconds stay the same.

        A gang that runs keeps its rate until it ends.
        """
        before = int(self.scale_factor[row])
        if spec == self.jobs[row].spec and np.array_equal(rates, self.rates[row]):
            return
        self.received_s[row] *= before / spec.scale_factor
        self.shared_s[row] *= before / spec.scale_factor
        self.jobs[row] = replace(self.jobs[row], spec=spec)
        self.sizes[row] = self.scale_factor[row] = spec.scale_factor
        self.rates[row] = rates
        for name, value in _of_gang(spec).items():
            getattr(self, name)[row] = value
        self._fastest_first = None
        self.changes += 1

    def remove(self, rows: IntArray) -> None:
        """Remove jobs that have ended."""
        self._numbers = np.delete(self._numbers, rows, axis=0)
        for name in COUNTS:
            setattr(self, name, np.delete(getattr(self, name), rows))
        lists: tuple[list[Any], ...] = (self.jobs, self.indices, self.ids, self.sizes, self.workers, self.partner)
        self._needing -= sum(self.all_needs[row] != NO_NEEDS for row in rows.tolist())
        for row in sorted(rows.tolist(), reverse=True):
            for each in (*lists, self.orders, self.all_needs):
                del each[row]
        self._look()


def _of_gang(spec: JobSpec) -> dict[str, int]:
    """What a whole gang needs of its nodes."""
    return {"cpu_cores": spec.cpu_cores * spec.scale_factor, "memory_bytes": spec.memory_bytes * spec.scale_factor}


def _id(index: int) -> str:
    """Return the id of the job at this place in the trace; ids sort as the places do."""
    return f"{index:08d}"
