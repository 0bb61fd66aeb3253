"""The command of operators for the policy: another one from the next round on."""

from dataclasses import replace
from typing import Any

from gavel.errors import InvalidRequest
from gavel.mechanism.commands.autopilot_commands import STEERING, policy_of, setting_of
from gavel.mechanism.tick import Outcome, Tick
from gavel.types import Operation
from gavel.types.autopilot import AutopilotMode


def switch(tick: Tick, command: Operation) -> Outcome:
    """Solve the next round by `policy` of the body, a name with ?parameters; empty: by that of the settings again.

    It may be a composition. The caller checks that there is such a policy: one that cannot be loaded falls back like
    any failed solve. Where the autopilot put compositions in force, it advises from now on: what a person sets stays.
    """
    wanted = command.body.get("policy")
    if not isinstance(wanted, str):
        raise InvalidRequest("policy", "give the name of a policy, or an empty text for that of the settings")
    before: dict[str, Any] = {"policy": policy_of(tick)}
    after: dict[str, Any] = {"policy": wanted}
    setting = setting_of(tick)
    if setting.mode not in STEERING:
        return Outcome(result=after, policy=wanted, before=before, after=after)
    note = f"the autopilot was in mode {setting.mode.value}; it advises from now on, so that this policy stays"
    return Outcome(
        result=after | {"note": note},
        policy=wanted,
        autopilot=replace(setting, mode=AutopilotMode.ADVISE),
        before=before | {"autopilot": setting.mode.value},
        after=after | {"autopilot": AutopilotMode.ADVISE.value, "note": note},
    )
