"""What moves cost, how long jobs are taken to be, and how fast a job is alone and on workers that it shares."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from gavel.config import Settings
from gavel.mechanism.planning.lengths import length_error, steps_left
from gavel.mechanism.planning.own_rates import own_estimates, reliable_rates
from gavel.mechanism.planning.sharing import MOST_JOBS, memory_of_types, pair_rates
from gavel.mechanism.planning.switch_costs import blended, measured_s, pays_a_start, with_startups
from gavel.ports import ThroughputEstimate, ThroughputEstimator
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import (
    Cluster,
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    Job,
    JobSpec,
    Node,
    PairRates,
    StartupTimes,
    Worker,
)
from tests.builders import a_cluster, a_job

NAN = float("nan")
TRAINED = a_job(trained_s=6.0, trained_steps=12)


def a_gang(outcome: GangOutcome = GangOutcome.PREEMPTED, **over: Any) -> GangSeen:
    """A gang that held its worker for nine seconds."""
    fields: dict[str, Any] = {
        "job_id": "j1",
        "generation": 1,
        "state": GangState.ENDED,
        "accelerator_type": "fast",
        "worker_ids": ("fast-0",),
        "started_at_s": 100.0,
        "ended_at_s": 109.0,
        "exit": GangExit(outcome=outcome),
    }
    return GangSeen(**fields | over)


# --- what a move costs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "gang", "expected"),
    [
        (TRAINED, a_gang(), 2.5),
        (TRAINED, a_gang(GangOutcome.EXITED), 2.5),
        (TRAINED, a_gang(GangOutcome.LOST), None),
        (TRAINED, a_gang(exit=None), None),
        (TRAINED, a_gang(started_at_s=None), None),
        (TRAINED, a_gang(ended_at_s=None), None),
        (a_job(trained_s=6.0, trained_steps=0), a_gang(), None),
        (a_job(trained_s=6.0, trained_steps=1), a_gang(ended_at_s=113.0), 1.0),
        (replace(TRAINED, outside_s=2.0), a_gang(), 0.5),
        (TRAINED, a_gang(ended_at_s=106.502), pytest.approx(0.002)),
        (TRAINED, a_gang(ended_at_s=106.5009), 0.0),
        (TRAINED, a_gang(ended_at_s=106.0), 0.0),
    ],
    ids=[
        "preempted",
        "ended",
        "lost",
        "still there",
        "never started",
        "no end is known",
        "no step",
        "one step",
        "phases that are no training",
        "hardly anything",
        "rounding",
        "less than a step",
    ],
)
def test_a_move_costs_what_was_no_training_less_the_step_that_was_cut_off(
    job: Job, gang: GangSeen, expected: float | None
) -> None:
    assert measured_s(job, gang) == expected


def test_newer_measurements_count_more_for_a_kind_and_for_those_that_nobody_has_measured() -> None:
    costs = {"mlp": 2.0, "": 4.0}
    assert blended(costs, "mlp", 12.0) == {"mlp": pytest.approx(5.0), "": pytest.approx(6.4)}
    assert blended(costs, "cnn", 12.0) == {"mlp": 2.0, "cnn": 12.0, "": pytest.approx(6.4)}
    assert blended({}, "cnn", 12.0) == {"cnn": 12.0, "": 12.0} and costs == {"mlp": 2.0, "": 4.0}


def test_a_kind_of_which_no_gang_has_ended_costs_what_its_gangs_reported_where_they_take_longest() -> None:
    times = [
        StartupTimes(kind="cnn", accelerator_type="fast", startup_s=(2.0,), restore_s=(1.0,), checkpoint_s=(0.5,)),
        StartupTimes(kind="cnn", accelerator_type="slow", startup_s=(5.0,)),
        StartupTimes(kind="cnn", accelerator_type="other", startup_s=(1.0,)),
        StartupTimes(kind="mlp", accelerator_type="fast", startup_s=(9.0,)),
        StartupTimes(kind="gan", accelerator_type="fast", startup_s=(1.0,), restore_s=(2.0,), checkpoint_s=(4.0,)),
    ]
    assert with_startups({"mlp": 2.0, "": 4.0}, times) == {"mlp": 2.0, "": 4.0, "cnn": 5.0, "gan": 7.0}
    costs = {"mlp": 2.0}
    assert with_startups(costs, times[3:4]) is costs


@pytest.mark.parametrize(
    ("costs", "left_s", "pays"),
    [
        ({"mlp": 3.0, "": 99.0}, 6.0, True),
        ({"mlp": 3.0, "": 0.0}, 5.9, False),
        ({"": 3.0}, 6.0, True),
        ({"": 3.0}, 5.9, False),
        ({}, 0.1, True),
        ({}, 0.0, False),
        ({}, -1.0, False),
    ],
)
def test_a_start_pays_if_half_of_the_time_is_left_to_train(costs: dict[str, float], left_s: float, pays: bool) -> None:
    assert pays_a_start("mlp", costs, left_s) is pays


# --- how long jobs are --------------------------------------------------------------------------------------------


def test_how_sure_a_length_is_follows_from_its_rate_and_from_who_stated_it() -> None:
    total, error = np.array([100.0, 100.0, 100.0, NAN, NAN]), np.array([0.04, 0.06, 0.3, 0.02, 1.0])
    assert length_error(total, error).tolist() == [0.0, 0.1, 0.3, 1.0, 1.4]


@pytest.mark.parametrize(
    ("total", "reported", "expected"),
    [
        ([100.0, 50.0, 60.0, 70.0], [10.0, 0.0, 60.0, 0.0], [90.0, 50.0, 0.0, 70.0]),
        ([100.0, NAN, 300.0, 900.0], [10.0, 5.0, 20.0, 0.0], [90.0, 200.0, 280.0, 900.0]),
        ([NAN, NAN, 60.0, 70.0], [10.0, 5.0, 0.0, 0.0], [60.0, 60.0, 60.0, 70.0]),
        ([NAN, NAN, NAN, 70.0], [10.0, 5.0, 0.0, 1.0], [3600.0, 10_800.0, 18_000.0, 69.0]),
    ],
    ids=["all are known", "the median of its kind", "two of one kind", "what the fastest type does in an hour"],
)
def test_steps_that_are_left_are_those_that_nobody_has_reported(
    total: list[float], reported: list[float], expected: list[float]
) -> None:
    """Three jobs of one kind, and one of another."""
    speeds = np.array([[1.0, 0.5], [2.0, 3.0], [5.0, 5.0], [1.0, 1.0]])
    left = steps_left(np.array(total), np.array(reported), kinds=["a", "a", "a", "b"], steps_per_s=speeds)
    assert left.tolist() == expected


def test_a_job_of_unknown_length_has_none_where_there_is_no_type() -> None:
    left = steps_left(np.array([NAN]), np.array([0.0]), kinds=["a"], steps_per_s=np.zeros((1, 0)))
    assert left.tolist() == [0.0]


# --- how fast they are --------------------------------------------------------------------------------------------


class OfOwnKinds(OracleThroughputs):
    """Each job has a kind of its own."""

    def kind_of(self, job: Job) -> str:
        return f"{job.spec.kind}#{job.id}"


def an_estimate(name: str, rate: float, source: str) -> ThroughputEstimate:
    return ThroughputEstimate(
        kind="mlp",
        scale_factor=1,
        accelerator_type=name,
        steps_per_s=rate,
        relative_error=0.0,
        source=cast(Any, source),
    )


def test_a_job_has_the_speeds_of_its_own_kind_on_the_types_where_it_can_run() -> None:
    rates = {("mlp#a", 1, "fast"): 0.5, ("mlp#a", 1, "other"): 9.0, ("mlp", 1, "slow"): 9.0}
    estimates = own_estimates(a_job("a"), OfOwnKinds(rates), ["fast", "slow"])
    assert {name: each.steps_per_s for name, each in estimates.items()} == {"fast": 0.5}


def test_an_estimator_that_leaves_a_type_out_is_refused() -> None:
    class Forgets(OracleThroughputs):
        def estimate(self, spec: JobSpec, types: Sequence[str]) -> tuple[ThroughputEstimate, ...]:
            return OracleThroughputs.estimate(self, spec, types)[:1]

    with pytest.raises(ValueError, match="shorter"):
        own_estimates(a_job("a"), Forgets({("mlp", 1, "fast"): 3.0}), ["fast", "slow"])


def test_a_promise_relies_on_speeds_that_were_measured_or_stated() -> None:
    from gavel.ports.estimator import ThroughputSource

    sources = list(ThroughputSource)
    estimates = {str(each): an_estimate(str(each), 2.0, cast(str, each)) for each in sources}
    assert reliable_rates(estimates) == {str(each): 2.0 for each in sources if each.is_reliable}


class AskedForPairs:
    """An estimator that keeps what it is asked of pairs."""

    def __init__(self, answer: PairRates | None) -> None:
        self.answer, self.asked = answer, list[Any]()

    def pair_rates(
        self, jobs: Sequence[Job], types: Sequence[str], memory_bytes: Sequence[int], *, tries: int = 0
    ) -> PairRates | None:
        self.asked.append(([job.id for job in jobs], list(types), list(memory_bytes), tries))
        return self.answer


WITH_MEMORY = Cluster(
    nodes=(Node(name="n0"),),
    workers=tuple(
        Worker(id=f"w{index}", node="n0", accelerator_type=name, memory_bytes=memory)
        for index, (name, memory) in enumerate([("fast", 80), ("fast", 40), ("slow", 16), ("fast", 60), ("tiny", 0)])
    ),
)


def rates_of(jobs: Sequence[Job], answer: PairRates | None, **settings: Any) -> tuple[PairRates | None, list[Any]]:
    estimator = AskedForPairs(answer)
    given = Settings(**{"space_sharing": True, "pair_trials": 3} | settings)
    return pair_rates(jobs, WITH_MEMORY, cast(ThroughputEstimator, estimator), given), estimator.asked


def test_the_memory_of_a_type_is_what_each_of_its_accelerators_has_at_least() -> None:
    assert memory_of_types(WITH_MEMORY, ["tiny", "fast", "slow"]) == [0, 40, 16]


def test_jobs_share_workers_by_what_the_estimator_expects_and_sessions_do_not() -> None:
    answer = PairRates(kind_of_job=np.array([1, 0]), steps_per_s=np.ones((2, 2, 3)))
    jobs, session = [a_job("a"), a_job("b")], a_job("s", spec={"longest_s": 60.0, "preemptible": False})
    rates, asked = rates_of(jobs, answer)
    assert rates is answer and asked == [(["a", "b"], list(WITH_MEMORY.accelerator_types), [40, 16, 0], 3)]
    rates, asked = rates_of([jobs[0], session, jobs[1]], answer)
    assert rates is not None and rates.kind_of_job.tolist() == [1, -1, 0] and rates.steps_per_s is answer.steps_per_s
    assert rates_of([session, jobs[0]], None)[0] is None


def test_nobody_shares_where_an_operator_turned_it_off_or_there_are_too_many() -> None:
    answer = PairRates(kind_of_job=np.zeros(MOST_JOBS, dtype=np.int64), steps_per_s=np.ones((1, 1, 3)))
    jobs = [a_job("a")] * MOST_JOBS
    assert rates_of(jobs, answer)[0] is answer and rates_of([*jobs, a_job("b")], answer) == (None, [])
    assert rates_of(jobs[:2], answer, space_sharing=False) == (None, [])


def test_the_specification_that_the_estimator_is_asked_about_is_that_of_the_job() -> None:
    asked: list[JobSpec] = []

    class Remembers(OracleThroughputs):
        def estimate(self, spec: JobSpec, types: Sequence[str]) -> tuple[ThroughputEstimate, ...]:
            asked.append(spec)
            return OracleThroughputs.estimate(self, spec, types)

    job = a_job("a")
    assert list(own_estimates(job, Remembers({("mlp", 1, "fast"): 3.0}), ["fast"])) == ["fast"]
    assert asked == [job.spec] and a_cluster(fast=1).accelerator_types == ("fast",)
