"""A tier with finish-time fairness against an exact program: bisection over linear programs, none of our own code.

Prices follow the curves themselves; the programs that stand behind them go straight between 64 corners of a curve.
"""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.fast.reduction import SOLVER
from gavel.policies.hierarchical import Hierarchical
from gavel.types import AllocationProblem, Tier
from tests.policies.instances import an_instance, seeds
from tests.policies.oracles import Undecided, equally_late_tier

GAP_OF_PRICES = 1e-5  # of the largest service in the answer
GAP_OF_PROGRAM = 0.02  # seen: 0.007


def a_late_tier(seed: int) -> AllocationProblem:
    """One tier, one to three users, jobs of any age and past, types that some cannot use."""
    draw = np.random.default_rng(seed)
    problem = an_instance(seed, jobs=3 + seed % 6, types=1 + seed % 3)
    users = tuple(draw.choice(["ann", "bob", "eve"][: 1 + seed % 3], len(problem.job_ids)).tolist())
    tiers = (Tier(name="only", objective="finish_time_fairness"),)
    return replace(problem, users=users, tiers=tiers, tier_of_job=np.zeros(len(users), dtype=np.int64))


def gap(problem: AllocationProblem, fractions: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference in a job's service, over the largest service."""
    return float(np.abs(measures.service(problem, fractions) - exact).max() / max(1.0, exact.max()))


@pytest.mark.parametrize("first", [seed for seed in seeds(10, 200) if seed % 50 == 0])
def test_finish_time_fair_tiers_agree_with_an_exact_program(first: int) -> None:
    """Fifty tiers at a time, ten in the quick profile; of fifty the exact program may leave two undecided."""
    tiers = [a_late_tier(seed) for seed in seeds(10, 200) if first <= seed < first + 50]
    assert sum(is_undecided(problem) for problem in tiers) <= len(tiers) // 25


def is_undecided(problem: AllocationProblem, *, by_program: bool = False) -> bool:
    """Whether the exact program has no answer; where it has one, ours must agree with it."""
    answer = Hierarchical().program(problem) if by_program else Hierarchical().allocate(problem)
    try:
        exact = equally_late_tier(problem)
    except Undecided:
        return True
    limit = GAP_OF_PRICES if answer.solver == SOLVER else GAP_OF_PROGRAM
    assert gap(problem, answer.time_fraction, exact) <= limit
    return False


def test_the_programs_of_finish_time_fair_tiers_are_as_near_as_their_corners() -> None:
    tiers = [a_late_tier(seed) for seed in seeds(4, 40)]
    assert sum(is_undecided(problem, by_program=True) for problem in tiers) <= len(tiers) // 25
