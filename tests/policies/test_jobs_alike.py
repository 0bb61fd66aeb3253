"""Of many allocations of the greatest total: jobs that are alike have their time one after the other, in order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures, registry
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import an_instance, few_examples

TOTALS = (
    "max_total_relative_speed",
    "max_total_throughput",
    "min_cost",
    "rank_weighted_speed",
    "rank_weighted_speed?length=attained_service",
)


def with_copies(seed: int) -> AllocationProblem:
    """A few kinds of jobs, several of each, with equal lengths; every number of two jobs of a kind is the same."""
    base = an_instance(seed, jobs=4, types=1 + seed % 3)
    row = np.random.default_rng(seed).integers(0, 4, 12)
    return a_problem(
        base.throughput_steps_per_s[row, 0],
        base.capacity_workers,
        scale_factor=base.scale_factor[row],
        weight=base.weight[row],
        steps_remaining=base.steps_remaining[row],
        age_s=np.zeros(12),
        users=tuple(str(each) for each in row),
    )


@pytest.mark.parametrize("policy", TOTALS)
@few_examples
@given(seed=st.integers(0, 10**6))
def test_at_most_one_of_the_jobs_that_are_alike_has_a_part_of_its_time(policy: str, seed: int) -> None:
    problem = with_copies(seed)
    chosen = registry.load(policy)
    for answer in (chosen.allocate(problem), chosen.program(problem)):  # type: ignore[attr-defined]
        assert measures.violation(problem, answer.time_fraction) <= 1e-6
        busy = answer.time_fraction.sum(axis=1)
        for kind in set(problem.users):
            own = busy[[user == kind for user in problem.users]]
            assert (np.diff(own) <= 1e-6).all(), "an earlier job has no less time"
            assert ((own > 1e-6) & (own < 1 - 1e-6)).sum() <= 1


@pytest.mark.parametrize("policy", TOTALS)
@few_examples
@given(seed=st.integers(0, 10**6))
def test_it_is_as_good_as_any_and_the_same_by_prices_and_by_the_program(policy: str, seed: int) -> None:
    """Kinds whose time is the same in both have it dealt out alike: the same matrix, whoever solved it."""
    problem, chosen = with_copies(seed), registry.load(policy)
    fast, defined = chosen.allocate(problem), chosen.program(problem)  # type: ignore[attr-defined]
    assert chosen.objective(problem, fast) == pytest.approx(chosen.objective(problem, defined), rel=1e-6)  # type: ignore[attr-defined]
    for kind in set(problem.users):
        own = [user == kind for user in problem.users]
        one, other = (answer.time_fraction[own] for answer in (fast, defined))
        if np.allclose(one.sum(axis=0), other.sum(axis=0), atol=1e-6):
            assert one == pytest.approx(other, abs=1e-5)


def test_three_jobs_alike_on_a_worker_and_a_half() -> None:
    """The first has the fast worker, the second what is left; before, each had a third of both."""
    problem = a_problem([[4.0, 2.0]] * 3, [1, 1])
    answer = registry.load("max_total_relative_speed").allocate(replace(problem, age_s=np.zeros(3)))
    assert answer.time_fraction == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
