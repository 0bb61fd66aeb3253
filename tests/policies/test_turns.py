"""Serving in order in closed form, against the price method and the linear programs that define it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures
from gavel.policies._serving import program
from gavel.policies.fast.max_min import in_order
from gavel.policies.fast.turns import SOLVER, in_turn
from gavel.policies.fifo import Fifo
from gavel.policies.shortest_job_first import ShortestJobFirst
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import few_examples


def drawn(seed: int, jobs: int, types: int, load: float) -> AllocationProblem:
    draw = np.random.default_rng(seed)
    rates = draw.lognormal(0, 1, (jobs, types)) * (draw.random((jobs, types)) > 0.2)
    workers = draw.integers(0, max(2, int(load * jobs / types) + 1), types)
    return a_problem(rates.tolist(), workers.tolist(), scale_factor=draw.choice([1, 1, 2, 4], jobs).tolist())


@few_examples
@given(
    seed=st.integers(0, 10**6), jobs=st.integers(1, 14), types=st.integers(1, 4), load=st.sampled_from([0.3, 1.0, 3.0])
)
def test_it_serves_every_job_as_the_program_does(seed: int, jobs: int, types: int, load: float) -> None:
    problem = drawn(seed, jobs, types, load)
    for policy in (Fifo(), Fifo(backfill=False), ShortestJobFirst(), ShortestJobFirst(backfill=False)):
        closed = policy.allocate(problem)
        stated = program(problem, policy.order, policy=policy.name, backfill=policy.backfill, time_limit_s=60.0)
        assert closed.solver == SOLVER or not problem.capacity_workers.any()
        assert policy.objective(problem, closed) == pytest.approx(policy.objective(problem, stated), abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("backfill", [True, False])
def test_many_jobs_agree_with_the_price_method(seed: int, backfill: bool) -> None:
    problem, order = drawn(seed, 500, 3, 0.5), np.random.default_rng(seed).permutation(500)
    closed, priced = (by(problem, "any", order, backfill=backfill) for by in (in_turn, in_order))
    assert closed is not None and priced is not None
    speeds = [measures.relative_throughput(problem, each.time_fraction) for each in (closed, priced)]
    assert speeds[0] == pytest.approx(speeds[1], abs=1e-6)
    assert closed.certificate.dual_gap == pytest.approx(0.0, abs=1e-12)


def test_a_job_with_equal_rates_on_two_types_is_left_to_another_method() -> None:
    problem = a_problem([[1.0, 1.0], [1.0, 0.0]], [1, 1])
    assert in_turn(problem, "fifo", np.arange(2), backfill=True) is None
    allocation = Fifo().allocate(problem)
    assert allocation.solver != SOLVER
    assert allocation.time_fraction == pytest.approx(np.asarray([[0.0, 1.0], [1.0, 0.0]]), abs=1e-6)


def test_nobody_to_serve_and_nothing_to_serve_with() -> None:
    answer = in_turn(a_problem([[0.0, 0.0]], [1, 1]), "fifo", np.arange(1), backfill=True)
    assert answer is not None and not answer.time_fraction.any()
    assert not Fifo().allocate(a_problem([[1.0, 2.0]], [0, 0])).time_fraction.any()
