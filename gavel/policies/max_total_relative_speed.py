"""Maximum total relative speed: every worker goes to the job that makes the best use of it, with patience rewarded."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gavel.policies._speeds import TotalOfSpeeds
from gavel.types import AllocationProblem, FloatArray

Ageing = Literal["age", "attained_service", "none"]
TEN_HOURS_S = 36_000.0


@dataclass(frozen=True)
class MaxTotalRelativeSpeed(TotalOfSpeeds):
    """maximise sum_i s_i w_i f_i a_i / max_j T_ij with f_i = 1 + b ln(1 + waiting).

    Relative speeds can be added where steps of different models cannot. Without f a job that gains little from any type
    may wait for ever; with it every job's claim grows without bound. `ageing` says what counts as waiting: `age`
    (b = 0.1, in units of 10 h since submission), `attained_service` (b = 0.3, age over the time held), or `none`. For
    gangs of one the answer is integral: a maximum-weight matching of jobs to workers.
    """

    ageing: Ageing = "age"

    name: ClassVar[str] = "max_total_relative_speed"
    formula: ClassVar[str] = "maximise sum_i s_i w_i f_i a_i / max_j T_ij, f_i = 1 + b ln(1 + waiting_i)"
    source: ClassVar[str] = "Gavel (OSDI '20), section 4.2 (Maximizing Total Throughput), in relative speed"
    choose_when: ClassVar[str] = (
        "Choose this when the cluster should do as much work as it can, with fast and slow models counted alike."
    )
    order_matters: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset({"pareto", "monotone_in_capacity"})

    @property
    def reads(self) -> frozenset[str]:
        """Return the fields read: the weights, and what counts as waiting."""
        held = {"attained_service_s", "round_duration_s"} if self.ageing == "attained_service" else set()
        return frozenset({"weight", *held, *({"age_s"} if self.ageing != "none" else set())})

    def claim(self, problem: AllocationProblem) -> FloatArray:
        """Return s_i w_i f_i, (n,)."""
        return problem.scale_factor * problem.weight * self._patience(problem)

    def _patience(self, problem: AllocationProblem) -> FloatArray:
        """The factor f_i >= 1, (n,)."""
        if self.ageing == "none":
            return np.ones(len(problem.job_ids))
        if self.ageing == "age":
            return 1 + 0.1 * np.log1p(problem.age_s / TEN_HOURS_S)
        held_s = np.maximum(problem.attained_service_s / problem.scale_factor, problem.round_duration_s)
        return 1 + 0.3 * np.log1p(problem.age_s / held_s)


POLICY = MaxTotalRelativeSpeed
