"""The policies that maximise a total, against matchings, an independent linear program and closed forms."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from gavel.policies import measures
from gavel.policies.max_total_relative_speed import Ageing, MaxTotalRelativeSpeed
from gavel.policies.max_total_throughput import MaxTotalThroughput
from gavel.policies.programs.program import Program, cvxpy
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds
from tests.policies.oracles import Oracle


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_for_gangs_of_one_it_is_a_maximum_weight_matching_of_whole_workers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    problem = a_problem(draw.uniform(1, 9, (7, 3)), [2, 1, 2])
    allocation = MaxTotalRelativeSpeed(ageing="none").allocate(problem)
    assert allocation.time_fraction == pytest.approx(np.round(allocation.time_fraction), abs=1e-7)
    rates = problem.throughput_steps_per_s[:, 0]
    speed = np.repeat(rates / rates.max(axis=1, keepdims=True), problem.capacity_workers, axis=1)
    matched = speed[linear_sum_assignment(speed, maximize=True)].sum()
    assert measures.relative_throughput(problem, allocation.time_fraction).sum() == pytest.approx(matched)


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_totals_agree_with_an_independent_linear_program_and_between_solvers(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 6, types=2 + seed % 2)
    oracle = Oracle(problem)
    best = np.maximum(oracle.rates.max(axis=1), 1e-300)
    per_step = {MaxTotalThroughput: problem.weight, MaxTotalRelativeSpeed: problem.scale_factor * problem.weight / best}
    for kind, worth in per_step.items():
        wanted = oracle.best((oracle.rates * worth[:, None]).ravel(), np.zeros(oracle.jobs))
        for solver in ("highs", "clarabel"):
            policy = kind(solver=solver, **({"ageing": "none"} if kind is MaxTotalRelativeSpeed else {}))
            allocation = policy.allocate(problem)
            assert policy.objective(problem, allocation)[0] == pytest.approx(wanted, rel=1e-6)
            assert allocation.certificate.dual_gap is None or allocation.certificate.dual_gap < 1e-5


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_the_dual_bound_holds_for_any_gain_whatever_question_its_prices_come_from(seed: int) -> None:
    problem, draw = an_instance(seed), np.random.default_rng(seed)
    program = Program(problem, solver="highs")
    asked, other = (draw.uniform(0, 1, program.x.shape) for _ in range(2))
    program.run(program.over_valid(cvxpy().Maximize(asked @ program.x)))
    for gain, slack in ((asked, 1e-6), (other, np.inf)):
        dense = np.zeros(problem.throughput_steps_per_s[:, 0].shape)
        dense[program.entries] = gain
        most = Oracle(problem).best(dense.ravel(), np.zeros(6))
        assert most is not None
        assert most - 1e-6 <= program.bound(gain) <= most + slack


def test_raw_throughput_favours_small_steps_and_relative_speed_does_not() -> None:
    problem = a_problem([[100.0, 90.0], [1.0, 0.2]], [1, 1])
    assert MaxTotalThroughput().allocate(problem).time_fraction.argmax(axis=1).tolist() == [0, 1]
    assert MaxTotalRelativeSpeed().allocate(problem).time_fraction.argmax(axis=1).tolist() == [1, 0]


def rivals(waiting_s: float, attained_s: float) -> AllocationProblem:
    """One worker, and the first of two jobs has waited longer."""
    return a_problem(
        [[1.0], [1.0]], [1], weight=[1.0, 1.5], age_s=[waiting_s, 10.0], attained_service_s=[attained_s, 1.0]
    )


@pytest.mark.parametrize("ageing", ["age", "attained_service"])
def test_a_job_that_waits_long_enough_wins_against_a_heavier_one(ageing: Ageing) -> None:
    policy = MaxTotalRelativeSpeed(ageing=ageing)
    assert policy.allocate(rivals(20.0, 10.0)).time_fraction[:, 0] == pytest.approx([0.0, 1.0])
    assert policy.allocate(rivals(1e9, 10.0)).time_fraction[:, 0] == pytest.approx([1.0, 0.0])


def test_a_job_is_as_patient_as_it_has_been_served() -> None:
    policy = MaxTotalRelativeSpeed(ageing="attained_service")
    assert policy.allocate(rivals(1e5, 1e5)).time_fraction[:, 0] == pytest.approx([0.0, 1.0])
    assert policy.allocate(rivals(1e5, 10.0)).time_fraction[:, 0] == pytest.approx([1.0, 0.0])
