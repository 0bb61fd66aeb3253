"""Rank-weighted relative speed: of the jobs' speeds those of the shortest count most, and no job falls far behind."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gavel.finish_time import LATE_RHO
from gavel.policies import measures
from gavel.policies._speeds import TotalOfSpeeds
from gavel.policies.tiers.ranks import claim, even_part, rate_of_late
from gavel.rank_weights import rank_weight
from gavel.types import AllocationProblem, FloatArray

Length = Literal["remaining", "attained_service"]
LEVELS_BASE = 4.0  # of attained service: one level is four times the last
SLACK = 1e-7  # relative: the isolated rates of all jobs together just fit, and rounding must not say that they do not


@dataclass(frozen=True)
class RankWeightedSpeed(TotalOfSpeeds):
    """maximise sum_i w_i v_i s_i^g a_i / max_j T_ij subject to a_i >= T_iso_i for every job that is late.

    v falls with the rank of W_i from the shortest to the longest:

    theta_i = (i/n)^e - ((i-1)/n)^e with e = 1 / (1 - q), i = 1 the largest W of n, equals alike;
    v = theta^(1-q), mixed with its mean: three tenths where many wait, nine where the cluster has room for all. heSRPT
    shows that theta are the shares of least mean response time for n jobs of known size whose speed is their share to
    the power q. `length` says what is W: `remaining` (steps left at the best rate, as far as that is sure, g = 3/4), or
    `attained_service` (levels of accelerator hours held, for jobs whose lengths tell nothing, g = 1).

    A job is late if it reaches rho_i = (age_i + R_i / T_iso_i) / (t_i + R_i / T_iso_i) >= `rho_limit` even at its
    isolated rate T_iso_i, that of 1/n of every type, from now on; t_i is the isolated time of its done steps. The
    isolated plan serves all late jobs, so the demand can always be met (`rate_of_late`). Where lengths tell nothing, no
    job is late.

    No job ever falls further behind: age_i - t_i <= (`rho_limit` - 1) max (t_i + R_i / T_iso_i), the most that this was
    since its submission. For while a job is late, a_i >= T_iso_i, so that t_i grows by at least what age_i grows by;
    and while it is not, it is less behind than that. Rounds add what they lag behind their fractions.
    """

    length: Length = "remaining"
    rho_limit: float = LATE_RHO

    name: ClassVar[str] = "rank_weighted_speed"
    formula: ClassVar[str] = (
        "maximise sum_i w_i v_i s_i^g a_i / max_j T_ij, v by rank of the length, subject to a_i >= T_iso_i if late"
    )
    source: ClassVar[str] = "after heSRPT (Berg, Vesilo, Harchol-Balter, Performance Evaluation 2020), section 3"
    choose_when: ClassVar[str] = "Choose this when jobs should end as soon as possible in the mean."
    order_matters: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset({"pareto", "monotone_in_capacity"})

    @property
    def reads(self) -> frozenset[str]:
        """Return the fields read: the weights, and what the ranks and late jobs come from."""
        if self.length == "remaining":
            return frozenset({"weight", "steps_remaining", "length_error", "age_s", "isolated_time_s"})
        return frozenset({"weight", "attained_service_s"})

    def claim(self, problem: AllocationProblem) -> FloatArray:
        """Return w_i v_i s_i^g, (n,)."""
        even = even_part(problem)
        if self.length == "remaining":
            length = measures.expected_length(measures.remaining_time_s(problem), problem.length_error)
            return problem.weight * claim(length, problem.scale_factor, even)
        return problem.weight * rank_weight(_service_levels(problem), even) * problem.scale_factor

    def least_speed(self, problem: AllocationProblem) -> FloatArray:
        """Return the isolated rates of late jobs relative to their best rates, 0 for the others, (n,)."""
        if self.length != "remaining":
            return super().least_speed(problem)
        return rate_of_late(problem, self.rho_limit) * measures.per_best_rate(problem) * (1 - SLACK)


def _service_levels(problem: AllocationProblem) -> FloatArray:
    levels: FloatArray = np.floor(np.log1p(problem.attained_service_s / 3600.0) / np.log(LEVELS_BASE))
    return levels


POLICY = RankWeightedSpeed
