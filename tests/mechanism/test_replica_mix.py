"""How many replicas on which types: the search against the integral program that defines it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from gavel.mechanism.services.replica_mix import MixProblem, answered, least_loss, most_answered
from tests.conftest import IS_FULL

EXAMPLES = 2000 if IS_FULL else 150


@st.composite
def problems(draw: st.DrawFn) -> MixProblem:
    types = draw(st.integers(1, 5))
    rates = draw(st.lists(st.sampled_from((0.5, 1.0, 3.0, 7.5, 9.0, 25.0, 40.0)), min_size=types, max_size=types))
    losses = draw(st.lists(st.floats(1e-3, 4.0), min_size=types, max_size=types))
    least = draw(st.lists(st.integers(0, 3), min_size=types, max_size=types))
    more = draw(st.lists(st.integers(0, 30), min_size=types, max_size=types))
    count_max = sum(least) + draw(st.integers(0, 40))
    return MixProblem(
        rate=tuple(rates),
        loss=tuple(losses),
        least=tuple(least),
        most=tuple(each + extra for each, extra in zip(least, more, strict=True)),
        count_min=draw(st.integers(0, count_max)),
        count_max=count_max,
        needed=draw(st.integers(0, 2000)) / 4,  # the other solver takes a demand below 1e-6 for none
    )


def loss_of_the_program(problem: MixProblem) -> float | None:
    """The optimum of the program as the module states it; None: no counts meet it."""
    rows = np.array([problem.rate, np.ones(len(problem.rate))])
    lowest, highest = [problem.needed, problem.count_min], [np.inf, problem.count_max]
    answer = milp(
        np.array(problem.loss),
        constraints=LinearConstraint(rows, lowest, highest),
        bounds=Bounds(problem.least, problem.most),
        integrality=np.ones(len(problem.rate)),
        options={"mip_rel_gap": 0.0},
    )
    return float(answer.fun) if answer.success else None


@settings(max_examples=EXAMPLES, deadline=None)
@given(problems())
def test_the_search_finds_the_optimum_of_the_program(problem: MixProblem) -> None:
    mix, optimum = least_loss(problem), loss_of_the_program(problem)
    assert (mix is None) == (optimum is None)
    if mix is not None and optimum is not None:
        assert all(low <= each <= high for low, each, high in zip(problem.least, mix, problem.most, strict=True))
        assert problem.count_min <= sum(mix) <= problem.count_max
        assert problem.covers(mix)
        assert sum(a * b for a, b in zip(problem.loss, mix, strict=True)) <= optimum * (1 + 1e-6)


@settings(max_examples=EXAMPLES, deadline=None)
@given(problems())
def test_where_no_mix_is_enough_the_best_that_can_be_is_said(problem: MixProblem) -> None:
    mix = most_answered(problem)
    assert sum(mix) <= problem.count_max
    assert all(low <= each <= high for low, each, high in zip(problem.least, mix, problem.most, strict=True))
    other = least_loss(problem)
    assert other is None or answered(problem.rate, other) <= answered(problem.rate, mix) * (1 + 1e-9)
