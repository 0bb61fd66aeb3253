"""Chooses the sizes and the execution plans of jobs for a round, before its problem is made: docs/elastic.md.

All jobs of the round bid for workers, rigid ones with their one size (`gavel/elastic`). The round is then planned as if
the sizes chosen were those that users had asked for, and on each type with the plan that is best there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.elastic.late import with_late_first
from gavel.elastic.problem import NOTHING
from gavel.elastic.screening import SizeQuestion, choose_among
from gavel.elastic.utility import ElasticJobs
from gavel.mechanism.jobs.sizes import resized
from gavel.mechanism.planning.behind import jobs_behind
from gavel.mechanism.planning.configurations import (
    Candidates,
    SizeInputs,
    candidates_of,
    with_plans_kept,
    within_growth,
)
from gavel.mechanism.planning.lengths import steps_left
from gavel.mechanism.planning.problem import Matrix
from gavel.mechanism.planning.switch_costs import ANY_OTHER
from gavel.ports import ThroughputMatrix
from gavel.types import (
    AcceleratorType,
    BoolArray,
    Configurations,
    FloatArray,
    IntArray,
    Job,
    JobId,
    JobSpec,
    in_plan,
)

__all__ = ["ConfiguredJobs", "PlansOnTypes", "SizeInputs", "in_their_sizes"]

UNMEASURED_PART = 0.1  # of a round, what a restart is taken to cost while none was measured


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlansOnTypes:
    """The plan that a job would have on each of m accelerator types in its size, and how fast it is under that plan.

    A type on which no plan is possible has the plan "" and the speed 0. `held`: type and plan of the job's gang, ""
    without one.
    """

    types: tuple[AcceleratorType, ...]
    plans: tuple[str, ...]  # (m,)
    believed: ThroughputMatrix  # (1, m)
    held: tuple[AcceleratorType, str] = ("", "")

    @property
    def by_type(self) -> dict[AcceleratorType, str]:
        """Return the plan of each type on which one is possible."""
        return {name: plan for name, plan in zip(self.types, self.plans, strict=True) if plan}

    def due(self, received: Mapping[AcceleratorType, int]) -> list[AcceleratorType]:
        """Return the types on which the job is to measure its plan now; `received`: rounds that it had there.

        That is a type where it has not been, and the one where its gang runs if it is to try another plan there: else
        another job might have its turn, and with many jobs nobody would try it.
        """
        name, plan = self.held
        changes = name if self.by_type.get(name, plan) != plan else ""
        return [each for each in self.to_measure if not received.get(each, 0) or each == changes]

    @property
    def to_measure(self) -> list[AcceleratorType]:
        """Return the types on which nobody has measured the plan."""
        is_worth_it = (self.believed.is_worth_measuring & (self.believed.steps_per_s > 0))[0].tolist()
        return [name for name, is_worth in zip(self.types, is_worth_it, strict=True) if is_worth]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfiguredJobs:
    """The jobs of a round in the sizes chosen for them, and the plans of those that have some."""

    jobs: list[Job]
    plans: Mapping[JobId, PlansOnTypes] = field(default_factory=dict)
    configurations: Configurations | None = None  # of the elastic jobs; None: there is none
    late: tuple[tuple[JobId, AcceleratorType], ...] = ()  # who has a place before all others and where, in order

    @property
    def plan_on(self) -> dict[JobId, dict[AcceleratorType, str]]:
        """Return the names of the plans, by job and accelerator type."""
        return {job_id: each.by_type for job_id, each in self.plans.items()}

    def with_plans(self, matrix: Matrix) -> Matrix:
        """Return the estimates of exactly these jobs: on each type those of the plan that is best there."""
        if not self.plans:
            return matrix
        rows = [(row, self.plans[job.id]) for row, job in enumerate(self.jobs) if job.id in self.plans]

        def composed(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
            believed = matrix(specs, types)
            rates, errors = believed.steps_per_s.copy(), believed.relative_error.copy()
            is_worth = believed.is_worth_measuring.copy()
            for row, each in rows:
                at = [each.types.index(name) for name in types]
                rates[row], errors[row] = each.believed.steps_per_s[0, at], each.believed.relative_error[0, at]
                is_worth[row] = each.believed.is_worth_measuring[0, at]
            return ThroughputMatrix(steps_per_s=rates, relative_error=errors, is_worth_measuring=is_worth)

        return composed


def in_their_sizes(jobs: Sequence[Job], inputs: SizeInputs) -> ConfiguredJobs:
    """Return the jobs of a round, each elastic one in the size chosen for it; rigid ones are as they were.

    `jobs`: those with sizes or plans as they were submitted. An elastic job that is given nothing keeps the size that
    it runs in, or would start in its smallest: it is the policy that says whether it runs, and where, so that a job
    with plans has one for each type. All are as they were while there is no accelerator type to choose among.
    """
    if not inputs.feasibility.types or not any(job.spec.has_choice for job in jobs):
        return ConfiguredJobs(jobs=list(jobs))
    candidates = candidates_of(jobs, inputs)
    held = np.array([_held(job.id, candidates, inputs) for job in jobs], dtype=np.int64)
    candidates, asked = _asked(jobs, candidates, held, inputs)
    possible = (candidates.sizes <= _capacity(inputs)[:, None]) & _within_growth(candidates, held)
    own = _configurations(jobs, candidates, possible)
    behind = jobs_behind(jobs, candidates.expected * possible, own, asked, inputs)
    question = SizeQuestion(
        jobs=replace(asked, weight=asked.weight * behind.urgency),
        possible=possible,
        sizes=candidates.sizes,
        capacity_workers=_capacity(inputs),
    )
    chosen = with_late_first(question, choose_among(question), candidates.speed * possible, behind)
    types = inputs.feasibility.types
    late = ((row, int(chosen[row]) // len(candidates.sizes)) for row in behind.order.tolist() if chosen[row] != NOTHING)
    places = np.where(chosen == NOTHING, held, chosen)
    made = [_made(job, row, places[row], candidates, inputs) for row, job in enumerate(jobs)]
    return ConfiguredJobs(
        jobs=[job for job, _ in made],
        plans={job.id: plans for job, plans in made if plans is not None},
        configurations=own,
        late=tuple([(jobs[row].id, types[column]) for row, column in late]),
    )


def _configurations(jobs: Sequence[Job], candidates: Candidates, possible: BoolArray) -> Configurations | None:
    """The speeds of the elastic jobs in the sizes that they may be given, without optimism; None if there is none."""
    rows = np.array([row for row, job in enumerate(jobs) if job.spec.is_elastic], dtype=np.int64)
    if not len(rows):
        return None
    return Configurations(jobs=rows, sizes=candidates.sizes, steps_per_s=(candidates.expected * possible)[rows])


def _asked(
    jobs: Sequence[Job], candidates: Candidates, held: IntArray, inputs: SizeInputs
) -> tuple[Candidates, ElasticJobs]:
    """The candidates with the plans that gangs keep, and what is asked of the choice of sizes."""
    other_s = inputs.restart_s.get(ANY_OTHER, UNMEASURED_PART * inputs.round_duration_s)
    restart_s = np.array([inputs.restart_s.get(job.spec.kind, other_s) for job in jobs])
    left = np.maximum(1.0, _steps_left(jobs, candidates))
    candidates, changes = with_plans_kept(candidates, jobs, inputs, held=held, steps_left=left, restart_s=restart_s)
    configuration = np.where(changes, NOTHING, held)
    asked = ElasticJobs(
        speed=candidates.speed,
        steps_left=left,
        configuration=configuration,
        restart_s=restart_s,
        weight=np.array([math.ldexp(job.spec.weight, job.spec.priority) for job in jobs]),
        is_fixed=np.array([job.id in inputs.staying for job in jobs], dtype=np.bool_) & (held != NOTHING),
    )
    return candidates, asked


def _steps_left(jobs: Sequence[Job], candidates: Candidates) -> FloatArray:
    return steps_left(
        np.array([math.nan if job.total_steps is None else job.total_steps for job in jobs]),
        np.array([job.steps_reported for job in jobs], dtype=np.float64),
        kinds=[job.spec.kind for job in jobs],
        steps_per_s=candidates.speed.max(axis=2, initial=0.0),
    )


def _held(job_id: JobId, candidates: Candidates, inputs: SizeInputs) -> int:
    """The configuration in which the job runs; NOTHING if it does not, or on a type that takes no job any more."""
    name, size = inputs.held.get(job_id, ("", 0))
    types, sizes = inputs.feasibility.types, candidates.sizes.tolist()
    return types.index(name) * len(sizes) + sizes.index(size) if name in types and size in sizes else NOTHING


def _capacity(inputs: SizeInputs) -> IntArray:
    return np.array([inputs.feasibility.workers[name] for name in inputs.feasibility.types], dtype=np.int64)


def _within_growth(candidates: Candidates, configuration: IntArray) -> BoolArray:
    """Where a size may be given, (n, 1, k)."""
    sizes = candidates.sizes
    possible, is_sure = np.asarray((candidates.speed > 0).any(axis=1)), np.asarray(candidates.is_sure.any(axis=1))
    held = np.where(configuration >= 0, sizes[configuration % max(1, len(sizes))], 0)
    return within_growth(sizes, possible, is_sure, held)[:, None, :]


# --- the jobs as they were chosen ------------------------------------------------------------------------------------


def _made(
    job: Job, row: int, configuration: int, candidates: Candidates, inputs: SizeInputs
) -> tuple[Job, PlansOnTypes | None]:
    """The job in its size, and its plans there."""
    if not job.spec.has_choice:
        return job, None
    column, place = _place(job, row, configuration, candidates)
    if not job.spec.plans:
        return candidates.variants.jobs[candidates.variants.at[row, place][0]], None
    plans = _plans_on_types(job, row, place, candidates, inputs)
    named = plans.plans[column] or next(filter(None, plans.plans), "")
    job = resized(job, int(candidates.sizes[place]))
    return inputs.of_own_kind(replace(job, spec=in_plan(job.spec, named))), plans


def _place(job: Job, row: int, configuration: int, candidates: Candidates) -> tuple[int, int]:
    """Type and size of a configuration; without one the smallest in which the job can run, else its smallest."""
    if configuration != NOTHING:
        return divmod(int(configuration), len(candidates.sizes))
    possible = np.flatnonzero((candidates.speed[row] > 0).any(axis=0)).tolist()
    place = possible[0] if possible else candidates.sizes.tolist().index(min(job.spec.possible_sizes))
    return (int(candidates.speed[row, :, place].argmax()) if possible else 0), place


def _plans_on_types(job: Job, row: int, place: int, candidates: Candidates, inputs: SizeInputs) -> PlansOnTypes:
    best, types = candidates.best[row, :, place], inputs.feasibility.types
    columns, believed = np.arange(len(types)), candidates.variants.believed
    at = np.maximum(best, 0)
    is_possible = best != NOTHING
    return PlansOnTypes(
        types=tuple(types),
        held=(inputs.held.get(job.id, ("", 0))[0], inputs.held_plan(job)),
        plans=tuple([candidates.variants.jobs[each].spec.plan if each != NOTHING else "" for each in best.tolist()]),
        believed=ThroughputMatrix(
            steps_per_s=candidates.speed[row, :, place][None],
            relative_error=believed.relative_error[at, columns][None],
            is_worth_measuring=(believed.is_worth_measuring[at, columns] & is_possible)[None],
        ),
    )
