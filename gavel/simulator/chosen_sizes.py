"""Sizes and execution plans of the jobs of a lean simulation, which the service's own function chooses each round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import resized, variants_of
from gavel.mechanism.planning.configurations import SpeedInputs, configurations_of
from gavel.mechanism.planning.sizes import ConfiguredJobs, SizeInputs, in_their_sizes
from gavel.simulator.active import Active
from gavel.simulator.free_part import FreePart
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.outcome import Scenario
from gavel.types import AcceleratorType, Configurations, FloatArray, Job, JobId, JobSpec, WorkerId, in_plan
from workloads.traces.job import TraceJob

Before = tuple[TraceJob, FloatArray]
"""A row's job and its steps/s on each type, (m,), before a round chose its size."""


class ChosenSizes:
    """Chooses sizes and plans of the rows of `active`, by the scenario's throughputs of every size and plan.

    A size without a throughput there is not taken. All speeds count as known, so that none has to be tried.
    """

    def __init__(self, active: Active, layout: Layout, scenario: Scenario) -> None:
        self._active, self._layout, self._scenario = active, layout, scenario
        self._speeds = OracleThroughputs(scenario.throughput)
        self._own: dict[int, Configurations] = {}  # of each elastic job, by its place in the trace
        self._made = ConfiguredJobs(jobs=[])
        self._before: dict[int, Before] = {}
        active.isolate_by(self._configurations)

    @property
    def configurations(self) -> Configurations | None:
        """Return the speeds of the elastic jobs of the round in all sizes that they may be given; None: there is none.

        Their indices are those of the jobs among the rows of the round's part.
        """
        return self._made.configurations

    @property
    def late(self) -> Sequence[tuple[JobId, AcceleratorType]]:
        """Return which jobs of the round are to go first, and where."""
        return self._made.late

    def choose(self, part: FreePart, staying: Iterable[Sequence[int]], now_s: float) -> None:
        """Give the rows of the part the sizes that the round chooses for them, and the rates of their best plans.

        `staying`: rows, counted in the part, that keep size and plan.
        """
        active, rows = self._active, part.row_of(self._active)
        self._before, self._made = {}, ConfiguredJobs(jobs=[])
        if not any(active.jobs[row].spec.has_choice for row in rows):
            return
        kept = {active.ids[rows[index]] for together in staying for index in together}
        self._made = in_their_sizes([self._job(row) for row in rows], self._inputs(part, kept, now_s))
        for row, job in zip(rows, self._made.jobs, strict=True):
            if job.spec.has_choice:
                self._before[row] = active.jobs[row], active.rates[row].copy()
                active.configure(row, job.spec, self._rates_chosen(job, part))

    def settle(self, placed: Mapping[int, tuple[WorkerId, ...]]) -> set[int]:
        """Give each row the plan of the type where it is placed; return those that change their plan where they are.

        A gang that stops keeps its size and plan while it waits, and a job that waited its plan.
        """
        active, changing = self._active, set()
        for row, (before, rates) in self._before.items():
            spec, workers = active.jobs[row].spec, placed.get(row, ())
            if workers:
                plans = self._made.plan_on.get(active.ids[row], {})
                plan = plans.get(self._layout.type_of[workers[0]], before.spec.plan)
                active.configure(row, in_plan(spec, plan), active.rates[row])
                if workers == active.workers[row] and plan != before.spec.plan:
                    changing.add(row)
            elif active.workers[row]:
                active.configure(row, before.spec, rates)
            elif spec.plans:
                waits = resized(Job(id="", spec=before.spec), spec.scale_factor).spec
                active.configure(row, waits, self.rates_of(waits))
        return changing

    def rates_of(self, spec: JobSpec) -> FloatArray:
        """Return steps/s in this size and plan on each type, (m,); 0 where such a gang cannot run."""
        (job,) = ruled_out([Job(id="", spec=spec)], ())  # to where its plan holds
        spec = job.spec
        believed = self._speeds.matrix([spec], self._layout.types).steps_per_s[0]
        rates: FloatArray = np.where(self._layout.feasibility.mask([spec])[0], believed, 0.0)
        return rates

    def smallest(self, job: TraceJob) -> TraceJob:
        """Return the job as it arrives, with the most steps/s that it can make in any size and plan, on any type.

        It has the smallest size in which it can run somewhere, its own if there is none.
        """
        specs = [each.spec for each in variants_of(Job(id="", spec=job.spec))]
        fastest = [float(self.rates_of(spec).max()) for spec in specs]
        first = next((spec for spec, rate in zip(specs, fastest, strict=True) if rate > 0), job.spec)
        return replace(job, spec=first, fastest_steps_per_s=max(fastest))

    def _configurations(self) -> Configurations | None:
        """The speeds of all elastic jobs; those of each are worked out once."""
        active = self._active
        rows = [row for row, job in enumerate(active.jobs) if job.spec.is_elastic]
        for row in rows:
            if active.indices[row] not in self._own:
                self._learn(active.jobs[row], active.indices[row])
        own = [self._own[active.indices[row]] for row in rows]
        sizes = np.array(sorted({size for each in own for size in each.sizes.tolist()}), dtype=np.int64)
        speed = np.zeros((len(rows), len(self._layout.types), len(sizes)))
        for of_row, each in zip(speed, own, strict=True):
            of_row[:, np.searchsorted(sizes, each.sizes)] = each.steps_per_s[0]
        return Configurations(jobs=np.array(rows), sizes=sizes, steps_per_s=speed) if rows else None

    def _learn(self, job: TraceJob, index: int) -> None:
        feasibility, matrix = self._layout.feasibility, self._speeds.matrix
        inputs = SpeedInputs(feasibility=feasibility, matrix=matrix, marks=(), of_own_kind=_same)
        own = configurations_of([Job(id="", spec=job.spec)], inputs)
        if own is not None:
            self._own[index] = own

    def _rates_chosen(self, job: Job, part: FreePart) -> FloatArray:
        if not job.spec.plans:
            return self.rates_of(job.spec)
        rates = np.zeros(len(self._layout.types))
        rates[part.columns] = self._made.plans[job.id].believed.steps_per_s[0]
        return rates

    def _job(self, row: int) -> Job:
        active = self._active
        job, steps = active.jobs[row], int(active.steps_done[row])
        return Job(
            id=active.ids[row],
            spec=job.spec,
            size=job.spec.scale_factor if job.spec.is_elastic else None,
            plan=job.spec.plan,
            submitted_at_s=job.submitted_at_s,
            steps_done=steps,
            steps_reported=steps,
            program_steps=job.stated_steps if active.has_trained[row] else None,
            received_s=dict(zip(self._layout.types, active.received_s[row].tolist(), strict=True)),
            isolated_time_s=float(active.isolated_time_s[row]),
        )

    def _inputs(self, part: FreePart, staying: set[JobId], now_s: float) -> SizeInputs:
        active = self._active
        holders = [row for row, workers in enumerate(active.workers) if workers]
        on = {row: self._layout.type_of[active.workers[row][0]] for row in holders}
        return SizeInputs(
            feasibility=part.layout.feasibility,
            matrix=self._speeds.matrix,
            marks=(),
            of_own_kind=_same,
            held={active.ids[row]: (on[row], len(active.workers[row])) for row in holders},
            plan_held={active.ids[row]: active.jobs[row].spec.plan for row in holders},
            staying=staying,
            restart_s=self._scenario.switch_cost_s,
            round_duration_s=self._scenario.settings.round_duration_s,
            now_s=now_s,
        )


def _same(job: Job) -> Job:
    return job
