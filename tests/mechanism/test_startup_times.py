"""Start-up times are learned from reports; what a program reports is limited by the clock of the service."""

from collections.abc import Iterable
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.observing import startup_times
from gavel.mechanism.observing.startup_times import KEPT, KINDS_MAX, LearnedTimes, checked_reports
from gavel.mechanism.planning.switch_costs import with_startups
from gavel.types import GangSeen, GangState, Job, Report, ReportKind, StartupTimes, times_of
from tests.builders import a_job

Table = tuple[StartupTimes, ...]


def learned_times(table: Table, job: Job, gang: GangSeen, reports: Iterable[Report]) -> Table:
    times = LearnedTimes(table)
    times.add(job, gang, reports)
    return times.table


def a_gang(*reports: Report, started_at_s: float | None = 100.0) -> GangSeen:
    return GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.RUNNING,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=started_at_s,
        reports=reports,
    )


def first(startup_s: float | None = None, restore_s: float | None = None) -> Report:
    return Report(sequence=1, kind=ReportKind.PROGRESS, step=0, startup_s=startup_s, restore_s=restore_s)


def saved(checkpoint_s: float) -> Report:
    return Report(sequence=2, kind=ReportKind.CHECKPOINT, step=5, checkpoint="1-5", checkpoint_s=checkpoint_s)


def test_durations_are_no_longer_than_the_gang_has_run() -> None:
    reports = checked_reports(a_gang(first(1e9, 1e9), saved(1e9)), now_s=110.0)
    assert [(each.startup_s, each.restore_s, each.checkpoint_s) for each in reports] == [
        (10.0, 0.0, None),
        (None, None, 10.0),
    ]


def test_an_older_runtime_s_first_report_counts_from_the_start_to_when_it_was_seen() -> None:
    assert checked_reports(a_gang(first()), now_s=107.0)[0].startup_s == 7.0
    assert checked_reports(a_gang(first(), started_at_s=None), now_s=107.0)[0].startup_s is None


def test_the_last_measurements_are_kept_and_their_median_counts() -> None:
    table: tuple[StartupTimes, ...] = ()
    for seconds in (90.0, 1.0, 2.0, 3.0, 4.0, 500.0):
        table = learned_times(table, a_job(checkpoint="1-1"), a_gang(), [first(seconds, 0.5), saved(0.25)])
    (times,) = table
    assert len(times.startup_s) == KEPT
    assert times.until_training_s == 3.0 + 0.5 and times.move_s == 3.75
    assert times_of(table, "cnn", "fast").move_s == 0.0


def test_repeated_reports_and_the_restore_of_nothing_do_not_count() -> None:
    assert learned_times((), a_job(report_sequence=2), a_gang(), [first(3.0), saved(1.0)]) == ()
    (times,) = learned_times((), a_job(), a_gang(), [first(3.0, 0.0)])
    assert times.restore_s == ()


def test_the_table_is_bounded_and_forgets_who_reported_longest_ago() -> None:
    table: tuple[StartupTimes, ...] = ()
    for index in range(KINDS_MAX + 2):
        table = learned_times(table, a_job(spec={"kind": f"k{index}"}), a_gang(), [first(1.0)])
    assert len(table) == KINDS_MAX and table[0].kind == "k2"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.1, 9.0)), max_size=25))
def test_many_reports_in_one_look_are_as_each_after_the_other(reported: list[tuple[int, float]]) -> None:
    """The oracle is a list in which the kind that reports goes to the end, with its last times."""
    kept: list[tuple[str, tuple[float, ...]]] = []
    with patch.object(startup_times, "KINDS_MAX", 3):
        at_once, singly = LearnedTimes(()), ()
        for index, seconds in reported:
            job = a_job(spec={"kind": f"k{index}"})
            at_once.add(job, a_gang(), [first(seconds)])
            singly = learned_times(singly, job, a_gang(), [first(seconds)])
            before = dict(kept).get(f"k{index}", ())
            kept = [each for each in kept if each[0] != f"k{index}"] + [(f"k{index}", (*before, seconds)[-KEPT:])]
            kept = kept[-3:]
    assert at_once.table == singly and [(each.kind, each.startup_s) for each in singly] == kept


def test_without_new_reports_the_table_stays_the_same_object() -> None:
    table = learned_times((), a_job(), a_gang(), [first(3.0)])
    assert learned_times(table, a_job(report_sequence=2), a_gang(), [first(3.0)]) is table


def test_a_measured_switch_cost_goes_before_what_was_reported() -> None:
    slow = StartupTimes(kind="cnn", accelerator_type="slow", startup_s=(6.0,), checkpoint_s=(1.0,))
    times = (StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(9.0,)), slow)
    assert with_startups({"mlp": 2.0, "": 2.0}, times) == {"mlp": 2.0, "": 2.0, "cnn": 7.0}
