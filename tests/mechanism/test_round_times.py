"""Until when gangs of stored rounds may run: a wall clock that is set, or wrong, makes that later but never sooner."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.planning.round_times import RoundTimes
from gavel.store.samples import round_record
from gavel.types import RoundRecord
from gavel.types.rounds import LOST_MARGIN_S

GRACE_S = 2.0
MARGIN_S = GRACE_S + LOST_MARGIN_S
HOUR_S = 3600.0
INDEX, LASTS_S = 7, 12.0


def planned(at_s: float, *, begins_in_s: float = 2.0, lasts_s: float = LASTS_S - 2.0) -> RoundRecord:
    """A round that was planned at `at_s` by the clock of the service that planned it."""
    sample = round_record(INDEX)
    plan = replace(sample.plan, starts_at_s=at_s + begins_in_s, duration_s=lasts_s, leases=())
    return replace(sample, plan=plan, problem=replace(sample.problem, now_s=at_s))


def is_over(times: RoundTimes, steady_s: float) -> bool:
    return INDEX in times.over(steady_s, lease_grace_s=GRACE_S)


def test_a_round_that_its_own_service_has_planned_is_over_at_its_end_and_the_grace_after_it() -> None:
    times, record = RoundTimes(), planned(at_s=100.0)
    for now_s in (100.0, 105.0, 112.0 + MARGIN_S):
        assert not is_over(times, steady_s=now_s - 0.1)
        times.in_time((record,), now_s, steady_s=now_s)
    assert is_over(times, steady_s=112.0 + MARGIN_S)


@pytest.mark.parametrize("ahead_s", [HOUR_S, 0.0])
def test_a_service_whose_clock_is_ahead_takes_no_round_of_another_one_for_over(ahead_s: float) -> None:
    """It began at 5 by its steady clock, and does not know how long ago the round was planned."""
    times = RoundTimes()
    times.in_time((planned(at_s=100.0),), now_s=104.0 + ahead_s, steady_s=5.0)
    assert not is_over(times, steady_s=5.0 + LASTS_S + MARGIN_S - 0.1)
    assert is_over(times, steady_s=5.0 + LASTS_S + MARGIN_S)


def test_a_clock_that_is_set_ahead_ends_no_round() -> None:
    times = RoundTimes()
    times.in_time((planned(at_s=100.0),), now_s=100.0, steady_s=0.0)
    times.in_time((planned(at_s=100.0),), now_s=101.0 + HOUR_S, steady_s=1.0)
    assert not is_over(times, steady_s=LASTS_S + MARGIN_S - 0.1)
    assert is_over(times, steady_s=LASTS_S + MARGIN_S)


def test_a_round_that_begins_again_after_a_clock_was_set_back_lasts_from_then_on() -> None:
    times, day_s = RoundTimes(), 86_400.0
    times.in_time((planned(at_s=2 * day_s),), now_s=2 * day_s, steady_s=0.0)
    (moved,) = times.in_time((planned(at_s=2 * day_s),), now_s=10.0, steady_s=10.0)
    assert moved.plan.starts_at_s == 10.0
    times.in_time((planned(at_s=2 * day_s),), now_s=11.0 + HOUR_S, steady_s=11.0)
    assert not is_over(times, steady_s=20.0 + MARGIN_S - 0.1)
    assert is_over(times, steady_s=20.0 + MARGIN_S)


def test_rounds_that_are_no_longer_stored_are_forgotten() -> None:
    times = RoundTimes()
    times.in_time((planned(at_s=100.0),), now_s=100.0, steady_s=0.0)
    times.in_time((), now_s=101.0, steady_s=1.0)
    assert times.over(HOUR_S, lease_grace_s=GRACE_S) == frozenset()


@given(
    planner_ahead_s=st.floats(-2 * HOUR_S, 2 * HOUR_S),
    reader_ahead_s=st.floats(-2 * HOUR_S, 2 * HOUR_S),
    elapsed_s=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8),
    steps_s=st.lists(st.floats(-2 * HOUR_S, 2 * HOUR_S), min_size=8, max_size=8),
)
def test_no_clocks_make_a_round_over_before_it_is(
    planner_ahead_s: float, reader_ahead_s: float, elapsed_s: list[float], steps_s: list[float]
) -> None:
    """Of the true time: the round was planned at 0 and its gangs run until LASTS_S at the most."""
    times, record = RoundTimes(), planned(at_s=1e6 + planner_ahead_s)
    true_s, ahead_s = 0.0, reader_ahead_s
    for more_s, step_s in zip(elapsed_s, steps_s, strict=False):
        true_s, ahead_s = true_s + more_s, ahead_s + step_s
        times.in_time((record,), now_s=1e6 + true_s + ahead_s, steady_s=50.0 + true_s)
        assert true_s >= LASTS_S or not is_over(times, steady_s=50.0 + true_s)
