"""Who is behind its isolated share, by how much, and what each job counts more for it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.elastic.late import Behind
from gavel.elastic.problem import NOTHING
from gavel.elastic.utility import ElasticJobs
from gavel.mechanism.planning.behind import jobs_behind
from gavel.mechanism.planning.configurations import candidates_of, configurations_of
from gavel.ports import ThroughputMatrix
from gavel.types import Check, Job, ReplicaSpec, Serving
from tests.builders import a_cluster, a_job
from tests.mechanism.planning import size_inputs
from tests.mechanism.test_sizes import all_measured, elastic

LONG, SHORT = elastic("long", 3_000), a_job("short", spec={"total_steps": 500})


def slow(specs: Any, types: Any) -> ThroughputMatrix:
    """A twentieth of the speeds."""
    believed = all_measured(specs, types)
    return replace(believed, steps_per_s=believed.steps_per_s / 20)


def behind(*jobs: Job, at_s: float, restart_s: float = 0.0, matrix: Any = all_measured, **over: Any) -> Behind:
    """On eight workers of one type, where a larger gang is faster by less and less."""
    inputs = size_inputs(matrix, a_cluster(fast=8), now_s=at_s, **over)
    candidates = candidates_of(jobs, inputs)
    asked = ElasticJobs(
        speed=candidates.speed,
        steps_left=np.array([float((job.total_steps or 0) - job.steps_reported) for job in jobs]),
        configuration=np.full(len(jobs), NOTHING),
        restart_s=np.full(len(jobs), restart_s),
        weight=np.ones(len(jobs)),
        is_fixed=np.zeros(len(jobs), dtype=bool),
    )
    return jobs_behind(jobs, candidates.speed, configurations_of(jobs, inputs), asked, inputs)


def outcome(*jobs: Job, at_s: float, **over: Any) -> tuple[list[int], list[float], list[float]]:
    who = behind(*jobs, at_s=at_s, **over)
    return who.order.tolist(), who.least.tolist(), who.urgency.tolist()


def test_without_an_elastic_job_nobody_goes_first() -> None:
    assert outcome(SHORT, SHORT, at_s=10_000.0) == ([], [0.0, 0.0], [1.0, 1.0])
    assert outcome(SHORT, at_s=10_000.0)[0] == [] and behind(SHORT, at_s=1.0).order.dtype == np.int64


def least_of(*jobs: Job) -> list[float]:
    return outcome(*jobs, at_s=0.0)[1]


def test_the_isolated_speed_is_that_of_an_equal_part_of_the_cluster_among_those_that_can_run() -> None:
    """A job that fits nowhere has none, and takes no part."""
    nowhere = a_job("nowhere", spec={"scale_factor": 16})
    pair = least_of(LONG, SHORT)
    assert pair[1] == 10.0 and least_of(LONG, nowhere, SHORT) == [pair[0], 0.0, 10.0]
    assert least_of(LONG)[0] > pair[0] > least_of(LONG, SHORT, SHORT)[0]
    large = a_job("large", spec={"scale_factor": 8})
    assert least_of(LONG, large)[1] == pytest.approx(0.5 * 10.0 * 8**0.8)


@pytest.mark.parametrize(
    ("job", "over", "urgency"),
    [
        (LONG, {}, 1.0),
        (LONG, {"at_s": 100.0}, (200 / 160) ** 2),
        (LONG, {"at_s": 100.0, "restart_s": 20.0}, (200 / 180) ** 2),
        (LONG, {"at_s": 100.0, "round_duration_s": 40.0}, (200 / 140) ** 2),
        (replace(LONG, submitted_at_s=20.0), {"at_s": 120.0}, (200 / 160) ** 2),
        (replace(LONG, isolated_time_s=30.0), {"at_s": 130.0}, (230 / 190) ** 2),
        (replace(LONG, isolated_time_s=30.0, steps_reported=1_500), {"at_s": 130.0}, (180 / 140) ** 2),
        (replace(LONG, received_s={"fast": 5.0}), {"at_s": 100.0}, 1.0),
        (replace(LONG, received_s={"fast": 0.0}), {"at_s": 100.0}, (200 / 160) ** 2),
        (replace(LONG, received_s={"fast": 5.0}, steps_reported=1), {"at_s": 100.0}, (200 / 160) ** 2),
    ],
    ids=[
        "not yet",
        "a deficit",
        "a restart",
        "a shorter round",
        "by its arrival",
        "what it had in isolation",
        "what it did",
        "it ran without a step",
        "it never ran",
        "it did a step",
    ],
)
def test_a_job_counts_more_by_how_late_it_ends_at_its_isolated_speed(
    job: Job, over: dict[str, Any], urgency: float
) -> None:
    """It takes a hundred seconds at that speed."""
    steps = round(100 * least_of(LONG, SHORT)[0])
    sized = replace(job, spec=replace(job.spec, total_steps=steps))
    if job.steps_reported == 1_500:
        sized = replace(sized, steps_reported=steps // 2)
    answer = outcome(sized, SHORT, **({"at_s": 50.0} | over))[2]
    assert answer[0] == pytest.approx(urgency, rel=5e-3)


def test_replicas_and_sessions_have_no_claim_by_their_deficit() -> None:
    serving = Serving(port=8000, readiness=Check(path="/ready"))
    replica = replace(SHORT, spec=replace(SHORT.spec, replica=ReplicaSpec(service="s", version=1, serving=serving)))
    session = replace(SHORT, spec=replace(SHORT.spec, longest_s=60.0, preemptible=False))
    late, _, urgency = outcome(LONG, replica, session, SHORT, at_s=1_000.0)
    assert sorted(late) == [0, 3] and urgency == [4.0, 1.0, 1.0, 4.0]


def test_the_one_that_is_furthest_behind_goes_first() -> None:
    """Each is behind by five rounds, and by a quarter of its length."""
    early = replace(SHORT, id="early", submitted_at_s=-50.0)
    assert outcome(LONG, SHORT, early, at_s=800.0)[0] == [2, 1, 0]
    assert outcome(LONG, SHORT, early, at_s=270.0)[0] == [2]
    assert outcome(LONG, SHORT, early, at_s=270.0, round_duration_s=40.0)[0] == [2, 1, 0]


def test_a_job_that_fits_nowhere_is_never_late() -> None:
    nowhere = a_job("nowhere", spec={"scale_factor": 16})
    late, _, urgency = outcome(LONG, nowhere, SHORT, at_s=1_000.0)
    assert (sorted(late), urgency) == ([0, 2], [4.0, 1.0, 4.0])


def test_slow_jobs_are_as_late_as_fast_ones_of_fewer_steps() -> None:
    long, short = elastic("long", 150), a_job("short", spec={"total_steps": 25})
    order, least, urgency = outcome(long, short, at_s=100.0, matrix=slow)
    fast = outcome(LONG, SHORT, at_s=100.0)
    assert (order, least) == (fast[0], [pytest.approx(each / 20) for each in fast[1]])
    assert urgency == pytest.approx(fast[2])
