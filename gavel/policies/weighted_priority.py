"""A rule of priority with a weight for each feature of a job: well-known orders are points of one space."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from gavel.policies import measures
from gavel.policies._parameters import AnySign
from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import SECONDS_PER_HOUR, AllocationProblem, FloatArray, IntArray

DIGITS = 12  # after the point; priorities that agree in them are equal, as ln s + ln R has other roundings than ln s R


@dataclass(frozen=True)
class WeightedPriority(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of falling priority sum_f w_f x_if; equals by arrival.

    The fields name the features x_i and hold their weights w: `remaining_time` ln of the seconds left on the best type,
    `workers` ln of the gang's size, `attained_service` ln of 1 + the worker seconds held, `age` hours since submission,
    `relative_speed` the mean rate over all workers relative to the best type, `tier_lag` the part of all weight that
    the job's tier has less the part of all attained service that its present jobs have. A weight of `age` above 0 lets
    no job wait for ever, since no other feature grows as fast. `RULES` has the weights of well-known orders.
    """

    remaining_time: AnySign = 0.0
    workers: AnySign = 0.0
    attained_service: AnySign = 0.0
    age: AnySign = 0.0
    relative_speed: AnySign = 0.0
    tier_lag: AnySign = 0.0

    name: ClassVar[str] = "weighted_priority"
    formula: ClassVar[str] = "lexicographically maximise a_i / max_j T_ij in order of falling sum_f w_f x_if"
    source: ClassVar[str] = "after EASY queue orders tuned by simulation (Lelong, Reis, Trystram, TPDS 2018)"
    choose_when: ClassVar[str] = (
        "Choose this when none of the fixed orders suits the workload, and simulations can find better weights."
    )
    order_matters: ClassVar[bool] = True

    @property
    def reads(self) -> frozenset[str]:
        """Return the fields that the features of weight other than 0 depend on."""
        return frozenset(field for name in self._weights() for field in READS[name])

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return jobs_by(-np.round(self.priority(problem), DIGITS))

    def priority(self, problem: AllocationProblem) -> FloatArray:
        """Return the weighted sum of each job's features, (n,); the largest goes first."""
        weighted = [weight * FEATURES[name](problem) for name, weight in self._weights().items()]
        return np.asarray(np.sum([np.zeros(len(problem.job_ids)), *weighted], axis=0))

    def _weights(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in FEATURES if getattr(self, name)}


def _remaining_time(problem: AllocationProblem) -> FloatArray:
    able = measures.runnable(problem)
    return np.log(measures.remaining_time_s(problem), out=np.zeros(len(able)), where=able)


def _relative_speed(problem: AllocationProblem) -> FloatArray:
    return measures.equal_share_rate(problem) * measures.per_best_rate(problem)


def _tier_lag(problem: AllocationProblem) -> FloatArray:
    count = len(problem.tiers)
    present = np.bincount(problem.tier_of_job, minlength=count) > 0
    weight = np.array([tier.weight for tier in problem.tiers]) * present
    attained = np.bincount(problem.tier_of_job, weights=problem.attained_service_s, minlength=count)
    lag: FloatArray = weight / max(weight.sum(), 1e-300) - attained / max(attained.sum(), 1e-300)
    return lag[problem.tier_of_job]


FEATURES = MappingProxyType(
    {
        "remaining_time": _remaining_time,
        "workers": lambda problem: np.log(problem.scale_factor),
        "attained_service": lambda problem: np.log1p(measures.attained_service_s(problem)),
        "age": lambda problem: problem.age_s / SECONDS_PER_HOUR,
        "relative_speed": _relative_speed,
        "tier_lag": _tier_lag,
    }
)
"""Each feature of n jobs, (n,), by its name."""
READS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "remaining_time": frozenset({"steps_remaining"}),
        "workers": frozenset(),
        "attained_service": frozenset({"attained_service_s"}),
        "age": frozenset({"age_s"}),
        "relative_speed": frozenset(),
        "tier_lag": frozenset({"tiers", "tier_of_job", "attained_service_s"}),
    }
)
RULES: Mapping[str, WeightedPriority] = MappingProxyType(
    {
        "fifo": WeightedPriority(),
        "shortest_job_first": WeightedPriority(remaining_time=-1.0),
        "least_remaining_work": WeightedPriority(remaining_time=-1.0, workers=-1.0),
        "smallest_gang_first": WeightedPriority(workers=-1.0),
        "least_attained_service?queues=continuous": WeightedPriority(attained_service=-1.0),
    }
)
"""The policy of each of these names, and the weights that reproduce its order."""

POLICY = WeightedPriority
