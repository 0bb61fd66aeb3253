from collections.abc import Sequence

import numpy as np

from gavel.estimator.colocation import Completed
from gavel.estimator.profiling import ProfilingByValue, expected_gain, pairs_worth_trying, worth_profiling
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimate, ThroughputMatrix, ThroughputSource
from gavel.types import AcceleratorType, AllocationProblem, Job, JobSpec
from tests.builders import a_job, a_problem

RATES = {
    "likes_fast": {"t0": (10.0, 0.02), "t1": (1.0, 0.02)},
    "indifferent": {"t0": (4.0, 0.02), "t1": (4.0, 0.02)},
    "unsure": {"t0": (5.0, 0.8), "t1": (4.0, 0.02)},
    "sure": {"t0": (5.0, 0.001), "t1": (4.0, 0.001)},
}


def believed(spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
    return tuple(
        ThroughputEstimate(
            kind=spec.kind,
            scale_factor=spec.scale_factor,
            accelerator_type=name,
            steps_per_s=RATES[spec.kind][name][0],
            relative_error=RATES[spec.kind][name][1],
            source=ThroughputSource.INFERRED,
        )
        for name in types
    )


def matrix(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
    return ThroughputMatrix.of([believed(spec, types) for spec in specs], types)


def worth(jobs: list[Job], problem: AllocationProblem, budget_s: float) -> list[tuple[str, str]]:
    specs = [job.spec for job in jobs]
    return list(worth_profiling(jobs, problem, matrix(specs, problem.accelerator_types), budget_s=budget_s))


def chosen(kinds: list[str], *, budget_s: float = 1000.0, sizes: list[int] | None = None) -> list[tuple[str, str]]:
    sizes = sizes or [1] * len(kinds)
    jobs = [
        a_job(f"j{i}", spec={"kind": kind, "scale_factor": size})
        for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]
    problem = a_problem([[RATES[kind][name][0] for name in ("t0", "t1")] for kind in kinds], [4, 4], scale_factor=sizes)
    return worth(jobs, problem, budget_s)


def test_what_may_change_the_allocation_is_measured_first() -> None:
    assert chosen(["likes_fast", "indifferent", "unsure", "sure"])[0] == ("j2", "t0")


def test_what_is_known_well_enough_is_not_measured() -> None:
    assert all(job != "j3" for job, _ in chosen(["likes_fast", "indifferent", "unsure", "sure"]))


def test_one_job_of_a_kind_measures_for_all() -> None:
    assert [pair for pair in chosen(["unsure", "unsure", "likes_fast"]) if pair[1] == "t0"][:1] == [("j0", "t0")]
    assert ("j1", "t0") not in chosen(["unsure", "unsure", "likes_fast"])


def test_the_budget_is_kept_in_accelerator_seconds() -> None:
    assert chosen(["unsure", "likes_fast"], budget_s=9.9) == []
    assert len(chosen(["unsure", "indifferent", "likes_fast"], budget_s=10.0)) <= 1
    assert all(job != "j0" for job, _ in chosen(["unsure", "likes_fast"], budget_s=30.0, sizes=[4, 1]))


def test_a_job_is_sent_to_a_type_once() -> None:
    been = a_job("j0", spec={"kind": "unsure"}, rounds_received={"t0": 1})
    problem = a_problem([[5.0, 4.0]], [4, 4])
    assert all(name != "t0" for _, name in worth([been], problem, 1000.0))


def test_where_there_is_one_type_nothing_is_to_be_decided() -> None:
    assert worth([a_job("j0", spec={"kind": "unsure"})], a_problem([[5.0]], [4]), 99) == []


class Believing(ReconciledThroughputs):
    """Learns nothing; believes RATES."""

    def estimate(self, spec: JobSpec, types: Sequence[AcceleratorType]) -> tuple[ThroughputEstimate, ...]:
        return believed(spec, types)

    def matrix(self, specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        return matrix(specs, types)


def rounds_of_choices(*, sent: bool, rounds: int = 40, fraction: float = 0.02) -> list[int]:
    """How many gangs are to measure in each round of 10 s on 8 workers; their jobs then end, or wait on unsent."""
    choice = ProfilingByValue(fraction, window_s=100.0)
    counts = []
    for index in range(rounds):
        jobs = [a_job(f"{index if sent else 0}-{kind}", spec={"kind": kind}) for kind in ("unsure", "likes_fast")]
        problem = a_problem([[5.0, 4.0], [10.0, 1.0]], [4, 4], now_s=10.0 * index)
        counts.append(len(choice(jobs, problem, Believing())))
    return counts


def test_the_budget_holds_over_any_window() -> None:
    counts = rounds_of_choices(sent=True)
    assert sum(counts) > 0
    assert all(sum(counts[start : start + 10]) * 10 <= 0.02 * 100 * 8 for start in range(30))


def test_what_was_not_sent_is_not_charged() -> None:
    assert sum(rounds_of_choices(sent=False)) > 2 * sum(rounds_of_choices(sent=True))


def test_pairs_that_may_or_may_not_pay_are_tried_first() -> None:
    rate = np.array([[[0.9, 0.5], [0.52, 0.1]]])
    deviation = np.full((1, 2, 2), 0.05)
    estimates = Completed(rate=rate, deviation=deviation, weights=np.eye(2), novelty=np.zeros(2))
    untried = np.ones((1, 2, 2), dtype=bool)
    assert pairs_worth_trying(estimates, untried, most=5)[0] == (0, 0, 1)
    assert pairs_worth_trying(estimates, untried, most=0) == ()
    untried[0, 0, 1] = False
    assert (0, 0, 1) not in pairs_worth_trying(estimates, untried, most=5)


def test_the_expected_gain_grows_with_doubt_and_falls_with_distance() -> None:
    at = expected_gain(np.array([0.0, 0.0, 1.0, 9.0]), np.zeros(4), np.array([1.0, 0.1, 1.0, 1.0]))
    assert at[0] > at[1] and at[0] > at[2] > at[3] and (at >= 0).all()
