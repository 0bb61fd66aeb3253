"""The fluid forecast against closed forms, and intervals that learn from what happened."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.explaining import forecast as module
from gavel.mechanism.explaining.forecast import (
    OUTCOMES_MIN,
    Forecast,
    errors_of,
    expected_finish,
    expected_start,
    predictions,
)
from gavel.policies.inline import InlineRunner
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import Expected, Prediction, RoundPlan, RoundRecord, Tier
from tests.builders import a_job, a_problem
from tests.mechanism.test_explaining import lease


def a_record(policy: str, throughput: Any, capacity: Any, *leases: Any, **over: Any) -> RoundRecord:
    problem = a_problem(throughput, capacity, **over)
    plan = RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=10.0,
        leases=leases,
        policy=policy,
        allocation_digest="",
    )
    return RoundRecord(plan=plan, problem=problem, allocation=InlineRunner().allocate(policy, problem, 10.0))


def forecast(record: RoundRecord) -> Forecast:
    return module.forecast(record.problem, record.allocation)


def test_equal_jobs_on_one_worker_share_it_until_the_shorter_ends() -> None:
    """Processor sharing by hand: 100 and 300 steps at 1 step/s: both at half pace to 200 s, then one alone to 400 s."""
    times = forecast(a_record("max_min_fairness", [[1.0], [1.0]], [1], steps_remaining=[100, 300]))
    assert times.finish_s == pytest.approx([200.0, 400.0])
    assert times.start_s == pytest.approx([0.0, 0.0])
    assert times.alone_s == pytest.approx([100.0, 300.0]) and times.steady_s == pytest.approx([200.0, 600.0])


@pytest.mark.parametrize(("policy", "ends"), [("fifo", [300.0, 400.0]), ("shortest_job_first", [400.0, 100.0])])
def test_jobs_served_in_order_wait_for_those_before_them(policy: str, ends: list[float]) -> None:
    times = forecast(a_record(policy, [[1.0], [1.0]], [1], steps_remaining=[300, 100]))
    assert times.finish_s == pytest.approx(ends)
    assert times.start_s[int(np.argmax(times.finish_s))] == pytest.approx(min(ends))


def test_tiers_share_by_weight_and_what_one_cannot_use_flows_on() -> None:
    """Gold has three quarters of four workers, but one job, which can use one; silver's three have the rest."""
    tiers = (Tier(name="gold", weight=3.0), Tier(name="silver", weight=1.0, objective="fifo"))
    record = a_record(
        "hierarchical", [[1.0]] * 5, [4], tiers=tiers, tier_of_job=[0, 1, 1, 1, 1], steps_remaining=[100] * 5
    )
    times = forecast(record)
    assert times.finish_s == pytest.approx([100.0, 100.0, 100.0, 100.0, 200.0])
    assert times.start_s.tolist() == [0.0, 0.0, 0.0, 0.0, pytest.approx(100.0)]


@pytest.mark.parametrize(
    ("within_user", "steps", "ends"),
    [("fast", [300, 100, 100], [500.0, 200.0, 200.0]), ("fifo", [100, 300, 100], [200.0, 500.0, 200.0])],
)
def test_the_jobs_of_a_user_end_in_the_order_that_the_tier_sets(
    within_user: str, steps: list[int], ends: list[float]
) -> None:
    """One worker, shared by ann, who has two jobs, and bob, who has one."""
    tiers = (Tier(name="only", within_user=within_user),)
    record = a_record("hierarchical", [[1.0]] * 3, [1], tiers=tiers, users=("ann", "ann", "bob"), steps_remaining=steps)
    assert forecast(record).finish_s == pytest.approx(ends, rel=1e-4)


def test_a_late_job_has_its_isolated_rate_first_in_the_forecast_too() -> None:
    """Two jobs on one worker, 1000 and 100 steps: late is who is 500 s behind of 2000 s, or 50 s of 200 s.

    The long one is 600 s behind, so both have half: the short one ends at 200 s, and then the long one has 900 s left.
    """
    tiers, ages = (Tier(name="gold"),), [600.0, 0.0]
    record = a_record("hierarchical", [[1.0]] * 2, [1], tiers=tiers, steps_remaining=[1000, 100], age_s=ages)
    assert forecast(record).finish_s == pytest.approx([1100.0, 200.0])


def test_a_job_that_waits_until_it_is_late_slows_the_others_from_then_on() -> None:
    """1. Three jobs on one worker: the isolated rate is 1/3. The long one becomes late at 100 s, the third at 225 s.

    2. From 100 s on the second has two thirds, from 225 s on each has one; it ends at 575 s.
    3. The third has two thirds then, and ends at 850 s; the long one has done 250 of its 1000 steps.
    """
    tiers, ages = (Tier(name="gold"),), [650.0, 0.0, 0.0]
    record = a_record("hierarchical", [[1.0]] * 3, [1], tiers=tiers, steps_remaining=[1000, 299.99, 300], age_s=ages)
    assert forecast(record).finish_s == pytest.approx([1600.0, 575.0, 850.0], abs=0.2)


def test_teams_share_what_their_department_has() -> None:
    """Two teams have half of the one department between them, a quarter each; the other department has the rest."""
    tiers = (
        Tier(name="a", objective="fairness"),
        Tier(name="a1", parent="a"),
        Tier(name="a2", parent="a"),
        Tier(name="b"),
    )
    record = a_record(
        "hierarchical", [[1.0]] * 3, [1], tiers=tiers, tier_of_job=[1, 2, 3], steps_remaining=[25, 100, 50]
    )
    # until 100 s: 1/4, 1/4, 1/2; both the first and the last end there, and the second has 75 steps left alone
    assert forecast(record).finish_s == pytest.approx([100.0, 175.0, 100.0])


def test_a_policy_without_tiers_shares_over_all_jobs() -> None:
    tiers = (Tier(name="gold", weight=9.0), Tier(name="silver"))
    record = a_record("max_min_fairness", [[1.0]] * 2, [1], tiers=tiers, tier_of_job=[0, 1], steps_remaining=[100, 100])
    assert forecast(record).finish_s == pytest.approx([200.0, 200.0])


@given(
    rates=st.lists(st.lists(st.floats(0.1, 100), min_size=2, max_size=2), min_size=1, max_size=12),
    workers=st.lists(st.integers(1, 4), min_size=2, max_size=2),
    steps=st.lists(st.floats(1, 1e6), min_size=12, max_size=12),
    policy=st.sampled_from(["max_min_fairness", "fifo", "equal_share"]),
)
def test_every_job_ends_never_sooner_than_alone_and_not_before_it_starts(
    rates: list[list[float]], workers: list[int], steps: list[float], policy: str
) -> None:
    times = forecast(a_record(policy, rates, workers, steps_remaining=steps[: len(rates)]))
    assert np.isfinite(times.finish_s).all()
    assert (times.finish_s >= times.alone_s * (1 - 1e-9)).all()
    assert (times.start_s <= times.finish_s).all()


def test_a_job_that_nothing_can_run_has_no_end() -> None:
    times = forecast(record := a_record("equal_share", [[1.0], [0.0]], [1]))
    assert np.isinf(times.finish_s[1])
    assert expected_finish(times, "j1", None) is None and expected_start(times, record, "j1") is None
    assert expected_finish(times, "j9", None) is None and expected_start(times, record, "j9") is None
    made = predictions(record, [a_job("j0"), a_job("j1", started_at_s=1.0)], OracleThroughputs({}), None)
    assert [each.job_id for each in made] == ["j0"] and made[0].start is not None


def test_before_anything_ended_the_interval_reaches_from_alone_to_the_pace_of_now() -> None:
    record = a_record("max_min_fairness", [[1.0], [1.0]], [1], steps_remaining=[100, 300], now_s=1000.0)
    expected = expected_finish(forecast(record), "j1", None)
    assert expected == Expected(at_s=pytest.approx(1400.0), low_s=pytest.approx(1300.0), high_s=pytest.approx(1620.0))


def test_a_job_owed_half_of_the_time_has_its_turn_within_two_rounds() -> None:
    record = a_record("max_min_fairness", [[1.0], [1.0]], [1], lease("j0", expires_at_s=10.0))
    times = forecast(record)
    started, waits = expected_start(times, record, "j0"), expected_start(times, record, "j1")
    assert started and started.at_s == 0.0 and waits
    assert (waits.at_s, waits.low_s, waits.high_s) == (pytest.approx(15.0), 0.0, pytest.approx(30.0))


def past(count: int, factor: float) -> list[Prediction]:
    """`count` finishes predicted after 100 s that came after 100 s times 1 to `factor`."""
    ends = np.linspace(1.0, factor, count)
    expected = Expected(at_s=100.0, low_s=90.0, high_s=110.0)
    return [
        Prediction(job_id=str(i), made_at_s=0.0, finish=expected, finished_at_s=100.0 * end)
        for i, end in enumerate(ends)
    ]


def test_the_interval_is_learned_once_enough_jobs_have_ended() -> None:
    assert errors_of(past(OUTCOMES_MIN - 1, 2.0)) is None
    learned = errors_of(past(200, 2.0))
    assert learned and learned.low == pytest.approx(1.05, abs=0.02) and learned.high == pytest.approx(1.95, abs=0.02)
    record = a_record("max_min_fairness", [[1.0]], [1], steps_remaining=[100])
    expected = expected_finish(forecast(record), "j0", learned)
    assert expected and (expected.low_s, expected.high_s) == (100.0, pytest.approx(195.0, abs=2))


@given(st.lists(st.floats(0.1, 10), min_size=OUTCOMES_MIN, max_size=200))
def test_a_learned_interval_holds_nine_of_ten_of_what_it_was_learned_from(factors: list[float]) -> None:
    expected = Expected(at_s=100.0, low_s=90.0, high_s=110.0)
    ended = [Prediction(job_id="j", made_at_s=0.0, finish=expected, finished_at_s=100 * each) for each in factors]
    learned = errors_of(ended)
    assert learned and sum(learned.low <= each <= learned.high for each in factors) >= 0.9 * len(factors) - 1


amounts = st.lists(
    st.tuples(st.sampled_from([0.25, 1.0, 3.0]), st.floats(0, 2), st.floats(0, 5)), min_size=1, max_size=12
)


@given(amounts, st.floats(0, 1))
def test_amounts_are_in_proportion_within_their_bounds_and_sum_to_what_there_is(
    drawn: list[tuple[float, float, float]], part: float
) -> None:
    weight, least, most = (np.array(column) for column in zip(*drawn, strict=True))
    least = np.minimum(least, most)
    total = least.sum() + part * (most - least).sum()
    amounts = module._level(total, weight, least, most)
    assert (least <= amounts).all() and (amounts <= most).all()
    assert amounts.sum() == pytest.approx(total, rel=1e-9, abs=1e-9)
    is_free = (least + 1e-6 < amounts) & (amounts < most - 1e-6)
    levels = (amounts / weight)[is_free]
    assert levels.size == 0 or np.ptp(levels) <= 1e-9 * max(1.0, levels.max())
