"""Max-min fairness against the paper's example, closed forms, brute force and a second solver."""

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.types import Allocation, AllocationProblem, Tier
from tests.builders import a_problem
from tests.policies.instances import an_instance, instances, seeds
from tests.policies.oracles import Oracle, filled_by_tiers


def workers_held(problem: AllocationProblem, allocation: Allocation) -> np.ndarray:
    return problem.scale_factor @ allocation.time_fraction


def test_the_example_of_gavel_s_paper_gives_each_job_eight_elevenths_of_its_equal_share_rate() -> None:
    problem = a_problem([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]], [1, 1])
    allocation = MaxMinFairness().allocate(problem)
    assert measures.service(problem, allocation.time_fraction) == pytest.approx([8 / 11] * 3)
    assert allocation.time_fraction == pytest.approx(np.asarray([[5, 0], [5, 1], [1, 10]]) / 11, abs=1e-6)


def test_identical_jobs_on_one_type_share_it_by_weight() -> None:
    problem = a_problem([[2.0]] * 3, [1], weight=[1.0, 2.0, 5.0])
    allocation = MaxMinFairness().allocate(problem)
    assert allocation.time_fraction[:, 0] == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_a_gang_of_two_gets_as_many_workers_as_a_single_job() -> None:
    problem = a_problem([[2.0], [2.0]], [2], scale_factor=[1, 2])
    assert workers_held(problem, MaxMinFairness().allocate(problem)) == pytest.approx([2.0])
    assert MaxMinFairness().allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, 0.5])


def test_the_plain_program_may_leave_accelerators_idle_and_water_filling_uses_them() -> None:
    problem = a_problem([[1.0, 0.5], [4.0, 1.0], [4.0, 1.0], [4.0, 1.0]], [2, 2], weight=[5.0, 1.0, 1.0, 1.0])
    plain, filled = (MaxMinFairness(water_filling=each).allocate(problem) for each in (False, True))
    worst = [MaxMinFairness(water_filling=False).objective(problem, each)[0] for each in (plain, filled)]
    assert worst[0] == pytest.approx(worst[1])
    assert workers_held(problem, plain).sum() < 4 - 0.5
    assert workers_held(problem, filled).sum() == pytest.approx(4.0)


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_the_plain_program_agrees_with_an_independent_linear_program_and_between_solvers(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 3, types=2 + seed % 2)
    by_solver = {
        solver: MaxMinFairness(water_filling=False, solver=solver)  # type: ignore[arg-type]
        for solver in ("clarabel", "highs")
    }
    values = [policy.objective(problem, policy.allocate(problem)) for policy in by_solver.values()]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    if values[0].size:
        assert values[1][0] == pytest.approx(Oracle(problem).worst_served(problem.weight), rel=1e-6)


def test_water_filling_agrees_with_brute_force_job_by_job() -> None:
    for problem in instances(12, 120):
        one_tier = {"tiers": (Tier(name="all"),), "tier_of_job": np.zeros(len(problem.job_ids), dtype=int)}
        problem = replaced(problem, **one_tier)
        got = measures.service(problem, MaxMinFairness().allocate(problem).time_fraction)
        assert got == pytest.approx(filled_by_tiers(problem), abs=1e-4)


def test_water_filling_agrees_between_solvers() -> None:
    for problem in instances(12, 200):
        ours, theirs = (MaxMinFairness(solver="highs"), MaxMinFairness(solver="clarabel"))
        values = [policy.objective(problem, policy.allocate(problem)) for policy in (ours, theirs)]
        assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-4)


def replaced(problem: AllocationProblem, **fields: object) -> AllocationProblem:
    from dataclasses import replace

    return replace(problem, **fields)  # type: ignore[arg-type]
