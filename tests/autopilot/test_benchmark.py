"""The benchmark of the autopilot: the same rows for the same seed, what each case is, and where its tables stand."""

from collections import Counter

import numpy as np
import pytest

from benchmarks import autopilot, evaluation_page
from benchmarks.autopilot import (
    AUTOPILOT,
    LABEL,
    RANDOM,
    Group,
    Task,
    figures_of,
    groups,
    lines_of,
    over_best,
    tasks_of,
)
from benchmarks.autopilot_cases import POSTERS, Case, phase_names, phases
from benchmarks.autopilot_runs import Ran
from benchmarks.bandits import LinUcb, Ucb1
from gavel.autopilot.features import COUNT
from workloads.traces.suite import WORKLOADS

SMALL = Case("coarse-bursty", 4, 0.5, POSTERS[:2])


@pytest.mark.full
def test_the_same_seed_has_the_same_rows() -> None:
    for selector in (AUTOPILOT, RANDOM):
        first, again = (Task(SMALL, selector, "mean_jct").ran() for _ in range(2))
        assert (first.costs, first.switches) == (again.costs, again.switches)
        assert (len(first.decision_s) > 1) == (selector == AUTOPILOT)


def test_phases_are_workloads_of_the_suite_one_after_the_other() -> None:
    jobs = phases(3, seed=1)
    users = Counter(
        job.spec.user.partition("-")[0] for job, _ in {job.spec.user: (job, name) for job, name in jobs}.values()
    )
    assert sorted(phase_names(1)) == sorted(WORKLOADS) and phase_names(1) != phase_names(2)
    assert users == {str(place): 3 for place in range(len(WORKLOADS))}
    assert [job.submitted_at_s for job, _ in jobs] == sorted(job.submitted_at_s for job, _ in jobs)


def test_bandits_try_each_arm_and_stay_with_the_best() -> None:
    for selector in (Ucb1(3), LinUcb(3, COUNT)):
        features = np.ones(COUNT)
        arms = []
        for _ in range(400):
            arms.append(selector.choose(features))
            selector.learn(arms[-1], features, 0.9 if arms[-1] == 1 else 0.1)
        assert set(arms) == {0, 1, 2} and arms.count(1) > 250


def test_regret_is_over_the_best_fixed_composition_by_geometric_mean() -> None:
    one, two = (Case("coarse-cpu", 4, 0.0, POSTERS[:2], seed) for seed in (0, 1))
    group = Group("of two", (one, two), measures=("mean_jct",), selectors=(AUTOPILOT, LABEL), most=2.0)
    costs = {AUTOPILOT: (11.0, 20.0), LABEL: (20.0, 20.0), POSTERS[0]: (10.0, 40.0), POSTERS[1]: (20.0, 20.0)}
    results = {
        task: Ran(costs={"mean_jct": costs[task.selector][task.case.seed]}, decision_s=(1.0,))
        for task in tasks_of(group)
    }
    assert over_best(two, "mean_jct", {"mean_jct": 30.0}, results) == 1.5
    figures = {row.name: row for row in figures_of(group, results)}
    assert figures["of two, mean_jct: regret, worst"].value == pytest.approx(10.0)
    assert figures["of two, mean_jct: regret, mean of 2"].value == pytest.approx(100 * (1.1**0.5 - 1))
    assert figures["of two, mean_jct: regret, mean of 2"].holds is False
    assert lines_of(group, results)[1][:2] == [AUTOPILOT, "1.049 (1.100)"]


def test_each_table_has_its_place_on_the_page_and_streams_are_left_out_without_their_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(autopilot, "has_streams", lambda: True)
    page = autopilot.PAGE.read_text()
    every = [group.name for is_quick in (True, False) for group in groups(is_quick)]
    assert all(mark in page for name in every for mark in evaluation_page.markers(name, "bench-autopilot"))
    monkeypatch.setattr(autopilot, "has_streams", lambda: False)
    assert {each for each in every if "stream" in each} == set(every) - {
        group.name for is_quick in (True, False) for group in groups(is_quick)
    }
    assert "GAVEL_DATA names no folder" in capsys.readouterr().err
