"""Which schedules the evaluation compares: every policy but those left out with a reason, the default first."""

from benchmarks.evaluation_quality import FEW, HEADLINES, STREAMS, measured, runs, title_of
from gavel.config import Settings
from gavel.policies import registry
from gavel.simulator.report import JobResult
from gavel.types import JobState


def test_the_default_is_first_and_every_policy_of_the_registry_has_a_row() -> None:
    each = list(runs(True))
    default = Settings.model_fields["policy"].default
    assert (each[0].brings, each[0].policy, dict(each[0].rules)) == ("default", default, {})
    alone = {run.policy.partition("?")[0] for run in each if run.brings in ("default", "policy")}
    assert alone == {policy.name for policy in registry.available()}


def test_a_row_differs_from_the_default_in_what_it_is_said_to_bring() -> None:
    default, *others = runs(True)
    assert len({run.name for run in others}) == len(others)
    for run in others:
        if run.brings == "policy":
            assert not run.rules and not run.is_packed and run.policy != default.policy
        if run.brings == "users":
            assert run.is_one_user and not run.rules and run.policy == default.policy
        if run.brings == "packing":
            assert not run.rules and run.is_packed
        if run.brings == "lengths":
            assert run.length_error and not run.rules and run.policy == default.policy
        if run.brings == "rounds":
            assert run.rules and not run.is_packed and run.policy == default.policy
    assert {run.brings for run in others} == {"users", "lengths", "policy", "packing", "rounds", "published"}


def test_streams_name_runs_that_there_are() -> None:
    names = {run.name for run in runs(True)}
    assert {*HEADLINES, *FEW} <= names
    for stream in STREAMS:
        assert set(stream.at_most_h) <= set(stream.only or names) <= names


def a_row(size: int, jct_s: float, fastest_s: float) -> JobResult:
    return JobResult(
        id="0",
        name="",
        user="ann",
        tier="default",
        kind="mlp",
        state=JobState.COMPLETED,
        jct_s=jct_s,
        rho=1.1 if size > 1 else 1.0,
        rounds={},
        preemptions=0,
        scale_factor=size,
        fastest_s=fastest_s,
        finished_at_s=jct_s,
    )


def test_the_shortest_quarter_is_of_gangs_if_there_are_any() -> None:
    alone = [a_row(1, 10.0, 10.0), a_row(1, 60.0, 20.0), a_row(1, 60.0, 30.0), a_row(1, 40.0, 40.0)]
    assert measured(alone, 1.0).shortest == 1.0
    gangs = [a_row(2, 400.0, 100.0), a_row(4, 200.0, 200.0)]
    row = measured([*alone, *gangs], 1.0)
    assert row.shortest == 4.0 and row.share_rho == 2 / 6
    assert row.slowdown == {1: 1.75, 2: 4.0, 4: 1.0} and row.median_slowdown[1] == 1.5


def test_the_mean_time_alone_stands_above_the_table() -> None:
    """No schedule has a mean below it, so it says how much a better one could bring."""
    of_run = measured([a_row(1, 7200.0, 3600.0), a_row(4, 7200.0, 7200.0)], 1.0)
    assert of_run.alone_h == 1.5
    assert title_of(STREAMS[0], (0, 2), alone_h=of_run.alone_h).endswith(", jobs 0 to 2; alone 1.5 h in the mean")
