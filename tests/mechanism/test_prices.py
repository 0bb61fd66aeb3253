"""An operator says what the types cost; the charge of a tier, the store and the problem of a round know it."""

import pytest
from pydantic import ValidationError

from gavel.config import Settings
from gavel.types import JobState
from tests.builders import a_cluster
from tests.mechanism.world import World


def test_usage_is_charged_by_the_prices_of_types() -> None:
    world = World(cluster=a_cluster(fast=1), prices_usd_per_hour={"fast": 3600.0, "unknown": 7.0})
    job = world.submit(200)
    world.run(lambda: world.is_done(job))
    assert world.job(job).state is JobState.COMPLETED
    (usage,) = world.store.usage("1970-01")
    assert usage.cost_usd == pytest.approx(3600.0 * usage.accelerator_hours) and usage.accelerator_hours > 0
    assert world.store.cluster().mean_price_usd_per_hour() == {"fast": 3600.0}


def test_a_policy_sees_the_prices_and_a_type_without_one_keeps_its_own() -> None:
    world = World(prices_usd_per_hour={"fast": 2.5})
    world.submit(1000)
    world.run(lambda: bool(world.store.rounds()))
    problem = world.store.round().problem
    prices = dict(zip(problem.accelerator_types, problem.price_usd_per_hour.tolist(), strict=True))
    assert prices == {"fast": 2.5, "slow": 1.0}


def test_prices_come_from_the_environment_and_are_no_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAVEL_PRICES_USD_PER_HOUR", '{"V100-SXM2": 2.48}')
    assert Settings().prices_usd_per_hour == {"V100-SXM2": 2.48}
    for price in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValidationError, match="prices_usd_per_hour"):
            Settings(prices_usd_per_hour={"a": price})
