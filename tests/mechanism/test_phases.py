"""Phases and units of work that programs report: what is kept, what is measured, what a move is said to cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.jobs.events import Reported
from gavel.mechanism.jobs.lifecycle import take_reports
from gavel.mechanism.jobs.phases import PHASES_MAX, mean_steps
from gavel.mechanism.planning.switch_costs import measured_s
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, Job, JobState, Report, ReportKind, WorkDone
from tests.builders import a_job


def a_report(sequence: int, step: int, **over: object) -> Report:
    return Report(**({"sequence": sequence, "kind": ReportKind.PROGRESS, "step": step} | over))


def after(*reports: Report, **over: object) -> Job:
    job = a_job(**({"state": JobState.LEASED, "generation": 1} | over))
    return take_reports(job, Reported(at_s=20.0, generation=1, reports=reports))


def test_phases_add_up_over_reports_and_gangs() -> None:
    job = after(
        a_report(1, 0, phases_s={"start-up": 2.0}), a_report(2, 5, phases_s={"eval": 3.0}), phases_s={"eval": 1.0}
    )
    assert job.phases_s == {"eval": 4.0, "start-up": 2.0}
    assert job.outside_s == 3.0, "what came with the first report is a part of the start"


def test_a_job_has_few_phases_however_many_names_its_program_invents() -> None:
    job = after(*(a_report(n, 0, phases_s={f"phase-{n}": 1.0}) for n in range(1, 100)))
    assert len(job.phases_s) == PHASES_MAX


def test_evaluation_is_no_cost_of_a_move() -> None:
    """1. A gang holds its workers for 20 s: it starts 4 s, trains 10 s and evaluates 5 s. 2. The move cost 4 s."""
    reports = (
        a_report(1, 0, phases_s={"start-up": 4.0}),
        a_report(2, 10, steps=10, seconds=10.0, phases_s={"eval": 5.0}),
    )
    gang = GangSeen(
        job_id="j1",
        generation=1,
        state=GangState.ENDED,
        accelerator_type="fast",
        worker_ids=("fast-0",),
        started_at_s=0.0,
        ended_at_s=20.0,
        exit=GangExit(outcome=GangOutcome.EXITED),
    )
    assert measured_s(after(*reports), gang) == pytest.approx(20 - 10 - 5 - 1)  # less the step that a stop cuts off


sizes = st.lists(st.tuples(st.integers(1, 50), st.floats(1.0, 1e6)), min_size=1, max_size=20)


@given(sizes, st.floats(0.1, 1e4))
def test_the_rate_is_that_of_work_whatever_the_sizes_of_steps(
    steps: list[tuple[int, float]], units_per_s: float
) -> None:
    """Each report's seconds are its work over one rate; measured in mean steps per second all reports agree on it."""
    units, count = sum(n * size for n, size in steps), sum(n for n, _ in steps)
    job = a_job(work=WorkDone(units=units * 10**6, steps=count * 10**6))  # a long history, whose mean does not move
    mean_size = job.work.units / job.work.steps
    for count, size in steps:
        report = a_report(1, 0, steps=count, seconds=count * size / units_per_s, work=count * size)
        rate = mean_steps(job, report) / report.seconds
        assert rate == pytest.approx(units_per_s / mean_size, rel=1e-3)
    assert mean_steps(a_job(), a_report(1, 3, steps=3)) == 3, "a program that says no units is measured in steps"


def test_work_is_kept_with_the_steps_and_seconds_in_which_it_was_done() -> None:
    job = after(a_report(1, 4, steps=4, seconds=2.0, work=400.0), a_report(2, 6, steps=2, seconds=1.0, work=500.0))
    assert job.work == WorkDone(units=900.0, steps=6, seconds=3.0)
