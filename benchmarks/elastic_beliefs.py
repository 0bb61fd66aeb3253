"""What rules for sizes take the speeds of jobs to be: known, or learned while the jobs run.

The service learns by its own estimator, which all jobs of a kind teach, and gives a size of up to twice the largest
that is known well. Sia (SOSP '23, section 3.2) knows each job alone on one worker of each type, which costs nothing
here, takes more workers to cost no communication until the job had some, and one type to scale as another one did; its
models are exact once the job had the workers that determine them. So is, for both, the batch that is best with a size.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

import numpy as np

from benchmarks.elastic_jobs import (
    SIZES,
    TYPES,
    WORKERS_OF_NODE,
    Active,
    Family,
    Speeds,
    configurations,
    is_usual,
    place_of,
)
from gavel.estimator.learning import kind_of_job
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.planning.configurations import is_sure, within_growth
from gavel.types import FloatArray, JobSpec, Measurement
from gavel.types.elastic_kinds import elastic_kind

REPORT_S, REPORT_ERROR = 10.0, 0.05  # of log(steps/s): what a single report of a job's speed is off by
PROFILED_S = 60.0
FURTHER_COST = 1.1  # times the communication inside a node, what Sia expects at least between nodes


class Beliefs(Protocol):
    """What a rule knows of speeds."""

    def speeds(self, jobs: Sequence[Active], true: FloatArray) -> FloatArray:
        """Return the work a second that each job is taken to do, (n, m, k); 0 where it may not run."""

    def learn(self, jobs: Sequence[Active], true: FloatArray) -> None:
        """Take note of how fast the jobs were in the round that has ended."""


class Known:
    """Implements Beliefs: all speeds are known."""

    def speeds(self, jobs: Sequence[Active], true: FloatArray) -> FloatArray:
        """Return the true speeds."""
        return true

    def learn(self, jobs: Sequence[Active], true: FloatArray) -> None:
        """Do nothing."""


class Estimated:
    """Implements Beliefs: by the service's estimator. `is_shared`: all jobs of a family are of one kind, else none are.

    `is_batch_free`: a step is worth what the batch of the size makes of it, so that progress is measured; else steps.
    `is_profiled`: each job was measured for a minute alone on one worker of each type, which cost nothing, as for Sia.
    """

    def __init__(self, *, is_shared: bool, is_batch_free: bool, is_profiled: bool = False) -> None:
        self._is_shared, self._is_batch_free, self._is_profiled = is_shared, is_batch_free, is_profiled
        self._estimator = ReconciledThroughputs()
        self._rng = np.random.default_rng(0)
        self._reports: defaultdict[str, int] = defaultdict(int)

    def speeds(self, jobs: Sequence[Active], true: FloatArray) -> FloatArray:
        """Return the estimates in the sizes that the service would give."""
        if self._is_profiled:
            self._profile([(each, true[row]) for row, each in enumerate(jobs) if not self._reports[each.job.name]])
        own = self._estimator.state.own_kinds
        kinds = [kind_of_job(own.get(each.job.name), self._kind(each)) for each in jobs]
        specs = [_spec(kind, size) for kind in kinds for size in SIZES.tolist()]
        believed = self._estimator.matrix(specs, TYPES)
        shape = len(jobs), len(SIZES), len(TYPES)
        possible = is_usual().T * (true > 0).transpose(0, 2, 1)
        sure = (is_sure(believed).reshape(shape) & (possible > 0)).any(axis=2)
        held = configurations(np.array([each.held for each in jobs]))[0]
        enough = within_growth(SIZES, possible.any(axis=2), sure, held)
        steps = believed.steps_per_s.reshape(shape) * possible * enough[:, :, None]
        worth = np.array([self._worth(each) for each in jobs])
        return np.ascontiguousarray(steps.transpose(0, 2, 1)) * worth[:, None, None]

    def learn(self, jobs: Sequence[Active], true: FloatArray) -> None:
        """Let the estimator learn what the gangs reported."""
        worked = [(each, true[row]) for row, each in enumerate(jobs) if each.worked_s]
        self._take([report for each, speed in worked for report in self._of(each, speed, each.held, each.worked_s)])

    def _profile(self, new: Sequence[tuple[Active, FloatArray]]) -> None:
        alone = [column * len(SIZES) + place_of(1) for column in range(len(TYPES))]
        self._take([report for each, speed in new for at in alone for report in self._of(each, speed, at, PROFILED_S)])

    def _take(self, reports: Sequence[Measurement]) -> None:
        self._estimator = self._estimator.learn(reports)

    def _of(self, each: Active, true: FloatArray, configuration: int, worked_s: float) -> list[Measurement]:
        """What a gang in this configuration reported meanwhile."""
        column, place = divmod(configuration, len(SIZES))
        rate, seconds = float(true[column, place]) / self._worth(each), min(REPORT_S, worked_s)
        errors = np.exp(REPORT_ERROR * self._rng.standard_normal(max(1, int(worked_s / REPORT_S)))).tolist()
        return [self._report(each, configuration, rate * seconds * error, seconds) for error in errors if rate]

    def _report(self, each: Active, configuration: int, steps: float, seconds: float) -> Measurement:
        column, place = divmod(configuration, len(SIZES))
        self._reports[each.job.name] += 1
        return Measurement(
            job_id=each.job.name,
            generation=1,
            sequence=self._reports[each.job.name],
            user="",
            kind=self._kind(each),
            scale_factor=int(SIZES[place]),
            accelerator_type=TYPES[column],
            steps=steps,
            seconds=seconds,
        )

    def _kind(self, each: Active) -> str:
        job, family = each.job, each.job.family
        name = family.name if self._is_shared else f"own program {job.name}"
        if self._is_batch_free:
            return elastic_kind(name, min(family.worth), max(family.worth))
        return elastic_kind(name, job.tuned_batch)

    def _worth(self, each: Active) -> float:
        return 1.0 if self._is_batch_free else each.job.family.worth_of_step(each.job.tuned_batch, each.done)


@lru_cache(maxsize=100_000)
def _spec(kind: str, size: int) -> JobSpec:
    return JobSpec(kind=kind, user="", tier="", argv=(), scale_factor=size)


class OfSia:
    """Implements Beliefs: as Sia learns, each job by itself. `speeds_of`: as fast as what jobs are, of a family."""

    def __init__(self, speeds_of: Speeds) -> None:
        self._speeds_of = speeds_of
        self._seen: defaultdict[str, set[int]] = defaultdict(set)

    def speeds(self, jobs: Sequence[Active], true: FloatArray) -> FloatArray:
        """Return what the models say."""
        return np.array([self._of(each) for each in jobs]) * (true > 0)

    def learn(self, jobs: Sequence[Active], true: FloatArray) -> None:
        """Note the configurations in which jobs have worked."""
        for each in jobs:
            if each.worked_s:
                self._seen[each.job.name].add(each.held)

    def _of(self, each: Active) -> FloatArray:
        sizes, types = configurations(np.array(sorted(self._seen[each.job.name]), dtype=np.int64))
        knows = [_knows(sizes[types == column].tolist(), inside) for column, inside in enumerate(WORKERS_OF_NODE)]
        modelled = self._speeds_of(replace(each.job, family=_as_modelled(each.job.family, tuple(knows))), each.done)
        seen = [column for column, facts in enumerate(knows) if any(facts)]
        if not seen:
            return modelled
        like = max(seen, key=lambda column: sum(knows[column]))
        for column in set(range(len(TYPES))) - set(seen):
            gain = modelled[like] / modelled[like, 0]
            modelled[column] = np.where(
                (gain > 0) & (modelled[column] > 0), modelled[column, 0] * gain, modelled[column]
            )
        return modelled


Knows = tuple[bool, bool, bool]
"""Whether a job has had more than one worker on a node of a type, more than two there, and more than one node."""


def _knows(sizes: Sequence[int], inside: int) -> Knows:
    return (
        any(1 < size <= inside for size in sizes),
        any(2 < size <= inside for size in sizes),
        any(size > inside for size in sizes),
    )


@lru_cache(maxsize=10_000)
def _as_modelled(family: Family, knows: tuple[Knows, ...]) -> Family:
    """The family with what a job that knows this is expected to spend on communication."""
    return replace(
        family, fits={name: _fit(family.fits[name], facts) for name, facts in zip(TYPES, knows, strict=True)}
    )


def _fit(fit: Mapping[str, float], knows: Knows) -> dict[str, float]:
    has_pair, has_more, has_nodes = knows
    inside = {"alpha_r": fit["alpha_r"] * has_pair, "beta_r": fit["beta_r"] * has_more}
    across = {f"{name}_n": FURTHER_COST * inside[f"{name}_r"] for name in ("alpha", "beta")}
    return {**fit, **inside, **({} if has_nodes else across)}
