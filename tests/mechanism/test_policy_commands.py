"""An operator's policy decides from the next round on, whatever restarts in between."""

import pytest

from gavel.types import OperationState
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
