"""Rounds that are planned again from what was stored: with whom they had, and in what the two differ."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.planning.replanning import differences, planned_again, with_guests, with_kept
from gavel.types import Lease, RoundRecord
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.test_planner import a_view

SESSION, GUEST = a_lease("s", 1, "slow-0"), a_lease("g", 2, "slow-0", combination=("s", "g"))
TRAINING = a_lease("a", 1, "fast-0")


def test_a_round_is_planned_again_with_those_that_stayed_and_their_guests() -> None:
    """Its lags are those before it: with the others, job b would go."""
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[0.5], [0.5]])
    inputs = replace(view.inputs, kept=(SESSION,), guests=(GUEST,))
    plan, lag_rounds = view.plan()
    record = RoundRecord(
        plan=plan, problem=view.problem, allocation=view.allocation, lag_rounds=lag_rounds, inputs=inputs
    )
    pair = replace(SESSION, combination=("s", "g"))
    assert planned_again(record, {}) == replace(plan, leases=(pair, *plan.leases, GUEST))
    other = planned_again(record, {("b", "fast"): 1.0})
    assert other is not None and [lease.job_id for lease in other.leases] == ["s", "b", "g"]
    assert planned_again(replace(record, inputs=None), {}) is None


def test_those_that_stayed_come_first_and_a_plan_without_any_is_as_it_was() -> None:
    view, plan = a_view([a_job("a")], a_cluster(fast=1), [[1.0]]), a_plan([TRAINING])
    assert with_kept(plan, replace(view.inputs, kept=(SESSION,))) == replace(plan, leases=(SESSION, TRAINING))
    assert with_kept(plan, view.inputs) is plan


def test_a_guest_is_a_pair_with_the_session_whose_workers_it_has() -> None:
    plan = a_plan([SESSION, TRAINING])
    pair = replace(SESSION, combination=("s", "g"))
    assert with_guests(plan, (GUEST,)) == replace(plan, leases=(pair, TRAINING, GUEST))
    assert with_guests(plan, ()) is plan


@pytest.mark.parametrize(
    "over",
    [
        {"job_id": "b"},
        {"generation": 2},
        {"combination": ("a", "b")},
        {"accelerator_type": "slow"},
        {"worker_ids": ("fast-1",)},
        {"is_profiling": True},
        {"plan": "other"},
    ],
)
def test_two_leases_differ_in_whom_they_serve_where_and_how(over: dict[str, Any]) -> None:
    other: Lease = replace(TRAINING, **over)
    stored, again = a_plan([SESSION, TRAINING]), a_plan([SESSION, other])
    assert differences(stored, again) == ((TRAINING,), (other,))
    assert differences(stored, a_plan([])) == ((SESSION, TRAINING), ())


def test_ends_and_what_was_given_in_the_middle_of_the_round_make_no_difference() -> None:
    cut, late = replace(TRAINING, expires_at_s=5.0), a_lease("b", 1, "fast-1", starts_at_s=5.0)
    assert differences(a_plan([cut, late]), a_plan([TRAINING])) == ((), ())
