"""Which rounds are taken to be earlier after the clock was set back, by how much, and how they are stored again."""

from dataclasses import replace

import pytest

from gavel.mechanism.planning.clock_steps import ClockStep, after_step, as_written, step_of
from gavel.store.samples import round_record
from gavel.types import RoundPlan, RoundRecord

ROUND_S = 10.0
NOW_S = 1000.0
NONE = ClockStep()


def a_round(round_index: int, starts_at_s: float) -> RoundRecord:
    """One lease is of the whole round, the other from its middle on."""
    record = round_record(round_index, parent=round_index - 1)
    (lease,) = record.plan.leases
    whole = replace(lease, expires_at_s=starts_at_s + ROUND_S)
    leases = (whole, replace(whole, job_id="late", starts_at_s=starts_at_s + 5.0))
    plan = replace(record.plan, starts_at_s=starts_at_s, duration_s=ROUND_S, leases=leases)
    return replace(record, plan=plan)


def plan_at(round_index: int, starts_at_s: float) -> RoundPlan:
    return a_round(round_index, starts_at_s).plan


@pytest.mark.parametrize(
    ("starts_s", "step"),
    [
        ([], NONE),
        ([NOW_S - 20.0, NOW_S - 10.0], NONE),
        ([NOW_S - 10.0, NOW_S], NONE),
        ([NOW_S - 9.9, NOW_S + 0.1], NONE),
        ([NOW_S, NOW_S + 10.0], NONE),
        ([NOW_S + 3600.0], ClockStep(round_index=1, by_s=3600.0)),
        ([NOW_S + 3600.0, NOW_S + 3610.0], ClockStep(round_index=2, by_s=3600.0)),
        ([NOW_S - 10.0, NOW_S + 0.1], ClockStep(round_index=2, by_s=0.1)),
        ([NOW_S - 15.0, NOW_S + 5.0], ClockStep(round_index=2, by_s=5.0)),
    ],
    ids=[
        "no rounds",
        "all are over",
        "one begins now",
        "one was planned ahead",
        "one was planned ahead of one that begins now",
        "one after none",
        "two after none",
        "one after one that is just over",
        "one after one that is long over",
    ],
)
def test_a_round_that_could_not_have_been_planned_ahead_begins_now(starts_s: list[float], step: ClockStep) -> None:
    records = [a_round(index, starts_at_s) for index, starts_at_s in enumerate(starts_s, 1)]
    newest = step_of(records, NOW_S, NONE)
    assert (newest.round_index, newest.by_s) == pytest.approx((step.round_index, step.by_s))
    assert (newest is NONE) == (step is NONE)


def test_a_step_that_was_found_before_is_kept_while_its_rounds_follow_each_other() -> None:
    records, step = (a_round(1, 4600.0), a_round(2, 4610.0)), ClockStep(round_index=2, by_s=3600.0)
    assert step_of(records, NOW_S, step) is step
    assert step_of(records, NOW_S + 15.0, step) is step


def test_a_second_step_counts_from_the_rounds_as_they_were_written() -> None:
    """The clock was set back by an hour, and then by an hour again."""
    records, step = (a_round(1, 8200.0), a_round(2, 8210.0)), ClockStep(round_index=2, by_s=3600.0)
    assert step_of(records, NOW_S, step) == ClockStep(round_index=2, by_s=7200.0)


def test_rounds_of_the_step_that_have_yet_to_begin_are_earlier_with_all_their_leases() -> None:
    records = (a_round(1, NOW_S), a_round(2, 4600.0), a_round(3, 4610.0), a_round(4, 4620.0))
    after = after_step(records, NOW_S, ClockStep(round_index=3, by_s=3600.0))
    earlier = (a_round(2, NOW_S), a_round(3, NOW_S + ROUND_S))
    assert [each.plan for each in after] == [each.plan for each in (records[0], *earlier, records[3])]
    assert after[0] is records[0] and after[3] is records[3]
    assert [after[1].problem, after[2].problem] == [records[1].problem, records[2].problem]


def test_a_plan_is_stored_again_by_the_clock_that_planned_its_round() -> None:
    records = (a_round(1, 4600.0), a_round(2, 4610.0))
    amended = replace(plan_at(2, NOW_S), policy="amended")
    assert as_written(amended, records) == replace(plan_at(2, 4610.0), policy="amended")


def test_the_start_of_a_stored_plan_is_the_very_number_that_is_stored() -> None:
    """A difference of floats, added again, may be another number: a store refuses that."""
    stored = a_round(1, 0.1)
    assert 0.7 - (0.7 - 0.1) != 0.1
    assert as_written(plan_at(1, 0.7), (stored,)).starts_at_s == 0.1


def test_a_plan_of_an_unknown_round_or_of_one_that_was_not_moved_is_stored_as_it_is() -> None:
    records = (a_round(1, NOW_S), a_round(2, 4610.0))
    amended, other = replace(plan_at(1, NOW_S), policy="amended"), plan_at(3, NOW_S)
    assert as_written(amended, records) is amended and as_written(other, records) is other
