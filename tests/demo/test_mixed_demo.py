"""The demo of mixed work: its curve, its checks and its picture, and a small run of it on real processes."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from gavel.demo.mixed import main
from gavel.demo.mixed.clients import Asked
from gavel.demo.mixed.picture import drawn
from gavel.demo.mixed.runs import Ran, Sample
from gavel.demo.mixed.show import checks, pieces_table, trainings_table
from gavel.demo.mixed.workload import CURVE, REPLICAS_MAX, WORKERS, Piece, Training, piece_at, sent_at_s, trainings

SHORT = (Piece(lasts_s=10, requests_per_s=4), Piece(lasts_s=10, requests_per_s=24))


def a_job(**over: Any) -> Any:
    plain = {
        "name": "waves",
        "state": "COMPLETED",
        "attempt": 1,
        "preemptions": 0,
        "steps_done": 50,
        "total_steps": 50,
        "submitted_at_s": 1000.0,
        "jct_s": 20.0,
    }
    return plain | over


def a_sample(at_s: float, ready: int, trains: int) -> Sample:
    return Sample(at_s=at_s, trains=trains, session=1, serves=ready, ready=ready, wanted=ready)


RUN = Ran(
    curve=SHORT,
    samples=tuple(a_sample(at_s, 1, 6) if at_s < 10 else a_sample(at_s, 4, 3) for at_s in range(20)),
    asked=tuple(Asked(at_s / 10, 0.02) for at_s in range(200)),
    rounds=5,
    session=a_job(name="notebook", state="RUNNING", total_steps=None),
    pages=9,
    page_failures=(),
    trained=(a_job(), a_job(name="maps")),
    left=(),
)


def test_a_piece_of_the_curve_needs_so_many_replicas_and_the_next_one_follows_it() -> None:
    assert [each.replicas for each in CURVE] == [1, REPLICAS_MAX, 1]
    assert [piece_at(SHORT, at_s) for at_s in (0, 9.9, 10, 19.9, 20)] == [0, 0, 1, 1, None]
    assert Piece(lasts_s=1, requests_per_s=0.1).replicas == 1


def test_requests_are_spread_evenly_over_each_piece() -> None:
    sent = [sent_at_s(SHORT, number) for number in range(282)]
    assert sent[:2] == [0.0, 0.25] and sent[40] == 10.0 and sent[279] == pytest.approx(20 - 1 / 24)
    assert sent[280:] == [None, None]
    assert [piece_at(SHORT, at_s) for at_s in sent[:280] if at_s is not None] == [0] * 40 + [1] * 240


def test_there_is_no_room_for_all_trainings_at_the_peak() -> None:
    assert len(trainings()) == WORKERS - 2 > WORKERS - 1 - REPLICAS_MAX


def test_every_check_holds_of_a_run_without_faults_and_fails_for_its_fault() -> None:
    assert all(holds for holds, _ in checks(RUN, 2))
    failing: dict[str, Ran] = {
        "1 of 200 requests failed in 5 rounds; the first: it broke": replace(
            RUN, asked=(*RUN.asked[1:], Asked(1.0, 0.1, "it broke"))
        ),
        "0 of 0 requests failed": replace(RUN, asked=()),
        "in 0 rounds": replace(RUN, rounds=0),
        "replicas follow the demand: 1, 3, needed are 1, 4": replace(
            RUN, samples=(*RUN.samples[:-1], a_sample(19, 3, 3))
        ),
        "started 2 times": replace(RUN, session=a_job(state="RUNNING", attempt=2)),
        "preempted 1 times": replace(RUN, session=a_job(state="RUNNING", preemptions=1)),
        "seen 0 times": replace(RUN, pages=0),
        "and 1 times not; 502": replace(RUN, page_failures=("502",)),
        "1 of 2 trainings did all": replace(RUN, trained=(a_job(), a_job(steps_done=49))),
        "no process is left; pid 7": replace(RUN, left=("pid 7",)),
    }
    for words, run in failing.items():
        assert [words in line for holds, line in checks(run, 2) if not holds] == [True], words
    idle = replace(RUN, samples=tuple(replace(each, trains=3) for each in RUN.samples))
    (line,) = (line for holds, line in checks(idle, 2) if not holds)
    assert line == "3.0 workers train in the valley, 3.0 at the peak"
    after = replace(RUN, curve=(*SHORT, Piece(lasts_s=5, requests_per_s=4)))
    for trains, goes_on in ((5, True), (3, False)):
        run = replace(after, samples=(*RUN.samples, a_sample(21, 1, trains), a_sample(24, 1, 0)))
        assert [holds for holds, line in checks(run, 2) if "after it" in line] == [goes_on]


def test_what_it_prints_has_the_figures() -> None:
    table = pieces_table(RUN)
    firsts = [list(column.cells) for column in table.columns[:4]]
    assert firsts == [["0", "10"], ["4", "24"], ["100", "100"], ["0", "0"]]
    assert list(table.columns[6].cells) == ["1 of 1", "4 of 4"]
    assert list(trainings_table(RUN).columns[0].cells) == ["waves", "maps"]


def test_the_picture_shows_the_workers_of_each_part_and_the_requests() -> None:
    picture = ElementTree.fromstring(drawn(RUN))
    assert len([each for each in picture.findall(".//{*}rect") if each.get("class") != "key"]) == 2 * 3
    assert len(picture.findall(".//{*}polyline")) == 1


@pytest.mark.full
@pytest.mark.timeout(600)
def test_it_runs_on_real_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether replicas are there in time is not what is tested: a busy machine may be late."""
    curve = (Piece(lasts_s=10, requests_per_s=4), Piece(lasts_s=40, requests_per_s=12))
    of = tuple(Training(name=f"job-{seed}", length_s=12, seed=seed) for seed in range(3))
    main(tmp_path / "state", curve, of)
    output = capsys.readouterr().out
    assert "ok      0 of " in output and "requests failed" in output, output
    assert "the session was preempted 0 times and started 1 times" in output, output
    assert "3 of 3 trainings did all their steps" in output and "no process is left\n" in output, output
    assert "ok      it was seen" in output, output
    assert ElementTree.parse(cast(Path, tmp_path / "state" / "mixed.svg"))
