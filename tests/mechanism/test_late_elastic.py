"""Jobs that are far behind their isolated share are given a configuration in which they are as fast as that, first."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings, target
from hypothesis import strategies as st

from benchmarks.late_elastic_jobs import KINDS, PRIORITIES, Arrival, furthest
from gavel.elastic.late import Behind, first_served
from gavel.elastic.problem import NOTHING
from gavel.elastic.utility import ElasticJobs
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning import sizes
from gavel.mechanism.planning.behind import jobs_behind
from gavel.mechanism.planning.configurations import SizeInputs, candidates_of, configurations_of
from gavel.types import FloatArray, Job
from tests.builders import a_cluster, a_job
from tests.mechanism.test_sizes import all_measured, elastic

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
ONE_LONG_BESIDE_ONE_OF_HIGH_PRIORITY = (Arrival(0, 60, 2, 0), Arrival(0, 400, 2, 5))

arrivals = st.builds(
    Arrival,
    round_index=st.integers(0, 30),
    rounds=st.integers(1, 120),
    kind=st.integers(0, len(KINDS) - 1),
    priority=st.sampled_from(PRIORITIES),
)


@settings(max_examples=60 if IS_FULL else 2, deadline=None, phases=[Phase.generate, Phase.target])
@given(st.lists(arrivals, min_size=2, max_size=12))
def test_no_stream_is_found_in_which_a_job_is_further_behind_than_the_bound(drawn: list[Arrival]) -> None:
    """Elastic and rigid jobs through the service on a manual clock, with rounds and what starts cost."""
    part = furthest(tuple(drawn), rounds=120 if IS_FULL else 50).part
    target(part)
    assert part <= 1


def test_without_it_a_job_falls_behind_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are chosen for short times to completion: beside a job of high priority it would stay in its smallest."""
    stream = ONE_LONG_BESIDE_ONE_OF_HIGH_PRIORITY
    assert furthest(stream, rounds=60).part <= 1

    def nobody(jobs: list[object], *_: object) -> Behind:
        return Behind(order=np.zeros(0, dtype=np.int64), least=np.zeros(len(jobs)), urgency=np.ones(len(jobs)))

    monkeypatch.setattr(sizes, "jobs_behind", nobody)
    assert furthest(stream, rounds=60).part > 1.5


# --- who is served first ---------------------------------------------------------------------------------------------

SIZES = np.array([1, 2, 4])


def speeds(*of_jobs: list[float]) -> FloatArray:
    """Of jobs on one type."""
    return np.array(of_jobs)[:, None, :]


def served(speed: FloatArray, workers: int, least: list[float], wanted: list[int]) -> list[int]:
    order = np.arange(len(speed))
    answer = first_served(
        speed, SIZES, np.array([workers]), least=np.array(least), order=order, wanted=np.array(wanted)
    )
    return answer.tolist()


def test_a_job_has_the_smallest_size_that_is_enough_or_the_one_wanted_for_it() -> None:
    speed = speeds([1.0, 1.8, 3.0], [1.0, 1.8, 3.0])
    assert served(speed, 8, [1.5, 1.5], [0, 2]) == [1, 2]
    assert served(speed, 8, [1.0, 9.0], [NOTHING, 2]) == [0, NOTHING]


def test_whoever_comes_later_in_the_order_has_what_fits_beside_the_others() -> None:
    speed = speeds([0.0, 0.0, 3.0], [1.0, 1.8, 3.0], [0.0, 1.8, 0.0])
    assert served(speed, 5, [2.0, 1.5, 1.5], [NOTHING] * 3) == [2, NOTHING, NOTHING]
    assert served(speed, 6, [2.0, 1.5, 1.5], [NOTHING] * 3) == [2, 1, NOTHING]


@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 12))
def test_what_is_served_fits_and_is_fast_enough(seed: int, few: int, more: int) -> None:
    draw, free = np.random.default_rng(seed), np.array([few, more])
    speed = draw.uniform(0.1, 3.0, (6, 2, 3)) * (draw.random((6, 2, 3)) < 0.8)
    least, order = draw.uniform(0.0, 3.0, 6), draw.permutation(6)[:4]
    answer = first_served(speed, SIZES, free, least=least, order=order, wanted=draw.integers(-1, 6, 6))
    held = np.zeros(2, dtype=np.int64)
    for row in np.flatnonzero(answer != NOTHING).tolist():
        column, place = divmod(int(answer[row]), 3)
        held[column] += SIZES[place]
        assert row in order and speed[row, column, place] >= least[row] * (1 - 1e-6) and speed[row, column, place] > 0
    assert (held <= free).all()
    first, fits = int(order[0]), (speed[order[0]] > 0) & (free[:, None] >= SIZES)
    assert (answer[first] != NOTHING) == bool((fits & (speed[first] >= least[first] * (1 - 1e-9))).any())


# --- who is behind ---------------------------------------------------------------------------------------------------


def behind(*jobs: Job, at_s: float) -> list[int]:
    """The rows of the jobs that go first."""
    return who_is_behind(*jobs, at_s=at_s).order.tolist()


def who_is_behind(*jobs: Job, at_s: float) -> Behind:
    """On 8 workers of one type; a worker makes 10 steps/s, alone or in a gang."""
    inputs = SizeInputs(
        feasibility=Feasibility(a_cluster(fast=8)),
        matrix=all_measured,
        marks=(),
        of_own_kind=lambda job: job,
        held={},
        staying=(),
        restart_s={},
        round_duration_s=60.0,
        plan_held={},
        now_s=at_s,
    )
    candidates = candidates_of(jobs, inputs)
    choice = configurations_of(jobs, inputs)
    nobody = np.zeros(len(jobs))
    asked = ElasticJobs(
        speed=candidates.speed,
        steps_left=np.array([float(job.total_steps or 0) for job in jobs]),
        configuration=np.full(len(jobs), NOTHING),
        restart_s=nobody,
        weight=np.ones(len(jobs)),
        is_fixed=nobody > 0,
    )
    return jobs_behind(jobs, candidates.speed, choice, asked, inputs)


def test_who_is_furthest_beyond_its_bound_goes_first_whether_elastic_or_rigid() -> None:
    """Each could end in 100 s and in 50 s at the isolated speed of half of the workers; five rounds are no claim."""
    long, short = elastic("long", 30_00), a_job("short", spec={"total_steps": 500})
    assert behind(long, short, at_s=300.0) == []
    assert behind(long, short, at_s=320.0) == [1]
    assert behind(long, short, at_s=500.0) == [1, 0]
    assert behind(short, at_s=500.0) == []  # without an elastic job rounds follow lags alone


def test_a_job_that_ends_late_even_at_its_isolated_speed_counts_more_and_one_that_does_not_as_it_is() -> None:
    long, short = elastic("long", 30_00), a_job("short", spec={"total_steps": 500})
    assert who_is_behind(long, short, at_s=50.0).urgency == pytest.approx([1.0, 1.0])  # a start alone takes as long
    late = pytest.approx([(200 / 160) ** 2, (150 / 110) ** 2], rel=0.02)
    assert who_is_behind(long, short, at_s=100.0).urgency == late
    assert who_is_behind(long, short, at_s=500.0).urgency == pytest.approx([4.0, 4.0])
    ahead = replace(long, isolated_time_s=500.0, steps_reported=10)
    assert who_is_behind(ahead, short, at_s=300.0).urgency[0] == 1
    assert who_is_behind(short, at_s=300.0).urgency == pytest.approx([1.0])


def test_whoever_ran_without_a_step_has_no_claim_by_its_deficit() -> None:
    silent = replace(elastic("j", 3000), received_s={"fast": 100.0})
    assert behind(silent, a_job("r", spec={"total_steps": 10**7}), at_s=500.0) == []
    assert who_is_behind(silent, a_job("r", spec={"total_steps": 10**7}), at_s=500.0).urgency[0] == 1
    assert behind(replace(silent, steps_reported=5), a_job("r", spec={"total_steps": 10**7}), at_s=500.0) == [0]
