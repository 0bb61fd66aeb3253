"""An operator's policy decides from the next round on, whatever restarts in between."""

import pytest

from gavel.types import OperationState
from tests.builders import a_cluster
from tests.mechanism.world import World


def policies(world: World) -> list[str]:
    """Of the rounds, oldest first."""
    return [plan.policy for plan in reversed(world.store.rounds())]


def test_a_switch_decides_from_the_next_round_on_and_is_kept_over_a_restart() -> None:
    world = World(policy="equal_share")
    world.submit(10_000)
    world.run_until_s(15.0)
    assert set(policies(world)) == {"equal_share"}
    before = len(policies(world))
    asked = world.ask("policy.switch", "policy", policy="max_min_fairness")
    world.run_until_s(35.0)
    assert world.operation(asked).state is OperationState.DONE
    assert set(policies(world)[before:]) == {"max_min_fairness"}
    world.driver = world.new_driver()
    world.run_until_s(55.0)
    assert policies(world)[-1] == world.store.snapshot().policy == "max_min_fairness"
    assert any(entry.subject == "policy" and entry.by == "op" for entry in world.store.audit())


def test_an_empty_name_goes_back_to_the_policy_of_the_settings() -> None:
    world = World(policy="equal_share")
    world.submit(10_000)
    world.ask("policy.switch", "policy", policy="max_min_fairness")
    world.run_until_s(15.0)
    world.ask("policy.switch", "policy", policy="")
    world.run_until_s(35.0)
    assert policies(world)[0] == "max_min_fairness" and policies(world)[-1] == "equal_share"


def test_a_policy_that_cannot_answer_costs_no_round() -> None:
    world = World(policy="equal_share")
    job = world.submit(200)
    world.ask("policy.switch", "policy", policy="no_such_policy")
    world.run(lambda: world.is_done(job))
    assert all("no_such_policy" in world.store.round(i).solver_outcome for i in range(1, len(policies(world)) + 1))


@pytest.mark.parametrize("body", [{}, {"policy": None}, {"policy": 3}])
def test_what_is_no_name_is_refused(body: dict[str, object]) -> None:
    world = World()
    asked = world.ask("policy.switch", "policy", **body)
    world.driver.tick()
    refused = world.operation(asked)
    assert (refused.state, refused.error_field) == (OperationState.FAILED, "policy")
    assert world.store.snapshot().policy == ""


def test_a_composition_is_followed_from_the_next_round_on_and_over_a_restart() -> None:
    """Its length of a round, planner, backfill and price of moves, each as the round's record has it."""
    world = World(policy="equal_share", planner="lag", price_moves=True)
    world.submit(10_000)
    world.run_until_s(15.0)
    text = "max_min_fairness/backfill=false/planner=published/price_moves=false/round_duration_s=5"
    world.ask("policy.switch", "policy", policy=text)
    world.run_until_s(35.0)
    for _ in range(2):
        record = world.store.round()
        assert record.inputs is not None
        assert (record.plan.policy, record.inputs.policy) == ("max_min_fairness", "max_min_fairness")
        assert (record.plan.duration_s, record.problem.round_duration_s) == (5.0, 5.0)
        assert (record.inputs.planner, record.inputs.switch_cost_s) == ("published", {})
        world.driver = world.new_driver()
        world.run_until_s(world.clock.now_s() + 12.0)
    world.ask("policy.switch", "policy", policy="")
    world.run_until_s(world.clock.now_s() + 12.0)
    record = world.store.round()
    assert record.inputs is not None
    assert (record.plan.policy, record.plan.duration_s, record.inputs.planner) == ("equal_share", 10.0, "lag")


def test_a_composition_without_backfill_leaves_free_workers_until_the_next_round() -> None:
    starts = []
    for text in ("equal_share", "equal_share/backfill=false"):
        world = World(policy="equal_share", cluster=a_cluster(fast=2))
        world.ask("policy.switch", "policy", policy=text)
        world.submit(10_000)
        world.run_until_s(1.0)
        late = world.submit(10_000)
        world.run_until_s(25.0)
        starts.append(world.job(late).started_at_s)
    backfilled_s, without_s = starts
    assert backfilled_s is not None and without_s is not None
    assert backfilled_s < 10.0 <= without_s


@pytest.mark.parametrize("text", ["no_such_policy/backfill=false", "equal_share/speed=3"])
def test_a_composition_that_cannot_be_read_costs_no_round(text: str) -> None:
    world = World(policy="equal_share")
    job = world.submit(200)
    world.ask("policy.switch", "policy", policy=text)
    world.run(lambda: world.is_done(job))
    outcomes = [world.store.round(index).solver_outcome for index in range(1, len(policies(world)) + 1)]
    assert all(text.partition("/")[0 if "no_such" in text else 2] in outcome for outcome in outcomes)
