"""Made-up elastic jobs: speeds that grow with the size by less and less, kinds that several jobs have in common."""

import numpy as np

from gavel.elastic.problem import SizeProblem
from gavel.elastic.utility import ElasticJobs, utility

SIZES = (1, 2, 4, 8, 16, 32)


def elastic_jobs(seed: int, count: int, *, types: int = 3, sizes: int = 6, kinds: int = 40) -> ElasticJobs:
    """Jobs of `kinds` kinds, some rigid, some with a configuration and some that start."""
    rng = np.random.default_rng(seed)
    power = rng.uniform(0.5, 0.95, (kinds, types, 1))
    speed = rng.lognormal(0.0, 0.7, (kinds, types, 1)) * np.array(SIZES[:sizes]) ** power
    of_kind = rng.integers(kinds, size=count)
    possible = rng.random((count, 1, sizes)) < 0.9
    configuration = np.where(rng.random(count) < 0.5, rng.integers(types * sizes, size=count), -1)
    speeds = speed[of_kind] * possible
    has = (configuration >= 0) & (
        np.take_along_axis(speeds.reshape(count, types * sizes), configuration[:, None], 1)[:, 0] > 0
    )
    return ElasticJobs(
        speed=speeds,
        steps_left=rng.lognormal(8.0, 1.5, count),
        configuration=np.where(has, configuration, -1),
        restart_s=rng.choice([25.0, 50.0, 120.0, 250.0], count),
        weight=np.ones(count),
        is_fixed=has & (rng.random(count) < 0.05),
    )


def size_problem(jobs: ElasticJobs, workers: tuple[int, ...]) -> SizeProblem:
    sizes = np.array(SIZES[: jobs.speed.shape[2]])
    fits = sizes[None, :] <= np.array(workers)[:, None]
    return SizeProblem(utility=utility(jobs) * fits, sizes=sizes, capacity_workers=np.array(workers))
