"""How fast each job of a round is in each of its configurations: a type, a size, and the best of its plans there.

n jobs, m accelerator types, k sizes; v variants, each a job in one size under one of its plans. Jobs without plans have
one variant for each size.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gavel.elastic.problem import NOTHING
from gavel.elastic.utility import after_restart
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import variants_of
from gavel.mechanism.planning.problem import Matrix
from gavel.ports import ThroughputMatrix
from gavel.types import (
    AcceleratorType,
    BoolArray,
    Configurations,
    FloatArray,
    InfeasibleType,
    IntArray,
    Job,
    JobId,
)

_Key = TypeVar("_Key")
SURE_ERROR = 0.15  # of log(steps/s): a speed that is known so well is as good as measured
KNOWN_ERROR = 1.0  # of log(steps/s), below which something of the kind was measured
OPTIMISM = 1.25  # times the best plan that is known: what a plan that nobody has measured is taken to reach
GROWTH = 2  # times the largest size whose speed is known: more is not given at once


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedInputs:
    """What the speeds of jobs in their sizes follow from; `of_own_kind` gives a job the kind whose rates apply to it.

    `marks`: where jobs are known not to fit.
    """

    feasibility: Feasibility
    matrix: Matrix
    marks: Sequence[InfeasibleType]
    of_own_kind: Callable[[Job], Job]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeInputs(SpeedInputs):
    """What sizes and plans are chosen from, besides the jobs of the round.

    `held`: type and size of each gang that runs; `plan_held`: its plan, if the job has plans; `staying`: jobs whose
    gang keeps both; `restart_s`: what a restart costs, by job kind.
    """

    held: Mapping[JobId, tuple[AcceleratorType, int]]
    staying: Collection[JobId]
    restart_s: Mapping[str, float]
    round_duration_s: float
    plan_held: Mapping[JobId, str]
    now_s: float

    def held_plan(self, job: Job) -> str:
        """Return the name of the plan of the job's gang; "": it has no gang, or no plan."""
        return self.plan_held.get(job.id, "") if job.id in self.held else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variants:
    """Jobs in one size under one plan each, and what is known of their speeds."""

    jobs: Sequence[Job]
    row: IntArray  # (v,) of the job among those of the round
    place: IntArray  # (v,) of the size among all sizes
    at: Mapping[tuple[int, int], Sequence[int]]  # by row and place: the numbers of variants, in the order of the plans
    believed: ThroughputMatrix  # (v, m)
    speed: FloatArray  # (v, m) steps per second, 0 where a job cannot run
    is_sure: BoolArray  # (v, m) True where the speed was measured, or is known as well


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Each job in each of its sizes on each type, under the best of its plans there."""

    variants: Variants
    sizes: IntArray  # (k,)
    speed: FloatArray  # (n, m, k) steps per second, 0 where a size is not possible
    expected: FloatArray  # (n, m, k) the same without optimism for plans that nobody has measured
    is_sure: BoolArray  # (n, m, k) True where the speed was measured under some plan, or is known as well
    best: IntArray  # (n, m, k) number of the variant, NOTHING where none is possible

    def under(self, row: int, place: int, name: str) -> int:
        """Return the number of a job's variant of a size and plan, NOTHING if there is none."""
        at, jobs = self.variants.at[row, place], self.variants.jobs
        return next((number for number in at if jobs[number].spec.plan == name), NOTHING)


def candidates_of(jobs: Sequence[Job], inputs: SizeInputs) -> Candidates:
    """Return every job in each of its sizes, without the types on which it does not fit in that size."""
    variants, sizes = _variants(jobs, inputs)
    expected = _fastest(variants, len(jobs), len(sizes))
    if any(job.spec.plans for job in jobs):
        variants = replace(variants, speed=_optimistic(jobs, variants, inputs))
    shape = len(jobs), len(inputs.feasibility.types), len(sizes)
    speed, is_sure, best = np.zeros(shape), np.zeros(shape, dtype=np.bool_), np.full(shape, NOTHING, dtype=np.int64)
    for level in range(max(map(len, variants.at.values()), default=0)):  # the plans of all jobs, the first ones first
        number = np.array([each[level] for each in variants.at.values() if len(each) > level], dtype=np.int64)
        rows, places = variants.row[number], variants.place[number]
        is_better = variants.speed[number] > speed[rows, :, places]
        speed[rows, :, places] = np.where(is_better, variants.speed[number], speed[rows, :, places])
        best[rows, :, places] = np.where(is_better, number[:, None], best[rows, :, places])
        is_sure[rows, :, places] |= variants.is_sure[number]
    return Candidates(variants=variants, sizes=sizes, speed=speed, expected=expected, is_sure=is_sure, best=best)


def configurations_of(jobs: Sequence[Job], inputs: SpeedInputs) -> Configurations | None:
    """Return the speeds of the elastic ones of these jobs in the sizes that they may be given; None if there is none.

    `jobs`: as they were submitted, with the sizes in force.
    """
    elastic = [row for row, job in enumerate(jobs) if job.spec.is_elastic]
    if not elastic:
        return None
    own = [jobs[row] for row in elastic]
    variants, sizes = _variants(own, inputs)
    speed = _fastest(variants, len(own), len(sizes))
    is_sure = np.zeros((len(own), len(sizes)), dtype=np.bool_)
    np.logical_or.at(is_sure, (variants.row, variants.place), variants.is_sure.any(axis=1))
    held = np.array([job.spec.scale_factor for job in own])
    enough = within_growth(sizes, np.asarray((speed > 0).any(axis=1)), is_sure, held)
    return Configurations(jobs=np.array(elastic), sizes=sizes, steps_per_s=speed * enough[:, None])


def within_growth(sizes: IntArray, possible: BoolArray, is_sure: BoolArray, held: IntArray) -> BoolArray:
    """Return which `sizes` (k,) n jobs may be given, (n, k): the smallest, and up to GROWTH times one known well.

    `possible` (n, k), `is_sure` (n, k): whose speed is known well. `held` (n,): a size that each has already, or 0.
    """
    measured = np.where(is_sure, sizes, 0).max(axis=1, initial=0)
    largest = int(sizes.max(initial=1))
    smallest = np.where(possible, sizes, largest).min(axis=1, initial=largest)
    most = np.maximum(np.maximum(GROWTH * measured, smallest), held)
    enough: BoolArray = sizes <= most[:, None]
    return enough


def _fastest(variants: Variants, jobs: int, sizes: int) -> FloatArray:
    """The speed of each job in each size on each type under the fastest of its plans there, (jobs, m, sizes)."""
    speed = np.zeros((jobs, sizes, variants.speed.shape[1]))
    np.maximum.at(speed, (variants.row, variants.place), variants.speed)
    return np.ascontiguousarray(speed.transpose(0, 2, 1))


def _variants(jobs: Sequence[Job], inputs: SpeedInputs) -> tuple[Variants, IntArray]:
    """Every job in each of its sizes under each plan that holds there, and all sizes."""
    of_row = [(row, each) for row, job in enumerate(jobs) for each in variants_of(job)]
    seen = [inputs.of_own_kind(job) for job in ruled_out((job for _, job in of_row), inputs.marks)]
    specs, types = [job.spec for job in seen], inputs.feasibility.types
    believed, fits = inputs.matrix(specs, types), inputs.feasibility.mask(specs)
    sizes = np.array(sorted({spec.scale_factor for spec in specs}), dtype=np.int64)
    rows = [row for row, _ in of_row]
    places = np.searchsorted(sizes, np.array([spec.scale_factor for spec in specs], dtype=np.int64))
    variants = Variants(
        jobs=seen,
        row=np.array(rows, dtype=np.int64),
        place=places,
        at=_numbers(zip(rows, places.tolist(), strict=True)),
        believed=believed,
        speed=np.where(fits, believed.steps_per_s, 0.0),
        is_sure=fits & is_sure(believed),
    )
    return variants, sizes


def is_sure(believed: ThroughputMatrix) -> BoolArray:
    """Return which speeds were measured, or are known as well, (v, m)."""
    sure: BoolArray = ~believed.is_worth_measuring | (believed.relative_error <= SURE_ERROR)
    return sure


def _numbers(keys: Iterable[_Key]) -> dict[_Key, list[int]]:
    """The places of each key, in order."""
    at: dict[_Key, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        at[key].append(number)
    return dict(at)


def known_plans(job: Job, matrix: Matrix, types: Sequence[AcceleratorType]) -> set[str]:
    """Return the names of the job's plans of which something was measured, in any size and on any of the types."""
    variants = variants_of(job)
    error = matrix([each.spec for each in variants], types).relative_error
    measured = np.flatnonzero((error < KNOWN_ERROR).any(axis=1)).tolist()
    return {variants[number].spec.plan for number in measured}


# --- plans that nobody has measured ----------------------------------------------------------------------------------


def _optimistic(jobs: Sequence[Job], variants: Variants, inputs: SizeInputs) -> FloatArray:
    """The speeds, (v, m), in which a plan that was never measured on a type may be tried there.

    It counts as OPTIMISM times as fast as the best plan of which anything is known, for one job of its kind at a time,
    and as impossible for the others: so each plan is tried once on each type, where that pays for a restart. Where
    nothing is known, none counts as faster than the first one that is possible: its user has put that first.
    """
    speed, tries = variants.speed.copy(), _trials(jobs, variants, inputs)
    is_known = (variants.speed > 0) & (variants.believed.relative_error < KNOWN_ERROR)
    was_measured = _at_any_size(variants)
    for (row, _), numbers in variants.at.items():
        if not jobs[row].spec.plans:
            continue
        counts = np.where(was_measured[numbers].any(axis=0), was_measured[numbers], is_known[numbers])
        most = np.where(counts, variants.speed[numbers], 0.0).max(axis=0, initial=0.0)
        is_new = (variants.speed[numbers] > 0) & ~counts & (most > 0)
        guessed = np.minimum(variants.speed[numbers], np.where(most > 0, np.inf, _first(variants.speed[numbers])))
        speed[numbers] = np.where(is_new, np.where(tries[numbers], OPTIMISM * most, 0.0), guessed)
    return speed


def _first(speed: FloatArray) -> FloatArray:
    """The speed on each type, (m,), of the first of some variants, (v, m), that is possible there; 0 if none is."""
    first: FloatArray = np.take_along_axis(speed, (speed > 0).argmax(axis=0)[None, :], axis=0)[0]
    return first


def _at_any_size(variants: Variants) -> BoolArray:
    """True for the variants of plans that were measured on the type in some size, (v, m)."""
    of_plan = _numbers((row, job.spec.plan) for row, job in zip(variants.row.tolist(), variants.jobs, strict=True))
    measured = variants.is_sure.copy()
    for numbers in of_plan.values():
        if len(numbers) > 1:
            measured[numbers] = variants.is_sure[numbers].any(axis=0)
    return measured


def _trials(jobs: Sequence[Job], variants: Variants, inputs: SizeInputs) -> BoolArray:
    """True for the variants that may be tried on a type, (v, m): of each kind one job, the nearest to it.

    That is the one that runs under the plan on the type, else one that runs on the type, else the first.
    """
    owner: dict[tuple[str, AcceleratorType], tuple[int, int]] = {}
    for row, job, name, rank in _offers(jobs, variants, inputs):
        key = job.spec.kind, name
        owner[key] = min(owner.get(key, (rank, row)), (rank, row))
    tries = np.zeros(variants.speed.shape, dtype=np.bool_)
    for number, (row, job) in enumerate(zip(variants.row.tolist(), variants.jobs, strict=True)):
        for column, name in enumerate(inputs.feasibility.types if job.spec.plans else ()):
            tries[number, column] = owner.get((job.spec.kind, name), (0, NOTHING))[1] == row
    return tries


def _offers(jobs: Sequence[Job], variants: Variants, inputs: SizeInputs) -> list[tuple[int, Job, AcceleratorType, int]]:
    """(row, job in a variant, type, how far its gang is from running so) of all jobs with plans that may change."""
    offers, possible = [], (variants.speed > 0).tolist()
    for row, variant, on_type in zip(variants.row.tolist(), variants.jobs, possible, strict=True):
        if not variant.spec.plans:
            continue
        held_type, plan = inputs.held.get(variant.id, ("", 0))[0], inputs.held_plan(jobs[row])
        for name, is_possible in zip(inputs.feasibility.types, on_type, strict=True):
            is_so = held_type == name and plan == variant.spec.plan
            if is_so or (is_possible and variant.id not in inputs.staying):
                offers.append((row, variant, name, 0 if is_so else 1 if held_type == name else 2))
    return offers


# --- the plan of a gang that runs ------------------------------------------------------------------------------------


def with_plans_kept(
    candidates: Candidates,
    jobs: Sequence[Job],
    inputs: SizeInputs,
    *,
    held: IntArray,
    steps_left: FloatArray,
    restart_s: FloatArray,
) -> tuple[Candidates, BoolArray]:
    """Return the candidates in which gangs keep their plan unless another one pays, and which jobs change theirs, (n,).

    Another plan pays if it is faster where the gang runs, after a restart, within the horizon of a change of size.
    `held` (n,): the configuration of each job, NOTHING without one.
    """
    speed, best = candidates.speed.copy(), candidates.best.copy()
    changes = np.zeros(len(jobs), dtype=np.bool_)
    for row, job in enumerate(jobs):
        if not job.spec.plans or held[row] == NOTHING:
            continue
        column, place = divmod(int(held[row]), len(candidates.sizes))
        own, other = candidates.under(row, place, inputs.held_plan(job)), int(best[row, column, place])
        if own in (other, NOTHING):
            continue
        own_speed, other_speed = float(candidates.variants.speed[own, column]), float(speed[row, column, place])
        part = float(after_restart(np.array([other_speed]), steps_left[row], restart_s[row])[0])
        is_better = other_speed * part > own_speed
        if is_better and job.id not in inputs.staying:
            changes[row] = True
        elif own_speed > 0:
            best[row, column, place], speed[row, column, place] = own, own_speed
    return replace(candidates, speed=speed, best=best), changes
