"""The production driver on a virtual cluster, every throughput hidden from it."""

from typing import Any

import pytest

from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.simulation import SimulatedJob, SimulationResult, simulate
from tests.builders import a_cluster, a_spec

RATES = {("steep", "fast"): 8.0, ("steep", "slow"): 1.0, ("flat", "fast"): 2.0, ("flat", "slow"): 2.0}
THROUGHPUT = {(kind, 1, name): rate for (kind, name), rate in RATES.items()}


def hidden(*, jobs: int = 24, **settings: Any) -> SimulationResult:
    """Jobs of two kinds, alternating; their users state nothing."""
    workload = [
        SimulatedJob(submitted_at_s=20.0 * n, spec=a_spec(kind=kind, total_steps=400, tier="default"))
        for n in range(jobs)
        for kind in (("steep", "flat")[n % 2],)
    ]
    return simulate(
        workload,
        cluster=a_cluster(fast=2, slow=2),
        throughput=THROUGHPUT,
        policy="max_min_fairness",
        round_duration_s=10.0,
        **settings,
    )


@pytest.mark.full
def test_without_a_budget_nothing_is_sent_to_measure() -> None:
    assert hidden(profiling_budget_fraction=0.0).profiling_s == 0 < hidden().profiling_s


@pytest.mark.full
def test_what_is_hidden_costs_little_against_what_is_known() -> None:
    oracle_s = hidden(estimator=OracleThroughputs(THROUGHPUT)).metrics.mean_jct_s
    estimated_s = hidden().metrics.mean_jct_s
    assert oracle_s is not None and estimated_s is not None and estimated_s < 1.05 * oracle_s


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.05])
def test_profiling_stays_within_the_operators_budget(fraction: float) -> None:
    result = hidden(profiling_budget_fraction=fraction, profiling_window_s=3_600.0)
    assert result.profiling_s <= fraction * 3_600.0 * 4
    assert result.metrics.completed == len(result.rows)


def test_a_kind_is_measured_once_for_all_its_jobs() -> None:
    assert hidden().profiling_s <= 10.0 * len(THROUGHPUT)
