"""Cutting planes for prices, and what is built on them: totals of many different jobs, with and without targets."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.linear.cuts import lowest
from gavel.policies.fast.envelope import Market
from gavel.policies.fast.face import greatest_beside
from gavel.policies.max_total_relative_speed import MaxTotalRelativeSpeed
from gavel.types import FloatArray
from tests.builders import a_problem


def test_the_lowest_point_of_a_convex_function_is_found_from_nearby() -> None:
    centre = np.asarray([0.3, 0.5, 0.0])

    def cone(prices: FloatArray) -> tuple[float, FloatArray]:
        return 1 + float(np.abs(prices - centre).sum()), np.sign(prices - centre)

    assert lowest(cone, np.asarray([0.4, 0.4, 0.0])) == pytest.approx(centre, abs=1e-6)


@pytest.mark.parametrize("load", [0.2, 0.7, 2.0])
@pytest.mark.parametrize("types", [2, 4])
def test_thousands_of_different_jobs_get_the_total_of_the_program(load: float, types: int) -> None:
    draw, jobs = np.random.default_rng(types), 1_500
    workers = (1 + load * jobs * draw.dirichlet(np.ones(types))).astype(np.int64)
    problem = a_problem(draw.lognormal(0, 1, (jobs, types)).tolist(), workers, scale_factor=draw.choice([1, 2], jobs))
    policy = MaxTotalRelativeSpeed()
    allocation = policy.allocate(problem)
    assert allocation.solver == "prices"
    assert (allocation.certificate.dual_gap or 0.0) <= 1e-9
    best = policy.objective(problem, policy.program(replace(problem)))
    assert policy.objective(problem, allocation) == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_total_beside_targets_is_that_of_one_linear_program(part: float) -> None:
    from scipy import sparse
    from scipy.optimize import linprog

    draw, jobs, types = np.random.default_rng(3), 700, 3
    market = Market(draw.lognormal(0, 1, (types, jobs)), draw.choice([1.0, 2.0], jobs), np.asarray([60.0, 90.0, 200.0]))
    gain = draw.uniform(0.5, 2, jobs)
    evenly = market.rates.T @ market.workers / market.scale.sum()  # what an equal part of every type gives
    least = part * np.minimum(evenly, market.best * 0.5)
    total = greatest_beside(market, gain, least)
    each, ones = sparse.eye_array(jobs), np.ones(jobs)
    rows = [sparse.hstack([sparse.diags_array(-market.rates[kind]) for kind in range(types)])]
    rows.append(sparse.hstack([each] * types))
    rows.append(sparse.block_diag([market.scale[None]] * types))
    limits = np.concatenate([-least, ones, market.workers])
    exact = linprog(-(gain * market.rates).ravel(), A_ub=sparse.vstack(rows), b_ub=limits, method="highs")
    assert float(gain @ total.value) == pytest.approx(-exact.fun, rel=1e-7)
    assert (total.value >= least * (1 - 1e-8)).all()
    assert (total.fractions @ market.scale <= market.workers * (1 + 1e-9)).all()
