import numpy as np
import pytest

from gavel.policies import measures, registry
from gavel.simulator.interior import LAS, InteriorMaxMin, load
from tests.builders import a_problem


@pytest.mark.parametrize("seed", range(8))
def test_its_worst_served_job_is_served_as_well_as_by_the_policy_it_stands_for(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rates = draw.lognormal(0, 1, (9, 3)) * (draw.random((9, 3)) > 0.1)
    problem = a_problem(
        rates.tolist(), [3, 4, 2], scale_factor=draw.choice([1, 1, 2], 9), weight=draw.uniform(0.5, 2, 9)
    )
    least = []
    for policy in (InteriorMaxMin(), registry.load(LAS)):
        fractions = policy.allocate(problem).time_fraction
        served = (measures.service(problem, fractions) / problem.weight)[measures.runnable(problem)]
        least.append(served.min())
    assert least[0] == pytest.approx(least[1], rel=1e-4)


def test_only_the_plain_program_is_replaced() -> None:
    assert isinstance(load("max_min_fairness?water_filling=false"), InteriorMaxMin)
    assert load("fifo") is registry.load("fifo")


def test_jobs_that_run_nowhere_get_nothing() -> None:
    assert InteriorMaxMin().allocate(a_problem([[0.0]], [1])).time_fraction.tolist() == [[0.0]]
