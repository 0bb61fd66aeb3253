"""The pure parts of the runtime, and those that only need a file: lease, meter, metrics, checkpoints."""

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel_runtime._checkpoint import begin_checkpoint
from gavel_runtime._lease import READ_EVERY_S, Lease, LeaseFile, parse_lease
from gavel_runtime._reports import METRICS_MAX, Meter, Reports, merged_metrics
from gavel_runtime._writing import Writing

EXAMPLES = 2000 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 50
quickly = settings(max_examples=EXAMPLES)
instants = st.floats(0, 1e9)
durations = st.floats(0, 1e6)


@quickly
@given(instants, st.booleans(), durations, instants)
def test_a_lease_has_room_only_for_what_ends_before_it(
    expires_boottime_s: float, stop: bool, duration_s: float, now_s: float
) -> None:
    has_room = Lease(expires_boottime_s, stop).has_room_for(duration_s, now_s)
    assert has_room == (not stop and now_s + duration_s <= expires_boottime_s and now_s != expires_boottime_s)
    assert not has_room or Lease(expires_boottime_s, stop).has_room_for(duration_s / 2, now_s)


@quickly
@given(st.floats(-1e9, 1e9), st.booleans())
def test_a_lease_survives_being_written_and_read(expires_boottime_s: float, stop: bool) -> None:
    text = json.dumps({"expires_boottime_s": expires_boottime_s, "stop": stop})
    assert parse_lease(text) == Lease(expires_boottime_s, stop)
    assert all(parse_lease(text[:length]) is None for length in range(len(text)))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@quickly
@given(
    st.text()
    | json_values.map(json.dumps)
    | st.fixed_dictionaries({}, optional={"expires_boottime_s": json_values, "stop": json_values}).map(json.dumps)
)
def test_no_text_makes_a_lease_without_an_end(text: str) -> None:
    lease = parse_lease(text)
    assert lease is None or math.isfinite(lease.expires_boottime_s)


@quickly
@given(
    st.lists(
        st.tuples(st.floats(0, 0.2), st.none() | st.tuples(st.floats(0, 10), st.booleans()), st.floats(0, 1)),
        max_size=30,
    )
)
def test_a_no_rests_on_the_newest_lease_and_a_yes_on_one_at_most_50_ms_old(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[float, tuple[float, bool] | None, float]],
) -> None:
    """Each move: time passes, perhaps a lease is written, and the job asks for room."""
    path, now = tmp_path_factory.mktemp("lease") / "lease.json", [100.0]
    history = [(-math.inf, Lease(101.0))]
    file = LeaseFile(path, Lease(101.0), clock=lambda: now[0])
    for passed_s, written, duration_s in moves:
        now[0] += passed_s
        if written is not None:
            history.append((now[0], Lease(100 + written[0], written[1])))
            path.write_text(json.dumps({"expires_boottime_s": 100 + written[0], "stop": written[1]}))
        answer = file.has_room_for(duration_s)
        recent = [
            lease
            for (_, lease), (until_s, _) in zip(history, [*history[1:], (math.inf, None)], strict=True)
            if until_s >= now[0] - READ_EVERY_S
        ]
        if answer:
            assert any(lease.has_room_for(duration_s, now[0]) for lease in recent)
        else:
            assert not history[-1][1].has_room_for(duration_s, now[0])


@quickly
@given(st.lists(st.tuples(st.sampled_from(["step", "pause", "take"]), st.floats(0.001, 5)), max_size=60))
def test_the_meter_counts_every_step_but_the_first_and_no_pause(moves: list[tuple[str, float]]) -> None:
    meter, now_s = Meter(), 10.0
    meter.resume(now_s)
    lengths: list[float] = []
    taken_steps, taken_s = 0, 0.0
    for kind, duration_s in moves:
        if kind == "take":
            steps, seconds, _ = meter.take()
            taken_steps, taken_s = taken_steps + steps, taken_s + seconds
            continue
        now_s += duration_s
        if kind == "pause":
            meter.resume(now_s)
        else:
            meter.step_done(now_s)
            lengths.append(duration_s)
    counted = lengths[1:]
    assert taken_steps + meter.steps == len(counted)
    assert taken_s + meter.seconds == pytest.approx(sum(counted))
    assert not counted or min(counted) - 1e-9 <= meter.step_s <= max(counted) + 1e-9


names = st.text(min_size=1, max_size=8)


@quickly
@given(st.lists(st.dictionaries(names, st.floats(), max_size=6), max_size=6))
def test_metrics_stay_few_and_finite(reports: list[dict[str, float]]) -> None:
    metrics: dict[str, float] = {}
    for report in reports:
        if len(metrics | report) > METRICS_MAX:
            with pytest.raises(ValueError, match="report at most 16"):
                merged_metrics(metrics, report)
            continue
        metrics = merged_metrics(metrics, report)
        assert {name: value for name, value in report.items() if math.isfinite(value)}.items() <= metrics.items()
        assert len(metrics) <= METRICS_MAX
        assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_metric_without_a_proper_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 64 characters"):
        merged_metrics({}, {name: 1.0})


def test_a_report_is_one_line_and_numbered(tmp_path: Path) -> None:
    reports = Reports(tmp_path / "reports.jsonl")
    reports.write("progress", 120, steps=30, seconds=0.61, more={"metrics": {"loss": 0.31}})
    reports.write("checkpoint", 133, steps=13, seconds=0.27, more={"checkpoint": "7-133"}, durable=True)
    reports.close()
    assert [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()] == [
        {"sequence": 1, "kind": "progress", "step": 120, "steps": 30, "seconds": 0.61, "metrics": {"loss": 0.31}},
        {"sequence": 2, "kind": "checkpoint", "step": 133, "steps": 13, "seconds": 0.27, "checkpoint": "7-133"},
    ]


def test_a_full_disk_is_noticed_when_a_report_is_written() -> None:
    reports = Reports(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        reports.write("progress", 1, steps=1, seconds=0.1)
    reports.close()


def write_checkpoint(directory: Path, name: str, save: Callable[[Path], object]) -> Path:
    writing = Writing(begin_checkpoint(directory, name), 12, (0, 0.0, 0.0))
    writing.begin(save)
    return writing.finished()


def test_a_checkpoint_may_be_written_in_a_thread(tmp_path: Path) -> None:
    may_write = threading.Event()

    def save(path: Path) -> Callable[[], object]:
        return lambda: may_write.wait(60) and (path / "a").write_text("later")

    writing = Writing(begin_checkpoint(tmp_path, "7-12"), 12, (0, 0.0, 0.0))
    writing.begin(save)
    assert not writing.is_done()
    assert not (tmp_path / "7-12").exists()
    may_write.set()
    assert (writing.finished() / "a").read_text() == "later"


def test_a_checkpoint_that_fails_in_its_thread_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    def save(path: Path) -> Callable[[], object]:
        return (path / "folder that is not there" / "a").touch

    with pytest.raises(FileNotFoundError):
        write_checkpoint(tmp_path, "7-12", save)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_may_hold_folders_and_links(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        assert list(path.iterdir()) == []
        (path / "deep").mkdir()
        (path / "deep" / "weights").write_bytes(b"1")
        (path / "newest").symlink_to("deep/weights")

    path = write_checkpoint(tmp_path / "new" / "folder", "7-12", save)
    assert path == tmp_path / "new" / "folder" / "7-12"
    assert (path / "newest").read_bytes() == b"1"
    assert [each.name for each in path.parent.iterdir()] == ["7-12"]


def test_a_checkpoint_is_never_written_over_another(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "7-12", lambda path: (path / "a").write_text("first"))
    with pytest.raises(OSError, match="not empty"):
        write_checkpoint(tmp_path, "7-12", lambda path: (path / "a").write_text("second"))
    assert (tmp_path / "7-12" / "a").read_text() == "first"
    assert [each.name for each in tmp_path.iterdir()] == ["7-12"]
