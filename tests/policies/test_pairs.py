"""Space sharing: packed pairs beside single jobs, in populations of one scale factor and of several."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from gavel.errors import InvalidProblem
from gavel.policies import measures, registry
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.policies.max_total_throughput import MaxTotalThroughput
from gavel.policies.programs.pairs import with_pairs
from gavel.policies.programs.variants import agnostic
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds


def packed(seed: int, *, jobs: int = 6) -> AllocationProblem:
    """All pairs of one scale factor, in a population that mixes scale factors; packed jobs slow each other down."""
    problem, draw = an_instance(seed, jobs=jobs), np.random.default_rng(seed)
    alone = problem.throughput_steps_per_s[:, 0]
    rates = {
        (problem.job_ids[a], problem.job_ids[b]): alone[[a, b]] * draw.uniform(0.3, 1.0, (2, 1))
        for a, b in combinations(range(jobs), 2)
        if problem.scale_factor[a] == problem.scale_factor[b]
    }
    return with_pairs(problem, rates)


def test_two_jobs_that_hardly_slow_each_other_down_share_the_only_worker() -> None:
    problem = with_pairs(a_problem([[10.0], [10.0]], [1]), {("j0", "j1"): [[8.0], [9.0]]})
    allocation = MaxTotalThroughput().allocate(problem)
    assert allocation.combinations[2] == ("j0", "j1")
    assert allocation.time_fraction[:, 0] == pytest.approx([0.0, 0.0, 1.0])
    assert measures.effective_throughput(problem, allocation.time_fraction) == pytest.approx([8.0, 9.0])


def test_a_pair_holds_its_gang_s_workers_once_and_the_time_of_both_jobs() -> None:
    problem = with_pairs(a_problem([[1.0]] * 2, [4], scale_factor=[2, 2]), {("j0", "j1"): [[1.0], [1.0]]})
    half = np.full((3, 1), 0.5)
    assert measures.violation(problem, half) == 0.0
    assert measures.time_of_jobs(problem, half) == pytest.approx([1.0, 1.0])
    assert measures.violation(problem, np.asarray([[0.0], [0.6], [0.5]])) == pytest.approx(0.1)
    assert measures.violation(problem, np.asarray([[1.0], [1.0], [0.5]])) == pytest.approx(0.5)


@pytest.mark.parametrize("spec", [info.name for info in registry.available()])
def test_every_policy_takes_pairs_in_a_population_of_several_scale_factors(spec: str) -> None:
    problem = packed(3)
    assert len(set(problem.scale_factor.tolist())) > 1
    for seen in (problem, agnostic(problem)):
        allocation = registry.load(spec).allocate(seen)
        assert allocation.time_fraction.any()
        assert measures.violation(problem, allocation.time_fraction) <= 1e-6


@pytest.mark.parametrize("seed", seeds(8, 200))
def test_max_min_fairness_over_pairs_is_what_an_independent_linear_program_finds(seed: int) -> None:
    problem = packed(seed)
    policy = MaxMinFairness()
    got = policy.objective(problem, policy.allocate(problem))
    if got.size:
        assert got[0] == pytest.approx(worst_served(problem), rel=1e-5)


def worst_served(problem: AllocationProblem) -> float:
    """One dense linear program, entry by entry."""
    types, jobs = range(len(problem.accelerator_types)), range(len(problem.job_ids))
    columns = [
        (members, row, j)
        for row, members in enumerate(problem.combinations)
        for j in types
        if problem.scale_factor[members[0]] <= problem.capacity_workers[j]
        and all(problem.throughput_steps_per_s[row, place, j] > 0 for place in range(len(members)))
    ]
    equal = {members[0]: 0.0 for members, _, _ in columns}
    for members, row, j in columns:
        if len(members) == 1:
            part = problem.capacity_workers[j] / problem.capacity_workers.sum()
            equal[members[0]] += problem.throughput_steps_per_s[row, 0, j] * part
    table, limit = [], []
    for job in jobs:
        table.append([float(job in members) for members, _, _ in columns] + [0.0])
        limit.append(1.0)
    for j in types:
        table.append([problem.scale_factor[m[0]] * float(column == j) for m, _, column in columns] + [0.0])
        limit.append(float(problem.capacity_workers[j]))
    for job, equal_rate in equal.items():
        unit = problem.scale_factor[job] / equal_rate / problem.weight[job]
        gained = [
            -unit * problem.throughput_steps_per_s[row, m.index(job), j] if job in m else 0.0 for m, row, j in columns
        ]
        table.append([*gained, 1.0])
        limit.append(0.0)
    return float(-linprog([0.0] * len(columns) + [-1.0], A_ub=table, b_ub=limit, bounds=(0, None)).fun)


def test_packing_never_makes_the_worst_job_worse() -> None:
    for seed in seeds(5, 60):
        alone, pairs = an_instance(seed), packed(seed)
        policy = MaxMinFairness(water_filling=False)
        before, after = (policy.objective(each, policy.allocate(each))[0] for each in (alone, pairs))
        assert after >= before - 1e-6


def test_a_type_on_which_one_of_them_stands_still_is_closed_to_a_pair() -> None:
    problem = with_pairs(a_problem([[10.0, 1.0], [10.0, 0.0]], [1, 1]), {("j0", "j1"): [[9.0, 1.0], [0.0, 5.0]]})
    assert not measures.can_run(problem)[2].any()


def test_pairs_that_cannot_be_are_refused_by_name() -> None:
    problem = a_problem([[1.0]] * 2, [4], scale_factor=[1, 2])
    with pytest.raises(InvalidProblem, match=r"pair_rates\[j0\+j1\].*gangs of 1 and of 2"):
        with_pairs(problem, {("j0", "j1"): [[1.0], [1.0]]})
    with pytest.raises(InvalidProblem, match=r"pair_rates\[j0\+j9\].*no job j9"):
        with_pairs(problem, {("j0", "j9"): [[1.0], [1.0]]})
    with pytest.raises(InvalidProblem, match=r"throughput_steps_per_s\[j0\+j1\]"):
        same = with_pairs(a_problem([[1.0]] * 2, [4]), {("j0", "j1"): [[1.0], [np.nan]]})
        MaxMinFairness().allocate(same)
