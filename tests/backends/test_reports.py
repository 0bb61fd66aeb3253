"""Reports of a job are accepted only if they can be true."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.backends import machine
from gavel.backends.reports import METRICS_MAX, ReportReader
from gavel.types import ReportKind

EXAMPLES = 500 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 50
Write = Callable[[bytes], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reports.jsonl"


def reader(path: Path, **over: Any) -> ReportReader:
    """Of a gang with generation 7 that goes from step 10 to 100."""
    given = {"generation": 7, "start_step": 10, "total_steps": 100, "checkpoints": path.parent / "checkpoints"}
    return ReportReader(path, **{**given, **over})


def line(**over: Any) -> bytes:
    payload = {"sequence": 1, "kind": "progress", "step": 20, "steps": 9, "seconds": 0.5, "metrics": {}}
    return json.dumps({**payload, **over}).encode() + b"\n"


def write(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_a_torn_last_line_is_read_once_it_is_whole(path: Path) -> None:
    read = reader(path)
    assert read.read() == ()
    write(path, line()[:20])
    assert read.read() == ()
    write(path, line()[20:])
    assert [report.step for report in read.read()] == [20]
    assert read.read() == ()
    assert read.malformed == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"sequence": 0},
        {"sequence": 1.0},
        {"sequence": True},
        {"kind": "boast"},
        {"step": 9},  # before the start
        {"step": 101},  # beyond the end
        {"step": "20"},
        {"steps": -1},
        {"steps": 11},  # more than there were since the report before
        {"seconds": -0.1},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": "1"},
        {"startup_s": -1},
        {"restore_s": math.inf},
        {"checkpoint_s": "1"},
        {"checkpoint_bytes": 1.5},
        {"checkpoint_bytes": -1},
        {"checkpoint_every_s": -1.0},
        {"checkpoint_cost_s": -0.1},
        {"time_to_loss_s": 1e13},
        {"time_to_loss_s": math.inf},
        {"metrics": [1]},
        {"kind": "checkpoint"},
        {"kind": "checkpoint", "checkpoint": "7-20"},  # no such folder
        {"kind": "checkpoint", "checkpoint": "6-20"},  # of an older gang
        {"kind": "checkpoint", "checkpoint": "../../etc"},
        {"kind": "checkpoint", "checkpoint": "7-30"},  # a link
        {"kind": "checkpoint", "checkpoint": "7-30", "step": 30},
    ],
)
def test_a_report_that_cannot_be_true_is_counted_and_ignored(path: Path, bad: dict[str, Any]) -> None:
    (path.parent / "checkpoints" / "6-20").mkdir(parents=True)
    (path.parent / "checkpoints" / "7-30").symlink_to("6-20")
    read = reader(path)
    write(path, line(**bad) + line(sequence=2))
    assert [report.sequence for report in read.read()] == [2]
    assert read.malformed == 1


def test_durations_are_read_where_a_runtime_reports_them(path: Path) -> None:
    write(path, line(startup_s=3.5, restore_s=0) + line(sequence=2, step=21, steps=1))
    first, second = reader(path).read()
    assert (first.startup_s, first.restore_s, first.checkpoint_s) == (3.5, 0.0, None)
    assert (second.startup_s, second.restore_s, second.checkpoint_s) == (None, None, None)


@pytest.mark.parametrize(
    "rubbish",
    [b"\n", b"null\n", b"[]\n", b"[" * 10_000 + b"\n", b"\xff\xfe\n", b"9" * 9_000 + b"\n", b"{}\n", b'"a"\n'],
)
def test_rubbish_is_counted_and_ignored(path: Path, rubbish: bytes) -> None:
    read = reader(path)
    write(path, rubbish + line())
    assert [report.step for report in read.read()] == [20]
    assert read.malformed == 1


def test_a_checkpoint_that_exists_is_named(path: Path) -> None:
    (path.parent / "checkpoints" / "7-20").mkdir(parents=True)
    write(path, line(kind="checkpoint", checkpoint="7-20"))
    assert reader(path).read()[0].checkpoint == "7-20"


def test_a_gang_that_begins_with_the_checkpoint_before_counts_from_there(path: Path) -> None:
    (path.parent / "checkpoints" / "6-4").mkdir(parents=True)
    (path.parent / "checkpoints" / "7-6").mkdir()
    write(path, line(step=4, steps=0, restored="6-4", note="10 could not be loaded"))
    write(path, line(sequence=2, step=6, steps=2, kind="checkpoint", checkpoint="7-6"))
    first, second = reader(path).read()
    assert (first.step, first.restored, second.step, second.checkpoint, second.restored) == (4, "6-4", 6, "7-6", "")


@pytest.mark.parametrize(
    "bad",
    [
        {"step": 3, "restored": "6-4"},
        {"step": 4, "restored": "6-3"},
        {"step": 4, "restored": "7-4"},
        {"step": 4, "restored": "5-4"},
        {"step": 12, "restored": "6-12"},
        {"step": 4, "restored": "../6-4"},
        {"step": 4, "restored": 4},
        {"step": 4, "restored": ""},
        {"step": 4, "restored": "6-4", "sequence": 2},
        {"step": 4, "restored": "6-4", "note": ""},
    ],
)
def test_what_is_no_checkpoint_before_the_accepted_one_is_no_report(path: Path, bad: dict[str, Any]) -> None:
    """Of a later step, not there, this gang's own, not before it, no name, and later than the first report."""
    for name in ("6-4", "6-12", "7-4"):
        (path.parent / "checkpoints" / name).mkdir(parents=True)
    write(path, line(**{"steps": 0, "note": "10 could not be loaded", **bad}))
    read = reader(path)
    assert read.read() == () and read.malformed == 1


def test_metrics_that_are_no_numbers_are_left_out(path: Path) -> None:
    metrics = {"loss": 1.5, "nan": math.nan, "text": "x", "huge": 10**400, "flag": True, "n" * 65: 1.0, "count": 3}
    unprintable = {"\ud800": 1.0, "a\0b": 1.0, "": 1.0, "\x1b[31m": 1.0}  # a database stores no such names
    write(path, line(metrics={**metrics, **unprintable}))
    assert reader(path).read()[0].metrics == {"loss": 1.5, "count": 3.0}
    write(path, line(sequence=2, steps=0, metrics={f"m{index}": 1.0 for index in range(50)}))
    assert len(reader(path).read()[1].metrics) == METRICS_MAX


def test_sequences_and_steps_never_go_back(path: Path) -> None:
    read = reader(path)
    write(path, line(sequence=5, step=40) + line(sequence=5, step=50) + line(sequence=4, step=60))
    write(path, line(sequence=6, step=39, steps=0) + line(sequence=7, step=40, steps=0))
    assert [(report.sequence, report.step) for report in read.read()] == [(5, 40), (7, 40)]


def test_a_line_longer_than_any_report_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "READ_BYTES", 1 << 15)
    read = reader(path)
    write(path, b"x" * (3 << 15) + b"\n" + line(metrics={"pad": 1.0, "x" * 20_000: 1.0}) + line())
    steps = [report.step for report in read.read()]
    while read.has_more:
        steps += [report.step for report in read.read()]
    assert steps == [20]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/passwd", path)])
def test_what_is_no_plain_file_is_not_read(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    assert reader(path).read() == ()


@settings(max_examples=EXAMPLES)
@given(
    cuts=st.lists(st.integers(1, 60), max_size=30),
    steps=st.lists(st.integers(0, 120), max_size=8),
    rubbish=st.binary(max_size=20),
)
def test_reading_in_pieces_equals_reading_at_once(
    cuts: list[int], steps: list[int], rubbish: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("reports") / "reports.jsonl"
    lines = [line(sequence=index, step=step, steps=0) for index, step in enumerate(steps, start=1)]
    text = (rubbish.replace(b"\n", b"") + b"\n").join(lines)
    piecewise, reports, start = reader(path), [], 0
    for cut in [*cuts, len(text)]:
        write(path, text[start : start + cut])
        start += cut
        reports += piecewise.read()
    at_once = reader(path)
    assert tuple(reports) == at_once.read()
    assert piecewise.malformed == at_once.malformed
    assert [report.step for report in reports] == sorted(report.step for report in reports)


def test_a_program_says_how_long_it_is_once(path: Path) -> None:
    reports = reader(path, total_steps=None)
    write(path, line(total_steps=500) + line(sequence=2, step=30) + line(sequence=3, step=40, total_steps=600))
    assert [(report.step, report.total_steps) for report in reports.read()] == [(20, 500), (30, None)]
    assert reports.malformed == 1, "a length that changes is no report"
    write(path, line(sequence=4, step=501) + line(sequence=5, step=500, kind="finished"))
    assert [report.step for report in reports.read()] == [500]


@pytest.mark.parametrize("total_steps", [0, -5, 19, True, 1.5, "500", 10**12 + 1, 1e300])
def test_a_length_that_cannot_be_is_no_report(path: Path, total_steps: Any) -> None:
    reports = reader(path, total_steps=None)
    write(path, line(step=20, total_steps=total_steps))
    assert (reports.read(), reports.malformed) == ((), 1)


def test_a_program_of_unknown_length_may_end_at_any_step(path: Path) -> None:
    reports = reader(path, total_steps=None)
    write(path, line(kind="finished", step=33))
    assert [(report.step, report.total_steps) for report in reports.read()] == [(33, 33)]


def test_a_program_may_end_before_its_last_step(path: Path) -> None:
    write(path, line(kind="finished", step=99))
    reports = reader(path)
    assert [(report.kind, report.step) for report in reports.read()] == [(ReportKind.FINISHED, 99)]
    assert reports.malformed == 0


def test_phases_and_work_are_taken_as_they_are(path: Path) -> None:
    write(path, line(phases={"eval": 1.5}, work=640))
    (report,) = reader(path).read()
    assert (report.phases_s, report.work) == ({"eval": 1.5}, 640.0)


@pytest.mark.parametrize(
    "over",
    [
        {"phases": []},
        {"phases": {"eval": -1}},
        {"phases": {"eval": 1e10}},
        {"phases": {"": 1}},
        {"phases": {"x" * 33: 1}},
        {"phases": {f"phase-{n}": 1 for n in range(9)}},
        {"phases": {"eval": "1"}},
        {"work": -1},
        {"work": 1e19},
        {"work": None},
    ],
    ids=str,
)
def test_phases_and_work_that_cannot_be_are_no_report(path: Path, over: dict[str, Any]) -> None:
    reports = reader(path)
    write(path, line(**over))
    assert (reports.read(), reports.malformed) == ((), 1)


def test_a_note_of_the_first_report_is_kept_short_and_printable(path: Path) -> None:
    write(path, line(note="not\x1b[31m loaded" + "x" * 5000) + line(sequence=2, steps=0, note="again"))
    first, second = reader(path).read()
    assert first.note.startswith("not?[31m loadedxxx") and len(first.note) == 1000 and second.note == ""
    write(path, line(note=["no text"]))
    read = reader(path)
    read.read()
    assert read.malformed == 1


@pytest.mark.parametrize("seconds", [10**400, 1.7e308, 1e9 + 1])
@pytest.mark.parametrize("name", ["seconds", "startup_s", "restore_s", "checkpoint_s"])
def test_seconds_whose_sum_would_be_infinite_are_no_report(path: Path, name: str, seconds: float) -> None:
    reading = reader(path)
    write(path, line(sequence=1, **{name: seconds}) + line(sequence=2, **{name: 1e9}))
    (report,) = reading.read()
    assert (report.sequence, getattr(report, name), reading.malformed) == (2, 1e9, 1)


def test_a_metric_beyond_all_floats_is_left_out(path: Path) -> None:
    write(path, line(metrics={"loss": 10**400, "accuracy": 0.5}))
    assert reader(path).read()[0].metrics == {"accuracy": 0.5}
