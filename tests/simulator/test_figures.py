import math
from dataclasses import replace

import numpy as np
import pytest

from gavel.errors import InvalidRequest
from gavel.simulator.charts import line_chart
from gavel.simulator.figures import by_tier, figures, makespan_bound_h, tier_shares
from gavel.simulator.report import JobRow
from gavel.simulator.setup import cluster_of, costs_of, range_of, tiers_of, workload
from gavel.simulator.timeline import POINTS_MAX, Timeline
from gavel.types import JobState
from tests.builders import a_cluster
from tests.simulator.test_lean import RATES, a_trace_job

ROW = JobRow(
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
    found = figures([ROW, late])
    assert (found.mean_jct_h, found.median_jct_h, found.max_jct_h, found.jct_floor_h) == (2.5, 2.5, 3.0, 1.0)
    assert (found.mean_rho, found.max_rho, found.share_rho_above_limit) == (1.0, 1.5, 0.5)
    assert found.makespan_h == pytest.approx(4.0)
    assert (found.preemptions, found.lost_h, found.cost_usd) == (2, 0.1, 4.0)
    assert (found.deadlines, found.deadlines_missed) == (1, 1)
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
    line = Timeline(1)
    for index in range(10_000):
        line.add(float(index), [1.0], index)
    assert POINTS_MAX / 2 <= len(line.at_s) <= POINTS_MAX
    assert line.at_s[0] == 0.0 and line.at_s[-1] > 9900
    assert line.at_s == [float(each) for each in line.waiting_jobs]


def test_a_chart_escapes_its_names_and_says_when_there_is_nothing() -> None:
    chart = line_chart("a < b", "x", {"p&q": [(1.0, 2.0), (10.0, 3.0)]}, log_x=True)
    assert "a &lt; b" in chart and "p&amp;q" in chart and "<script" not in chart
    assert "nothing to show" in line_chart("t", "x", {"p": []})


def test_a_cluster_is_read_from_text() -> None:
    cluster = cluster_of("v100:3:2,k80:2")
    assert cluster.capacity_workers() == {"k80": 2, "v100": 3}
    assert [worker.node for worker in cluster.workers] == ["v100-node-0"] * 2 + ["v100-node-1"] + ["k80-node-0"] * 2
    assert cluster.workers[0].price_usd_per_hour == 0.74


@pytest.mark.parametrize("text", ["v100", "v100:0", "v100:a", ":3", "v100:1:2:3", "a:1,a:2", ""])
def test_a_cluster_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cluster"):
        cluster_of(text)


def test_ranges_tiers_and_workloads_that_cannot_be_read_are_named() -> None:
    assert range_of("3:5") == (3, 5)
    assert [(tier.name, tier.weight) for tier in tiers_of(["gold=2"])] == [("default", 1.0), ("gold", 2.0)]
    assert costs_of(["30", "LM=5"]) == {"": 30.0, "LM": 5.0}
    for wrong in (
        lambda: costs_of(["LM=-1"]),
        lambda: range_of("5:3"),
        lambda: tiers_of(["gold=much"]),
        lambda: workload("missing.csv", None),
    ):
        with pytest.raises(InvalidRequest):
            wrong()
    with pytest.raises(InvalidRequest, match="give one"):
        workload("bursty?jobs=3&per_hour=1", None)
