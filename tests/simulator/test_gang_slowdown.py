"""Large gangs of a busy cluster are not held back for many jobs as long as themselves."""

import random
from collections.abc import Iterator

import pytest

from gavel.config import Settings
from gavel.simulator.figures import slowdown_by_size
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from tests.simulator.test_lean import RUNNER, a_cluster_of_nodes, a_trace_job
from workloads.traces.job import TraceJob

SIZES, OFTEN = (1, 2, 4, 8), (70, 10, 15, 5)
MEAN_WORKER_S = 1.9 * 21.5 * 60.0  # of a job: workers, and the mean of the lengths below


def a_stream(jobs: int, *, load: float, workers: int, seed: int) -> Iterator[TraceJob]:
    """Jobs of a minute to 100 minutes, log-uniformly, that arrive at random and keep `load` of the workers busy."""
    draw, at_s = random.Random(seed), 0.0
    for index in range(jobs):
        size = draw.choices(SIZES, OFTEN)[0]
        yield a_trace_job(index, "flat", int(60 * 10 ** draw.uniform(0, 2)), at_s, size)
        at_s += draw.expovariate(load * workers / MEAN_WORKER_S)


@pytest.mark.small("rank_weighted_speed")
@pytest.mark.parametrize("policy", ["rank_weighted_speed", "hierarchical"])
def test_the_median_slowdown_of_every_size_of_gang_is_below_one_and_a_half(policy: str) -> None:
    """A worker of a gang of 8 of 16 counted a third of that of a job of one, so that the median gang took 1.6 times."""
    scenario = Scenario(
        cluster=a_cluster_of_nodes(fast=16),
        throughput={("flat", size, "fast"): 1.0 for size in SIZES},
        settings=Settings(policy=policy, round_duration_s=60.0),
        measure=(50, 250),
    )
    jobs = a_stream(300, load=0.924, workers=16, seed=0)
    medians = slowdown_by_size(simulate(jobs, scenario, runner=RUNNER).rows, 0.5)
    assert set(medians) == set(SIZES) and max(medians.values()) < 1.5, medians
