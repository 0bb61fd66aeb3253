"""The commands for the autopilot: what an operator sets of it, and the switches that it decides."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from gavel.errors import Conflict, InvalidRequest
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation
from gavel.types.autopilot import EPOCH_LEAST_S, EPOCH_MOST_S, AutopilotMode, AutopilotSetting

STEERING = (AutopilotMode.AUTO, AutopilotMode.PIN)  # modes in which the autopilot puts a composition in force


def setting_of(tick: Tick) -> AutopilotSetting:
    """Return what is set of the autopilot, with what earlier commands of this tick have set."""
    return tick.snapshot.autopilot if tick.autopilot is None else tick.autopilot


def policy_of(tick: Tick) -> str:
    """Return the policy that is set, with what earlier commands of this tick have set; empty: that of the settings."""
    return tick.snapshot.policy if tick.policy is None else tick.policy


def write(tick: Tick, command: Operation) -> Outcome:
    """Set the fields of the body: mode, goal, candidates, epoch_s, pinned. Mode `pin` puts `pinned` in force at once.

    The caller checks goal and compositions (gavel/autopilot/setting.py): one that cannot be loaded falls back like any
    failed solve.
    """
    before = setting_of(tick)
    after = with_fields(before, command.body)
    is_pin = after.mode is AutopilotMode.PIN
    policy = after.pinned if is_pin and after.pinned != policy_of(tick) else None
    return Outcome(
        result=asdict(after),
        autopilot=after,
        policy=policy,
        before=asdict(before) | ({} if policy is None else {"policy": policy_of(tick)}),
        after=asdict(after) | ({} if policy is None else {"policy": policy}),
    )


def switch(tick: Tick, command: Operation) -> Outcome:
    """Use the composition `policy` of the body from the next round on, as `decision` of the autopilot says.

    Raises Conflict once the mode is not `auto` any more: then the decision is advice.
    """
    mode = setting_of(tick).mode
    if mode is not AutopilotMode.AUTO:
        raise Conflict(f"the mode of the autopilot is {mode.value} by now; it follows its decisions in mode auto only")
    policy, reason = str(command.body.get("policy", "")), str(command.body.get("reason", ""))
    return Outcome(
        result={"policy": policy},
        policy=policy,
        before={"policy": policy_of(tick)},
        after={"policy": policy, "decision": command.body.get("decision"), "reason": reason},
    )


def with_fields(before: AutopilotSetting, body: Mapping[str, Any]) -> AutopilotSetting:
    """Return the setting with the fields of the body; those that are left out, or null, stay. Raise InvalidRequest."""
    given = {name: value for name, value in body.items() if value is not None}
    for name in given:
        if name not in _READ:
            raise InvalidRequest(name, f"the autopilot has no such field; set {', '.join(_READ)}")
    after = replace(before, **{name: _READ[name](name, value) for name, value in given.items()})
    if after.mode is AutopilotMode.PIN and not after.pinned:
        raise InvalidRequest("pinned", "mode pin needs the composition to keep; give it, as POLICY/PART=VALUE")
    return after


def _mode(name: str, value: Any) -> AutopilotMode:
    choices = [each.value for each in AutopilotMode]
    if value not in choices:
        raise InvalidRequest(name, f"there is no mode {value!r}; choose one of {', '.join(choices)}")
    return AutopilotMode(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(name, f"is {value!r}; give a text")
    return value


def _goal(name: str, value: Any) -> str:
    if not _text(name, value):
        raise InvalidRequest(name, "is empty; name what to make small, as mean_jct or mean_jct=2,money=1")
    return str(value)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidRequest(name, f"is {value!r}; give a list of compositions, the safe one first")
    return tuple(_text(f"{name}.{index}", each) for index, each in enumerate(value))


def _epoch_s(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not EPOCH_LEAST_S <= value <= EPOCH_MOST_S:
        raise InvalidRequest(name, f"is {value!r}; give {EPOCH_LEAST_S:g} to {EPOCH_MOST_S:g} seconds")
    return float(value)


_READ: Mapping[str, Callable[[str, Any], Any]] = {
    "mode": _mode,
    "goal": _goal,
    "candidates": _texts,
    "epoch_s": _epoch_s,
    "pinned": _text,
}
