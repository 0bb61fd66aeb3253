"""Chooses the sizes of elastic jobs for a round, before its problem is made: docs/elastic.md.

All jobs of the round bid for workers, rigid ones with their one size (`gavel/elastic`). The round is then planned as if
the sizes chosen were those that users had asked for.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.elastic.decision import choose
from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.elastic.utility import ElasticJobs, utility
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import resized
from gavel.mechanism.planning.lengths import steps_left
from gavel.mechanism.planning.problem import Matrix
from gavel.mechanism.planning.switch_costs import ANY_OTHER
from gavel.types import AcceleratorType, BoolArray, FloatArray, InfeasibleType, IntArray, Job, JobId

SURE_ERROR = 0.15  # of log(steps/s): a speed that is known so well is as good as measured
GROWTH = 2  # times the largest size whose speed is known: more is not given at once
UNMEASURED_PART = 0.1  # of a round, what a restart is taken to cost while none was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeInputs:
    """What sizes are chosen from, besides the jobs of the round.

    `held`: type and size of each gang that runs; `staying`: jobs whose gang keeps its size; `restart_s`: what a restart
    costs, by job kind; `of_own_kind` gives a job the kind whose rates apply to it.
    """

    feasibility: Feasibility
    matrix: Matrix
    marks: Sequence[InfeasibleType]
    held: Mapping[JobId, tuple[AcceleratorType, int]]
    staying: Collection[JobId]
    restart_s: Mapping[str, float]
    round_duration_s: float
    of_own_kind: Callable[[Job], Job]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Candidates:
    """n jobs, m types, k sizes: `jobs` by row and size, and their speeds, 0 where a size is not possible."""

    jobs: Mapping[tuple[int, int], Job]
    sizes: IntArray  # (k,)
    speed: FloatArray  # (n, m, k) steps per second
    is_sure: BoolArray  # (n, m, k) True where the speed was measured, or is known as well


def in_their_sizes(jobs: Sequence[Job], inputs: SizeInputs) -> list[Job]:
    """Return the jobs of a round, each elastic one in the size chosen for it; rigid ones are as they were.

    `jobs`: elastic ones as they were submitted. An elastic job that is given nothing keeps the
    size that it runs in, or would start in its smallest: it is the policy that says whether it runs.
    """
    if not any(job.spec.is_elastic for job in jobs):
        return list(jobs)
    candidates = _candidates(jobs, inputs)
    asked = _asked(jobs, candidates, inputs)
    fits = candidates.sizes <= _capacity(inputs)[:, None]
    worth = utility(asked) * (fits & _within_growth(candidates, asked))
    problem = SizeProblem(utility=worth, sizes=candidates.sizes, capacity_workers=_capacity(inputs))
    chosen = np.where(asked.is_fixed, asked.configuration, choose(problem).configuration)
    places = np.where(chosen == NOTHING, asked.configuration, chosen)
    return [
        job if not job.spec.is_elastic else candidates.jobs[row, _size(row, place, candidates)]
        for row, (job, place) in enumerate(zip(jobs, places.tolist(), strict=True))
    ]


def _candidates(jobs: Sequence[Job], inputs: SizeInputs) -> _Candidates:
    """Every job in each of its sizes, without the types on which it does not fit in that size."""
    of_row = {(row, size): resized(job, size) for row, job in enumerate(jobs) for size in job.spec.possible_sizes}
    bare = ruled_out(of_row.values(), inputs.marks)
    seen = {place: inputs.of_own_kind(job) for place, job in zip(of_row, bare, strict=True)}
    specs, types = [job.spec for job in seen.values()], inputs.feasibility.types
    believed, fits = inputs.matrix(specs, types), inputs.feasibility.mask(specs)
    sizes = np.array(sorted({size for _, size in seen}), dtype=np.int64)
    rows = np.array([row for row, _ in seen], dtype=np.int64)
    places = np.searchsorted(sizes, [size for _, size in seen])
    shape = len(jobs), len(types), len(sizes)
    speed, is_sure = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    speed[rows, :, places] = np.where(fits, believed.steps_per_s, 0.0)
    is_sure[rows, :, places] = fits & (~believed.is_worth_measuring | (believed.relative_error <= SURE_ERROR))
    return _Candidates(jobs=seen, sizes=sizes, speed=speed, is_sure=is_sure)


def _asked(jobs: Sequence[Job], candidates: _Candidates, inputs: SizeInputs) -> ElasticJobs:
    held = np.array([_held(job.id, candidates, inputs) for job in jobs], dtype=np.int64)
    other_s = inputs.restart_s.get(ANY_OTHER, UNMEASURED_PART * inputs.round_duration_s)
    total_steps = np.array([math.nan if job.total_steps is None else job.total_steps for job in jobs])
    left = steps_left(
        total_steps,
        np.array([job.steps_reported for job in jobs], dtype=np.float64),
        kinds=[job.spec.kind for job in jobs],
        steps_per_s=candidates.speed.max(axis=2, initial=0.0),
    )
    return ElasticJobs(
        speed=candidates.speed,
        steps_left=np.maximum(1.0, left),
        configuration=held,
        restart_s=np.array([inputs.restart_s.get(job.spec.kind, other_s) for job in jobs]),
        weight=np.array([math.ldexp(job.spec.weight, job.spec.priority) for job in jobs]),
        is_fixed=np.array([job.id in inputs.staying for job in jobs], dtype=np.bool_) & (held != NOTHING),
    )


def _held(job_id: JobId, candidates: _Candidates, inputs: SizeInputs) -> int:
    """The configuration in which the job runs; NOTHING if it does not, or on a type that takes no job any more."""
    name, size = inputs.held.get(job_id, ("", 0))
    types, sizes = inputs.feasibility.types, candidates.sizes.tolist()
    return types.index(name) * len(sizes) + sizes.index(size) if name in types and size in sizes else NOTHING


def _capacity(inputs: SizeInputs) -> IntArray:
    return np.array([inputs.feasibility.workers[name] for name in inputs.feasibility.types], dtype=np.int64)


def _within_growth(candidates: _Candidates, asked: ElasticJobs) -> BoolArray:
    """Where a size may be given, (n, 1, k): the smallest, and up to GROWTH times one whose speed is known well."""
    sizes, possible = candidates.sizes, (candidates.speed > 0).any(axis=1)
    measured = np.where(candidates.is_sure.any(axis=1), sizes, 0).max(axis=1, initial=0)
    smallest = np.where(possible, sizes, sizes.max(initial=1)).min(axis=1, initial=int(sizes.max(initial=1)))
    held = np.where(asked.configuration >= 0, sizes[asked.configuration % max(1, len(sizes))], 0)
    most = np.maximum(np.maximum(GROWTH * measured, smallest), held)
    enough: BoolArray = (sizes <= most[:, None])[:, None, :]
    return enough


def _size(row: int, place: int, candidates: _Candidates) -> int:
    """The size of a configuration; without one the smallest in which the job can run, else its smallest."""
    if place != NOTHING:
        return int(candidates.sizes[place % len(candidates.sizes)])
    possible = candidates.sizes[(candidates.speed[row] > 0).any(axis=0)].tolist()
    return int(possible[0]) if possible else min(size for at, size in candidates.jobs if at == row)
