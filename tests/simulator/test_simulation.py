import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest, InvariantViolated
from gavel.simulator.simulation import NodeOutage, SimulatedJob, SimulationResult, simulate, stated
from gavel.types import JobState, Tier
from tests.builders import a_cluster, a_spec

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
THROUGHPUT = {  # `steep` gains much from the fast type, `flat` nothing
    ("steep", 1, "fast"): 4.0,
    ("steep", 1, "slow"): 1.0,
    ("flat", 1, "fast"): 1.0,
    ("flat", 1, "slow"): 1.0,
    ("steep", 2, "fast"): 6.0,
    ("steep", 2, "slow"): 1.5,
}


def a_submission(kind: str, total_steps: int, at_s: float = 0.0, **spec: Any) -> SimulatedJob:
    fields = {"kind": kind, "name": kind, "total_steps": total_steps, "tier": "default"} | spec
    return SimulatedJob(submitted_at_s=at_s, spec=stated(a_spec(**fields), THROUGHPUT))


def run(
    *jobs: SimulatedJob, policy: str = "max_min_fairness", fast: int = 1, slow: int = 1, **over: Any
) -> SimulationResult:
    fields = {"round_duration_s": 10.0, "profiling_workers_fraction": 0.0} | over
    return simulate(jobs, cluster=a_cluster(fast=fast, slow=slow), throughput=THROUGHPUT, policy=policy, **fields)


def times(result: SimulationResult) -> dict[str, float | None]:
    return {row.name: row.jct_s for row in result.rows}


def test_two_jobs_on_two_types_end_as_computed_by_hand() -> None:
    """Each stays on the type that suits it: 400 steps at 4/s, 150 steps at 1/s."""
    result = run(a_submission("steep", 400), a_submission("flat", 150))
    assert times(result) == {"steep": pytest.approx(100.0), "flat": pytest.approx(150.0)}
    assert result.metrics.makespan_s == pytest.approx(150.0)
    assert result.utilisation == pytest.approx((100 + 150) / (2 * 150))


def test_a_job_that_does_not_fit_a_type_goes_on_elsewhere() -> None:
    """Nobody has said that it does not fit: its first gang there ends so, at no retry, and no other follows."""
    rates = {("large", 1, "fast"): 0.0, ("large", 1, "slow"): 2.0}
    job = SimulatedJob(submitted_at_s=0.0, spec=a_spec(kind="large", total_steps=100, tier="default"))
    cluster = a_cluster(fast=2, slow=1)
    (row,) = simulate([job], cluster=cluster, throughput=rates, policy="max_min_fairness", round_duration_s=10.0).rows
    assert row.state is JobState.COMPLETED and set(row.rounds) <= {"fast", "slow"} and row.rounds["slow"] > 0
    assert row.rounds.get("fast", 0) <= 1


def test_knowing_the_throughputs_beats_an_equal_share_of_every_type() -> None:
    jobs = [a_submission("steep", 800), a_submission("flat", 200)]
    aware, agnostic = run(*jobs), run(*jobs, policy="equal_share")
    assert times(aware)["flat"] == pytest.approx(200.0)
    assert times(agnostic)["flat"] == pytest.approx(200.0)
    assert aware.rows[0].jct_s == pytest.approx(200.0)
    assert agnostic.rows[0].jct_s is not None and agnostic.rows[0].jct_s > 270.0


@pytest.mark.full
def test_a_policy_that_tells_types_apart_beats_the_same_policy_that_does_not() -> None:
    """Over both orders of arrival: to the agnostic one all answers are alike, and in one order it may guess right."""
    means = {"false": 0.0, "true": 0.0}
    for kinds in (("steep", "flat") * 4, ("flat", "steep") * 4):
        jobs = [a_submission(kind, 400 if kind == "steep" else 200, name=f"{kind}-{i}") for i, kind in enumerate(kinds)]
        for is_agnostic in means:
            mean_jct_s = run(*jobs, policy=f"max_min_fairness?agnostic={is_agnostic}").metrics.mean_jct_s
            assert mean_jct_s is not None
            means[is_agnostic] += mean_jct_s / 2
    assert means["false"] < 0.85 * means["true"]


def test_first_come_first_served_starts_the_next_job_the_moment_the_last_one_ends() -> None:
    first, second = a_submission("flat", 95, name="first"), a_submission("flat", 50, at_s=12.0, name="second")
    assert times(run(first, second, policy="fifo", slow=0)) == pytest.approx(
        {"first": 95.0, "second": 95.0 + 50.0 - 12.0}
    )


def test_a_job_that_finds_an_idle_cluster_starts_at_once() -> None:
    assert times(run(a_submission("steep", 100, at_s=1234.5))) == {"steep": pytest.approx(25.0)}


def test_a_gang_of_two_takes_both_workers() -> None:
    result = run(a_submission("steep", 120, scale_factor=2), fast=2, slow=0)
    assert times(result) == {"steep": pytest.approx(20.0)}
    assert result.utilisation == pytest.approx(1.0)


def test_what_nobody_stated_is_measured_first() -> None:
    unknown = SimulatedJob(submitted_at_s=0.0, spec=a_spec(kind="steep", tier="default", total_steps=400))
    result = run(unknown, profiling_workers_fraction=1.0)
    (row,) = result.rows
    assert 1 <= row.rounds["slow"] <= 2  # one to measure, one owed from the time when the types looked alike
    assert row.jct_s == pytest.approx(10 * row.rounds["slow"] + (400 - 10 * row.rounds["slow"]) / 4)


def test_each_move_costs_what_a_switch_costs() -> None:
    assert times(run(a_submission("steep", 100), switch_cost_s=3.0)) == {"steep": pytest.approx(28.0)}


def test_tiers_are_told_apart() -> None:
    tiers = (Tier(name="default", weight=2.0), Tier(name="free"))
    result = run(a_submission("flat", 30), a_submission("flat", 60, tier="free"), tiers=tiers)
    assert {name: tier.mean_jct_s for name, tier in result.tiers.items()} == pytest.approx(
        {"default": 30.0, "free": 60.0}
    )


def test_the_same_input_gives_the_same_output() -> None:
    jobs = [a_submission("steep" if i % 2 else "flat", 500 + 90 * i, at_s=50.0 * i, name=f"j{i}") for i in range(6)]
    first, second = (run(*jobs, fast=2, slow=2, round_duration_s=360.0) for _ in range(2))
    assert first == second
    assert first.metrics.completed == 6


def test_a_job_that_could_never_run_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidRequest, match="scale_factor: job steep needs 4 workers of one type"):
        run(a_submission("steep", 10, scale_factor=4))
    with pytest.raises(InvalidRequest, match=r"throughput: job flat: give the steps/s of \('flat', 2\) on fast"):
        run(a_submission("flat", 10, scale_factor=2), fast=2)


def test_a_run_that_does_not_end_says_which_jobs_are_left() -> None:
    with pytest.raises(
        InvariantViolated, match=r"every_job_ends: not done after 5 ticks at .* with 1 jobs left: steep"
    ):
        run(a_submission("steep", 10_000), ticks_max=5)


def outage(**over: Any) -> NodeOutage:
    return NodeOutage(**{"node": "node-0", "from_s": 25.0, "until_s": 45.0} | over)


def test_what_was_not_checkpointed_is_lost_with_its_node() -> None:
    """Alone on one node, a gang loses 25 s of training, waits for the node to return, and does its 40 s anew."""
    (row,) = run(a_submission("flat", 40), fast=1, slow=0, policy="fifo", outages=[outage()]).rows
    assert row.state is JobState.COMPLETED
    assert row.jct_s == pytest.approx(45.0 + 40.0, abs=0.1)


def test_a_checkpoint_saves_what_was_done_before_it() -> None:
    """Checkpoints are made at the boundaries of rounds of 10 s: the one at 20 s is restored."""
    job, over = a_submission("flat", 40), {"outages": [outage()], "checkpoint_period_s": 10.0}
    (row,) = run(job, fast=1, slow=0, policy="fifo", **over).rows
    assert row.jct_s == pytest.approx(45.0 + 20.0, abs=0.1)


def test_a_drained_node_loses_nothing_and_gets_nothing_until_it_returns() -> None:
    """The gang goes on to the end of its round at 30 s, and again from 45 s."""
    (row,) = run(a_submission("flat", 40), fast=1, slow=0, policy="fifo", outages=[outage(is_drain=True)]).rows
    assert row.jct_s == pytest.approx(45.0 + 10.0, abs=0.1)


submissions = st.builds(
    a_submission,
    st.sampled_from(["steep", "flat"]),
    st.integers(1, 150),
    st.integers(0, 60).map(float),
)


@settings(max_examples=200 if FULL else 15)
@given(jobs=st.lists(submissions, min_size=1, max_size=5), policy=st.sampled_from(["equal_share", "fifo"]))
def test_every_job_ends_and_none_sooner_than_alone_on_its_fastest_type(jobs: list[SimulatedJob], policy: str) -> None:
    result = run(*jobs, policy=policy)
    assert 0 < result.utilisation <= 1 + 1e-9
    for row, job in zip(result.rows, sorted(jobs, key=lambda each: each.submitted_at_s), strict=True):
        alone_s = job.spec.total_steps / max(job.spec.throughput_steps_per_s.values())
        assert row.state is JobState.COMPLETED
        assert row.jct_s is not None and row.jct_s >= alone_s - 1e-6
