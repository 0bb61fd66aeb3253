"""What an operator sets of the autopilot, and what it switches to, is in force from the next round on."""

from typing import Any

import pytest

from gavel.types import OperationState
from gavel.types.autopilot import AutopilotMode, AutopilotSetting
from tests.mechanism.world import World


def setting(world: World) -> AutopilotSetting:
    return world.store.snapshot().autopilot


def test_fields_that_are_left_out_stay_and_the_audit_log_has_before_and_after() -> None:
    world = World()
    world.ask("autopilot.set", "autopilot", goal="mean_slowdown", epoch_s=600)
    world.driver.tick()
    world.ask("autopilot.set", "autopilot", mode="auto", candidates=["fifo"], goal=None)
    world.driver.tick()
    wanted = AutopilotSetting(mode=AutopilotMode.AUTO, goal="mean_slowdown", candidates=("fifo",), epoch_s=600.0)
    assert setting(world) == wanted
    entry = world.store.audit(subject="autopilot")[0]
    assert entry.before is not None
    assert (entry.by, entry.before["mode"], entry.after["mode"]) == ("op", "advise", "auto")


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ({"mode": "automatic"}, "mode", "choose one of off, advise, auto, pin"),
        ({"mode": "pin"}, "pinned", "give it"),
        ({"epoch_s": 0.5}, "epoch_s", "1 to 2.592e+06 seconds"),
        ({"epoch_s": float("nan")}, "epoch_s", "seconds"),
        ({"epoch_s": "8 h"}, "epoch_s", "seconds"),
        ({"goal": ""}, "goal", "mean_jct"),
        ({"goal": 3}, "goal", "give a text"),
        ({"candidates": "fifo"}, "candidates", "give a list"),
        ({"candidates": ["fifo", 3]}, "candidates.1", "give a text"),
        ({"weights": 3}, "weights", "set mode, goal"),
    ],
)
def test_what_cannot_be_set_is_refused_with_its_field_and_the_fix(body: dict[str, Any], field: str, fix: str) -> None:
    world = World()
    asked = world.ask("autopilot.set", "autopilot", **body)
    world.driver.tick()
    refused = world.operation(asked)
    assert (refused.state, refused.error_field) == (OperationState.FAILED, field) and fix in refused.error
    assert setting(world) == AutopilotSetting()


def test_mode_pin_puts_its_composition_in_force() -> None:
    world = World(policy="equal_share")
    world.ask("autopilot.set", "autopilot", mode="pin", pinned="fifo")
    world.driver.tick()
    assert world.store.snapshot().policy == "fifo"
    assert world.store.audit(subject="autopilot")[0].after["policy"] == "fifo"


def test_it_switches_in_mode_auto_only() -> None:
    """1 refused in mode advise, 2 done in mode auto, with the reason in the audit log."""
    world = World(policy="equal_share")
    early = world.ask("autopilot.switch", "policy", policy="fifo", decision=0, reason="it gains 9 %")
    world.ask("autopilot.set", "autopilot", mode="auto")
    late = world.ask("autopilot.switch", "policy", policy="fifo", decision=1, reason="it gains 9 %")
    world.driver.tick()
    assert world.operation(early).error_kind == "Conflict" and "advise" in world.operation(early).error
    assert world.operation(late).state is OperationState.DONE and world.store.snapshot().policy == "fifo"
    assert world.store.audit(subject="policy")[0].after == {
        "command": "autopilot.switch",
        "policy": "fifo",
        "decision": 1,
        "reason": "it gains 9 %",
    }


@pytest.mark.parametrize("mode", [{"mode": "auto"}, {"mode": "pin", "pinned": "fifo"}])
def test_a_policy_that_a_person_sets_stays(mode: dict[str, str]) -> None:
    """The autopilot then advises; who asked and the audit log are told."""
    world = World(policy="equal_share")
    world.ask("autopilot.set", "autopilot", **mode)
    asked = world.ask("policy.switch", "policy", policy="max_min_fairness")
    stale = world.ask("autopilot.switch", "policy", policy="fifo")
    world.driver.tick()
    assert setting(world).mode is AutopilotMode.ADVISE and world.store.snapshot().policy == "max_min_fairness"
    assert "advises from now on" in world.operation(asked).result["note"]
    assert world.operation(stale).state is OperationState.FAILED
    entry = world.store.audit(subject="policy")[0]
    assert entry.before is not None and entry.before["autopilot"] == mode["mode"]
    assert entry.after["autopilot"] == "advise"
