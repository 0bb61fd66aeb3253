"""The one solve call: limits of the cluster, strict statuses, the check of the answer, refusal of bad problems."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.errors import InvalidProblem, SolveFailed
from gavel.policies import measures
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.programs.validate import check_problem
from gavel.types import AllocationProblem, Tier
from tests.builders import a_problem

PROBLEM = a_problem([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]], [1, 2], scale_factor=[1, 1, 2])


@pytest.mark.parametrize("solver", ["clarabel", "highs"])
def test_the_most_total_service_is_found_within_all_limits(solver: str) -> None:
    cp, program = cvxpy(), Program(PROBLEM, solver=solver)  # type: ignore[arg-type]
    allocation = program.solve("sum", cp.Maximize(cp.sum(program.throughput)))
    assert allocation.solver == solver
    assert allocation.certificate.primal_violation <= 1e-6
    assert measures.effective_throughput(PROBLEM, allocation.time_fraction).sum() == pytest.approx(5.5, abs=1e-5)
    assert allocation.time_fraction[1, 1] == 0
    assert allocation.time_fraction[2, 0] == 0


def test_only_an_optimal_answer_is_used() -> None:
    cp, program = cvxpy(), Program(PROBLEM)
    with pytest.raises(SolveFailed, match="infeasible"):
        program.solve("impossible", cp.Minimize(0), [program.throughput >= 100])
    with pytest.raises(SolveFailed, match="unbounded"):
        program.solve("impossible", cp.Maximize(cp.Variable()))


@pytest.mark.parametrize("solver", ["clarabel", "highs"])
def test_the_half_answer_of_a_time_out_is_not_used(solver: str) -> None:
    draw = np.random.default_rng(0)
    problem = a_problem(draw.uniform(1, 5, (60, 4)), [5] * 4)
    cp, program = cvxpy(), Program(problem, solver=solver, time_limit_s=1e-9)  # type: ignore[arg-type]
    with pytest.raises(SolveFailed, match=solver):
        program.solve("late", cp.Maximize(cp.min(program.throughput)))


def test_an_answer_that_breaks_a_limit_is_refused() -> None:
    cp, program = cvxpy(), Program(PROBLEM)
    program.solve("fine", cp.Maximize(cp.sum(program.throughput)))
    program.x.value = np.ones_like(program.x.value)
    with pytest.raises(SolveFailed, match="breaks a limit"):
        program.allocation("wrong")


@pytest.mark.parametrize(
    ("fractions", "broken_by"),
    [
        ([[0.5, 0.5], [0.0, 0.0], [0.0, 0.0]], 0.0),
        ([[0.75, 0.5], [0.0, 0.0], [0.0, 0.0]], 0.25),  # a job's time
        ([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]], 0.5),  # 3 workers of 2
        ([[-0.5, 0.0], [0.0, 0.0], [0.0, 0.0]], 0.5),
        ([[0.0, 0.0], [0.0, 0.25], [0.0, 0.0]], 0.25),  # where the job cannot run
        ([[np.nan, 0.0], [0.0, 0.0], [0.0, 0.0]], np.inf),
    ],
)
def test_violation_is_the_largest_broken_limit(fractions: list[list[float]], broken_by: float) -> None:
    assert measures.violation(PROBLEM, np.asarray(fractions)) == pytest.approx(broken_by)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"weight": np.ones(2)}, "weight"),
        ({"weight": np.asarray([1.0, 0.0, 1.0])}, "weight[j1]"),
        ({"scale_factor": np.asarray([1, 1, 0])}, "scale_factor[j2]"),
        ({"age_s": np.asarray([1.0, np.nan, 0.0])}, "age_s[j1]"),
        ({"capacity_workers": np.asarray([1, -1])}, "capacity_workers[t1]"),
        ({"deadline_at_s": np.asarray([np.nan, 1.0, 1.0])}, "deadline_at_s[j0]"),
        ({"users": ("ann",)}, "users"),
        ({"job_ids": ("a", "a", "b")}, "job_ids"),
        ({"combinations": ((0,), (1,), (7,))}, "combinations[2]"),
        ({"combinations": ((0,), (1,), (1, 2))}, "combinations[2]"),  # gangs of different scale factors
        ({"tier_of_job": np.asarray([0, 0, 1])}, "tier_of_job[j2]"),
        ({"tiers": ()}, "tier_of_job[j0]"),
    ],
)
def test_a_problem_that_no_policy_can_use_is_refused_by_array_and_row(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidProblem) as refusal:
        check_problem(replace(PROBLEM, **wrong))  # type: ignore[arg-type]
    assert refusal.value.field == field


def test_rates_of_a_member_that_is_not_there_are_refused() -> None:
    rates = PROBLEM.throughput_steps_per_s.copy()
    rates[1, 1, 0] = 1.0
    with pytest.raises(InvalidProblem, match=r"throughput_steps_per_s\[j1\]"):
        check_problem(replace(PROBLEM, throughput_steps_per_s=rates))


def test_the_words_of_the_documentation_have_the_values_it_gives() -> None:
    """e = sum T N / sum N; service s a / e; relative throughput a / max T; a gang of 2 cannot run on 1 worker."""
    problem: AllocationProblem = replace(PROBLEM, tiers=(Tier(name="only"),))
    fractions = np.asarray([[0.5, 0.5], [0.5, 0.0], [0.0, 0.5]])
    assert measures.equal_share_rate(problem) == pytest.approx([5 / 3, 1.0, 2 / 3])
    assert measures.effective_throughput(problem, fractions) == pytest.approx([1.5, 1.5, 0.5])
    assert measures.service(problem, fractions) == pytest.approx([0.9, 1.5, 1.5])
    assert measures.relative_throughput(problem, fractions) == pytest.approx([0.75, 0.5, 0.5])
