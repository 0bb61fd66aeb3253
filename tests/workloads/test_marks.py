"""Epochs, phases that are no training, and units of work: what a program says of its steps."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel_runtime._marks import PHASES_MAX, Marks
from gavel_runtime._reports import Meter
from tests.workloads.gang import Gang, until

EPOCHS = """
import json, os, time
from pathlib import Path
from gavel_runtime import job

done = []
for epoch in job.epochs(
    total=6,
    checkpoint=lambda path: (path / "done.json").write_text(json.dumps(done)),
    restore=lambda path: done.extend(json.loads((path / "done.json").read_text())),
):
    for batch in range(5):
        time.sleep(0.01)
    done.append(epoch)
    Path(os.environ["OUT"], f"rank-{job.rank}").write_text(str(len(done)))
print(done)
"""
EVALUATES = """
import time
from gavel_runtime import job

with job.phase("start-up"):
    time.sleep(0.2)
began_s = time.monotonic()
for step in job.steps(total=40):
    time.sleep(0.005)
    job.report_work(100)
    if step % 10 == 9 and job.rank == EVALUATOR:
        with job.phase("eval"):
            time.sleep(0.3)
print(time.monotonic() - began_s)
"""


def test_an_epoch_loop_stops_between_epochs_and_goes_on_at_the_next(gang: Gang) -> None:
    """1. The gang runs some epochs, then its lease ends. 2. The next gang begins with the first that was not done."""
    gang.start(EPOCHS, GAVEL_TOTAL_STEPS="")
    until(lambda: gang.done() >= 2)
    gang.lease(0.0, stop=True)
    codes, _ = gang.finish()
    assert codes == [75]
    done = gang.done()
    name = f"7-{done}"
    assert name in gang.names(), "a checkpoint after every epoch"
    gang.ranks.clear()
    (gang.directory / "lease.json").unlink()
    codes, (output,) = gang.start(EPOCHS, total=6, start=done, checkpoint=gang.checkpoints / name).finish()
    assert (codes, json.loads(output)) == ([0], [0, 1, 2, 3, 4, 5])


@pytest.mark.small("1")
@pytest.mark.parametrize("evaluator", [0, 1])
def test_evaluation_on_any_rank_does_not_spoil_the_measured_rate(gang: Gang, evaluator: int) -> None:
    codes, outputs = gang.start(EVALUATES.replace("EVALUATOR", str(evaluator)), ranks=range(2), total=40).finish()
    assert codes == [0, 0]
    reports = gang.reports()
    assert sum(report["steps"] for report in reports) == 39
    in_phases: dict[str, float] = {}
    for report in reports:
        for name, seconds in report.get("phases", {}).items():
            in_phases[name] = in_phases.get(name, 0.0) + seconds
    assert reports[0]["phases"]["start-up"] >= 0.2, "what was before the first step comes with the first report"
    assert ("eval" in in_phases) == (evaluator == 0), "the phases that are shown are those of rank 0"
    trained_s, took_s = sum(report["seconds"] for report in reports), float(outputs[0])
    assert 0 < trained_s <= took_s - 4 * 0.3, "the four evaluations alone take that long"
    assert sum(report.get("work", 0) for report in reports) == 3900


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_an_inner_phase_takes_its_time_from_the_outer() -> None:
    clock = Clock()
    marks = Marks(clock)
    with marks.phase("eval"):
        clock.now_s += 2
        with marks.phase("data"):
            clock.now_s += 3
        clock.now_s += 4
    assert marks.take_step() == (9.0, 0.0)
    assert marks.take_phases() == {"eval": 6.0, "data": 3.0}
    assert marks.take_phases() == {}


def test_a_phase_ends_with_an_exception() -> None:
    clock = Clock()
    marks = Marks(clock)
    with pytest.raises(KeyError), marks.phase("eval"):
        raise KeyError
    clock.now_s += 5
    assert marks.take_step() == (0.0, 0.0)


def test_a_phase_that_is_open_when_the_step_ends_leaves_the_step_out() -> None:
    clock, meter = Clock(), Meter()
    marks = Marks(clock)
    meter.resume(clock())
    meter.step_done(clock())
    with marks.phase("all of it"):
        clock.now_s += 5
        outside_s, work = marks.take_step()
        meter.step_done(clock(), outside_s, work)
    assert outside_s == math.inf
    assert meter.take() == (0, 0.0, 0.0), "steps without a second would be an endless rate"


def test_names_of_phases_are_few_and_short() -> None:
    marks = Marks()
    for name in ("", "x" * 33, 5):
        with pytest.raises(ValueError, match="use 1 to 32 characters"), marks.phase(name):  # type: ignore[arg-type]
            pass
    for index in range(PHASES_MAX):
        with marks.phase(f"phase-{index}"):
            pass
    with pytest.raises(ValueError, match="one name too many"), marks.phase("another"):
        pass


@given(st.lists(st.floats(0, 1e12), max_size=5))
def test_the_work_of_a_step_adds_up(units: list[float]) -> None:
    marks = Marks()
    for each in units:
        marks.add_work(each)
    assert marks.take_step()[1] == pytest.approx(sum(units))
    assert marks.take_step()[1] == 0.0


@pytest.mark.parametrize("units", [-1, math.nan, math.inf, 1e16])
def test_work_that_cannot_be_is_refused(units: float) -> None:
    with pytest.raises(ValueError, match="work: "):
        Marks().add_work(units)
