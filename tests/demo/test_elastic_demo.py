"""The demo of elastic jobs: what it reads from curves, its checks and its picture, and a small run of it."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gavel.demo.elastic import main
from gavel.demo.elastic.picture import drawn
from gavel.demo.elastic.runs import Ran, Trained
from gavel.demo.elastic.show import changes_of, checks, difference, jobs_table, notes
from gavel.demo.elastic.workload import RIGID_SIZE, SIZES, ElasticJob, jobs

STEP_S = 0.1  # of a gang of one


def a_training(name: str, *sizes: tuple[int, int], at_s: float = 1000.0, stop_s: float = 0.5) -> Trained:
    """A job that did so many steps in each size, and nothing for `stop_s` at each change."""
    rows, now_s = [], at_s + 1.0
    for size, steps in sizes:
        for _ in range(steps):
            now_s += STEP_S / size
            rows.append((1.0 / (len(rows) + 1), size, now_s))
        now_s += stop_s
    return Trained(name=name, submitted_at_s=at_s, jct_s=now_s - stop_s - at_s, curve=np.array(rows))


def a_run(*trained: Trained, left: tuple[str, ...] = ()) -> Ran:
    return Ran(trained=trained, left=left)


RIGID = a_run(a_training("a", (2, 60)), a_training("b", (2, 60), at_s=1010.0))
ELASTIC = a_run(a_training("a", (1, 4), (4, 56)), a_training("b", (4, 60), at_s=1010.0))


def test_sizes_and_what_their_changes_cost_follow_from_the_curve() -> None:
    first, second = ELASTIC.trained
    assert [size for size, _, _ in first.sizes] == [1, 4] and first.changes_s == pytest.approx([0.5])
    ((_, from_s, to_s),) = second.sizes
    assert (from_s, to_s) == pytest.approx((1011.0, 1011.0 + 60 * STEP_S / 4)) and second.changes_s == []
    assert changes_of(ELASTIC) == pytest.approx([0.5])


def test_what_it_prints_has_the_figures() -> None:
    (row, _) = jobs_table(RIGID, ELASTIC).columns[5].cells
    assert row == "1, 4"
    mean, change = notes(RIGID, ELASTIC)
    assert f"{RIGID.mean_jct_s:.1f} s with {RIGID_SIZE} workers" in mean and "0.50 s (median of 1" in change


def test_a_check_fails_if_elastic_jobs_gain_nothing_or_a_loss_differs() -> None:
    assert all(holds for holds, _ in checks(RIGID, ELASTIC, 2))
    first, second = ELASTIC.trained
    other = replace(first, curve=first.curve * [1 + 1e-6, 1, 1])
    short = replace(first, curve=first.curve[:-1])
    slow = replace(first, jct_s=100.0)
    failing = {
        "less time in the mean": a_run(slow, second),
        "differ by 1e-06": a_run(other, second),
        "differ by 1e+00": a_run(short, second),
        "changed their size 0 times": a_run(replace(second, name="a"), second),
        "no process is left; pid 7": a_run(first, second, left=("pid 7",)),
        "1 of 2 jobs completed": a_run(first),
    }
    for words, run in failing.items():
        assert [words in line for holds, line in checks(RIGID, run, 2) if not holds] == [True], words
    assert difference(first, replace(first, curve=first.curve * [1 + 1e-15, 1, 1])) < 1e-14


def test_the_picture_has_a_box_for_each_size_of_each_job() -> None:
    picture = ElementTree.fromstring(drawn(RIGID, ELASTIC))
    assert len(picture.findall(".//{*}rect")) == 2 + 3


def test_its_jobs_come_by_their_arrival_and_want_more_than_there_are_workers() -> None:
    arrivals = [each.arrives_s for each in jobs()]
    assert arrivals == sorted(arrivals) and len(arrivals) == 6
    assert len({each.seed for each in jobs()}) == 6 and max(SIZES) > RIGID_SIZE > min(SIZES)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_it_runs_on_real_processes_and_the_losses_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether elastic jobs are faster is not what is tested here: their two trainings are short."""
    of = tuple(ElasticJob(name=f"job-{seed}", arrives_s=4.0 * seed, length_s=24.0, seed=seed) for seed in range(2))
    main(tmp_path / "state", of)
    output = capsys.readouterr().out
    assert output.count("2 of 2 jobs completed") == 2 and output.count("no process is left\n") == 2, output
    assert "FAILED  the losses" not in output and "ok      the losses" in output, output
    assert ElementTree.parse(tmp_path / "state" / "elastic.svg")
