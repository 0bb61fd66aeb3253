"""The interior point of the Nash bargaining solution against the program that defines it, and against its bound."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gavel.errors import SolveFailed
from gavel.policies import measures
from gavel.policies.fast import bargaining, nash
from gavel.policies.fast.bargaining import SOLVER
from gavel.policies.partial_allocation import PartialAllocation
from gavel.policies.proportional_fairness import ProportionalFairness
from tests.builders import a_problem
from tests.policies.instances import an_instance, few_examples, seeds


@few_examples
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 14), types=st.integers(1, 4))
def test_it_is_at_least_as_good_as_the_program(seed: int, jobs: int, types: int) -> None:
    problem, policy = an_instance(seed, jobs=jobs, types=types), ProportionalFairness()
    assume(measures.runnable(problem).any())  # Hypothesis fails where it has to discard too many
    ours, theirs = policy.allocate(problem), policy.program(problem)
    assert ours.solver == SOLVER
    assert ours.certificate.dual_gap is not None and ours.certificate.dual_gap <= 1e-7
    best, stated = (float(policy.objective(problem, each)[0]) for each in (ours, theirs))
    assert best >= stated - 1e-6 * problem.weight.sum()


def test_the_program_is_solved_where_rounding_keeps_the_solver_from_its_first_tolerance() -> None:
    allocation = ProportionalFairness().program(an_instance(5434, jobs=7, types=1))
    assert allocation.certificate.dual_gap is not None and allocation.certificate.dual_gap <= 1e-7


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_partial_allocation_keeps_what_the_programs_keep(seed: int) -> None:
    problem, policy = an_instance(seed, jobs=2 + seed % 7), PartialAllocation()
    ours, theirs = policy.allocate(problem), policy.program(problem)
    assert ours.solver == SOLVER
    assert policy.objective(problem, ours) == pytest.approx(policy.objective(problem, theirs), abs=1e-4)


def test_many_jobs_are_solved_with_a_proof() -> None:
    draw = np.random.default_rng(2)
    problem = a_problem(draw.lognormal(0, 1, (3_000, 4)).tolist(), [200, 100, 50, 10], weight=draw.uniform(1, 5, 3_000))
    allocation = ProportionalFairness().allocate(problem)
    assert allocation.solver == SOLVER
    assert allocation.certificate.dual_gap is not None and allocation.certificate.dual_gap <= 1e-6


def test_identical_jobs_share_alike() -> None:
    problem = a_problem([[2.0, 1.0]] * 3 + [[1.0, 3.0]] * 2, [1, 1])
    fractions = ProportionalFairness().allocate(problem).time_fraction
    assert np.ptp(fractions[:3], axis=0).max() == 0 and np.ptp(fractions[3:], axis=0).max() == 0


def test_questions_solved_side_by_side_or_in_parts_have_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = an_instance(4, jobs=9)
    jobs = np.flatnonzero(measures.runnable(problem))
    together = bargaining.without_each(problem, jobs)
    monkeypatch.setattr(nash, "MOST_ENTRIES", 1)
    apart = bargaining.without_each(problem, jobs)
    assert together is not None and apart is not None
    assert together == pytest.approx(apart, rel=1e-6)
    assert not np.diag(together).any()


def test_a_method_that_does_not_settle_leaves_the_answer_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nash, "MOST_STEPS", 2)
    problem = an_instance(1)
    with pytest.raises(SolveFailed):
        nash.agree(nash.Bargain(np.ones((1, 2)), np.ones(2), np.ones(1)), np.ones((1, 2)))
    for policy in (ProportionalFairness(), PartialAllocation()):
        assert policy.allocate(problem).solver == "clarabel"


def test_a_wrong_answer_shows_in_its_gap() -> None:
    bargain = nash.Bargain(np.asarray([[2.0, 1.0], [1.0, 2.0]]), np.ones(2), np.ones(2))
    agreed = nash.agree(bargain, np.ones((1, 2)))
    assert agreed.gap[0] <= 1e-8
    assert agreed.fractions[0] == pytest.approx(np.eye(2), abs=1e-6)


def test_a_job_that_runs_nowhere_gets_nothing() -> None:
    problem = replace(a_problem([[0.0, 0.0], [1.0, 2.0]], [1, 1]))
    for policy in (ProportionalFairness(), PartialAllocation()):
        assert policy.allocate(problem).time_fraction == pytest.approx(np.asarray([[0.0, 0.0], [0.0, 1.0]]), abs=1e-6)
