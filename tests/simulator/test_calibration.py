"""Predictions of a real driver on a virtual cluster, compared with what then happened."""

import random

import pytest

from gavel.types import JobState, Prediction
from tests.mechanism.world import World

STEPS_PER_S = 2 * 10.0 + 2 * 5.0  # of the world's cluster
MEAN_STEPS = 665.0  # of exp(normal(6, 1))


def a_run(jobs: int, *, policy: str = "hierarchical", load: float = 0.8, seed: int = 1) -> list[Prediction]:
    """Jobs of lognormal lengths that arrive at random, at a part of what the cluster can do; predictions as made."""
    dice, world, ids, at_s = random.Random(seed), World(policy=policy), list[str](), 0.0
    for _ in range(jobs):
        ids.append(world.submit(total_steps=max(20, int(dice.lognormvariate(6, 1)))))
        at_s += dice.expovariate(load * STEPS_PER_S / MEAN_STEPS)
        world.run(lambda at_s=at_s: world.clock.now_s() >= at_s)
    world.run(lambda: all(world.store.job(job_id).state is JobState.COMPLETED for job_id in ids))
    return sorted(world.store.predictions(limit=1000), key=lambda each: each.made_at_s)


def finishes_inside(predictions: list[Prediction]) -> float:
    return sum(each.finish.holds(each.finished_at_s or 0.0) for each in predictions) / len(predictions)


def starts_inside(predictions: list[Prediction]) -> float:
    starts = [each.start.holds(each.started_at_s or 0.0) for each in predictions if each.start]
    return sum(starts) / len(starts)


@pytest.mark.full
def test_of_the_jobs_told_when_they_end_about_nine_in_ten_do() -> None:
    """The first ones by the wide interval, the others by the one that was learned from them."""
    predictions = a_run(100)
    assert len(predictions) >= 95
    assert finishes_inside(predictions[:40]) >= 0.7
    assert 0.8 <= finishes_inside(predictions[50:]) <= 1.0
    assert starts_inside(predictions) >= 0.85


@pytest.mark.full
@pytest.mark.parametrize("policy", ["hierarchical", "fifo", "max_min_fairness", "shortest_job_first"])
@pytest.mark.parametrize("load", [0.5, 0.9])
def test_that_holds_for_other_policies_and_loads(policy: str, load: float) -> None:
    predictions = a_run(250, policy=policy, load=load, seed=7)
    assert finishes_inside(predictions[60:]) >= 0.82
    assert starts_inside(predictions) >= 0.85
