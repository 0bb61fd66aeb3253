import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.simulator.charts import HEIGHT, WIDTH, Axes, averaged, line_chart
from gavel.simulator.envy import Envy, mean_speed
from gavel.simulator.figures import Gathered, by_tier, figures, makespan_bound_h, slowdown_by_size, tier_shares
from gavel.simulator.report import JobResult
from gavel.simulator.rows import Rows
from gavel.simulator.timeline import POINTS_MAX, Timeline
from gavel.types import JobState, Tier
from tests.builders import a_cluster
from tests.simulator.test_lean import RATES, a_trace_job

ROW = JobResult(
    id="0",
    name="a",
    user="ann",
    tier="default",
    kind="steep",
    state=JobState.COMPLETED,
    jct_s=7200.0,
    rho=0.5,
    rounds={"fast": 2},
    preemptions=1,
    submitted_at_s=100.0,
    finished_at_s=7300.0,
    fastest_s=3600.0,
    cost_usd=2.0,
    deadline_at_s=7000.0,
)


def test_figures_are_those_of_the_jobs() -> None:
    late = replace(ROW, jct_s=10_800.0, rho=1.5, finished_at_s=14_500.0, deadline_at_s=None, tier="gold", lost_s=360.0)
    result = figures([ROW, late])
    assert (result.mean_jct_h, result.median_jct_h, result.max_jct_h, result.jct_floor_h) == (2.5, 2.5, 3.0, 1.0)
    assert (result.mean_rho, result.max_rho, result.share_rho_above_limit) == (1.0, 1.5, 0.5)
    assert result.makespan_h == pytest.approx(4.0)
    assert (result.preemptions, result.lost_h, result.cost_usd) == (2, 0.1, 4.0)
    assert (result.deadlines, result.deadlines_missed) == (1, 1)
    assert {tier: each.jobs for tier, each in by_tier([ROW, late]).items()} == {"default": 1, "gold": 1}


def test_figures_of_nothing_are_not_numbers() -> None:
    assert math.isnan(figures([]).mean_jct_h) and figures([]).jobs == 0


def test_shares_of_tiers_are_parts_of_the_busy_time() -> None:
    shares = tier_shares(np.array([[3.0, 0.0], [1.0, 0.0]]), ["a", "b"], ["fast", "slow"])
    assert shares == {"a": {"fast": 0.75, "slow": 0.0}, "b": {"fast": 0.25, "slow": 0.0}}


def test_the_makespan_bound_of_two_jobs_is_as_computed_by_hand() -> None:
    """One worker of each type: the steep job stays on the fast one, the flat one on the slow one."""
    jobs = [a_trace_job(0, "steep", 4000), a_trace_job(1, "flat", 1100)]
    hours = makespan_bound_h(jobs, a_cluster(fast=1, slow=1), RATES)
    assert hours == pytest.approx(1000 / 1.00371 / 3600, rel=1e-6)


def test_a_timeline_has_a_bounded_number_of_points_from_first_to_last() -> None:
    line = Timeline()
    for index in range(10_000):
        line.add(float(index), [1.0], index)
    assert POINTS_MAX / 2 <= len(line.moments) <= POINTS_MAX
    assert line.moments[0].at_s == 0.0 and line.moments[-1].at_s > 9900
    assert all(at.at_s == at.waiting_jobs for at in line.moments)


def test_a_chart_escapes_its_names_and_is_left_out_when_there_is_nothing() -> None:
    axes = Axes("x, h", "y < z", is_log=True)
    chart = line_chart("a < b", axes, {"p&q": [(1.0, 2.0), (10.0, 3.0)]}, "policy")
    assert "a &lt; b" in chart and "p&amp;q" in chart and "y &lt; z" in chart and "<script" not in chart
    assert line_chart("t", axes, {"p": []}, "type") == "" == line_chart("t", axes, {"p": [(0.0, 1.0)]}, "tier")


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=30), st.booleans())
def test_everything_of_a_chart_lies_inside_it(points: list[tuple[float, float]], is_log: bool) -> None:
    chart = line_chart("t", Axes("x", "y", is_log=is_log), {"p": sorted(points)}, "policy")
    lines = re.findall(r'points="([^"]*)"', chart)
    places = [tuple(map(float, place.split(","))) for line in lines for place in line.split()]
    ticks = [(float(x), float(y)) for x, y in re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"', chart)]
    assert bool(chart) == bool(places)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in [*places, *ticks])


def test_points_that_are_averaged_keep_their_mean_and_are_few() -> None:
    points = [(float(x), float(x % 7)) for x in range(4000)]
    few = averaged(points)
    assert len(few) == 400 and averaged(points[:5]) == points[:5]
    assert sum(y for _, y in few) / len(few) == pytest.approx(sum(y for _, y in points) / len(points))


def test_slowdown_is_the_mean_of_each_size_of_gang() -> None:
    rows = [
        replace(ROW, scale_factor=size, jct_s=jct_s, fastest_s=10.0)
        for size, jct_s in ((4, 30.0), (1, 10.0), (4, 50.0), (2, None))
    ]
    assert slowdown_by_size(rows) == {1: 1.0, 4: 4.0}


def test_lines_of_jobs_come_back_as_they_were_in_order_of_arrival() -> None:
    rows = Rows()
    lines = [replace(ROW, id=str(place), rho=None if place % 2 else 0.1 * place) for place in range(50)]
    for place in range(49, -1, -1):
        rows.add(place, lines[place])
    assert list(rows) == lines and rows[-1] == lines[-1] and rows[3:5] == lines[3:5]
    assert list(Gathered.of(rows).rho) == [0.1 * place for place in range(0, 50, 2)]


def held_by(*workers: tuple[float, float], wanted: tuple[float, float], weights: tuple[float, float]) -> list[float]:
    """Envy of two tiers that hold so many (fast, slow) workers; on slow ones their jobs make half the speed."""
    envy = Envy([Tier(name="a", weight=weights[0]), Tier(name="b", weight=weights[1])])
    envy.add(np.array(workers), np.array([[1.0, 0.5], [1.0, 0.5]]), np.array(wanted), 60.0)
    return envy.by_tier().tolist()


def test_a_tier_envies_what_would_have_served_it_better() -> None:
    """Two slow workers make 1.0; the other's two fast ones would make 2.0."""
    assert held_by((0, 2), (2, 0), wanted=(2, 2), weights=(1, 1)) == [1.0, 0.0]


def test_nobody_envies_what_a_larger_weight_is_due_or_what_it_could_not_use() -> None:
    assert held_by((1, 0), (2, 0), wanted=(4, 4), weights=(1, 2)) == [0.0, 0.0]
    assert held_by((1, 0), (4, 0), wanted=(1, 4), weights=(1, 1)) == [0.0, 0.0]
    assert held_by((0, 0), (1, 0), wanted=(1, 1), weights=(1, 1)) == [math.inf, 0.0]


def test_the_speed_of_a_tier_is_that_of_its_jobs_by_workers() -> None:
    rates, size, tier = np.array([[4.0, 1.0], [1.0, 1.0], [0.0, 2.0]]), np.array([3, 1, 2]), np.array([0, 0, 1])
    speed, wanted = mean_speed(rates, size, tier, 3)
    assert wanted.tolist() == [4.0, 2.0, 0.0]
    assert speed.tolist() == [[1.0, (3 * 0.25 + 1.0) / 4], [0.0, 1.0], [0.0, 0.0]]
