"""Who goes first under the published rules, and when a solve may be skipped."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.planning.priority import claims_published, fastest_first, shuffled
from gavel.mechanism.planning.problem import Solved, reused
from gavel.mechanism.planning.selection import SelectionProblem, choose
from gavel.types import Allocation, Certificate
from tests.builders import a_problem


def a_selection(
    target_fraction: list[list[float]], rates: list[list[float]], capacity: list[int], **over: object
) -> SelectionProblem:
    n, m = np.shape(rates)
    fields: dict[str, object] = {
        "rates": np.array(rates, dtype=float),
        "scale_factor": np.ones(n, dtype=np.int64),
        "capacity_workers": np.array(capacity, dtype=np.int64),
        "target_fraction": np.array(target_fraction, dtype=float),
        "ledger": np.zeros((n, m)),
        "kept": np.full(n, -1),
        "round_index": 1,
        "planner": "published",
    }
    return SelectionProblem(**(fields | over))  # type: ignore[arg-type]


def an_allocation(fractions: list[list[float]]) -> Allocation:
    return Allocation(
        combinations=tuple((f"j{i}",) for i in range(len(fractions))),
        accelerator_types=tuple(f"t{j}" for j in range(len(fractions[0]))),
        time_fraction=np.array(fractions),
        certificate=Certificate(primal_violation=0.0),
        policy="test",
        solver="none",
    )


def test_the_job_with_the_most_promised_for_what_it_received_goes_first_and_nobody_is_barred() -> None:
    target_fraction = np.array([[0.6], [0.3], [0.0]])
    received = np.array([[2.0], [0.0], [0.0]])
    assert list(claims_published(target_fraction, received, np.ones((3, 1), dtype=bool), [0])) == [(0, [1, 0, 2])]


def test_types_are_filled_fastest_first() -> None:
    """Type by type, so that a left-over of the fast type takes a job before its own better entry is looked at."""
    assert fastest_first(np.array([[1.0, 4.0], [1.0, 2.0], [3.0, 1.0]])) == [1, 0]
    chosen, _ = choose(a_selection([[0.0, 1.0]], [[2.0, 1.9]], [1, 1]))
    assert chosen == {0: 0}


def test_rounds_are_received_in_the_promised_proportion_between_two_solves() -> None:
    selection = a_selection([[0.75], [0.25]], [[1.0], [1.0]], [1])
    got = [0, 0]
    for index in range(40):
        chosen, ledger = choose(replace(selection, round_index=index + 1, is_new_allocation=index == 0))
        got[next(iter(chosen))] += 1
        selection = replace(selection, ledger=ledger)
    assert got == [30, 10]


def test_a_new_allocation_starts_the_count_anew() -> None:
    _, ledger = choose(a_selection([[0.5], [0.5]], [[1.0], [1.0]], [1], ledger=np.array([[7.0], [9.0]])))
    assert ledger.sum() == 1.0


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_shuffled_types_are_an_order_of_all_types_and_the_same_for_the_same_round(index: int, types: int) -> None:
    order = shuffled(list(range(types)), index)
    assert sorted(order) == list(range(types)) and order == shuffled(list(range(types)), index)


def test_shuffled_types_lead_about_equally_often() -> None:
    leads = [shuffled([0, 1, 2], index)[0] for index in range(3000)]
    assert min(leads.count(column) for column in range(3)) > 900


def test_a_solve_is_skipped_when_nothing_that_counts_has_changed() -> None:
    problem = a_problem([[1.0, 2.0], [2.0, 1.0]], [1, 1])
    answer = an_allocation([[0.0, 1.0], [1.0, 0.0]])
    reads = ("accelerator_types", "job_ids", "scale_factor", "steps_remaining", "weight")
    solved = Solved(problem=problem, allocation=replace(answer, reads=reads))
    later = replace(problem, now_s=30.0, age_s=problem.age_s + 30.0)
    progressed = replace(later, steps_remaining=problem.steps_remaining - 5)
    assert solved.serves(later, solve_on="change", interval_s=0.0)
    assert not solved.serves(progressed, solve_on="change", interval_s=0.0)
    assert solved.serves(progressed, solve_on="event", interval_s=0.0)
    heavier = replace(progressed, weight=np.array([1.0, 2.0]))
    assert not solved.serves(heavier, solve_on="event", interval_s=0.0)
    assert solved.serves(heavier, solve_on="event", interval_s=31.0)
    other_types = replace(heavier, accelerator_types=("t0", "t2"))
    assert not solved.serves(other_types, solve_on="event", interval_s=31.0)


def test_a_reused_allocation_leaves_out_who_has_gone_and_promises_nothing_to_who_has_come() -> None:
    solved = Solved(problem=a_problem([[1.0], [1.0]], [1]), allocation=an_allocation([[0.25], [0.75]]))
    again = reused(solved, a_problem([[1.0], [1.0]], [1], job_ids=("j1", "new")))
    assert again.time_fraction == pytest.approx(np.array([[0.75], [0.0]]))
    assert not again.is_fallback
