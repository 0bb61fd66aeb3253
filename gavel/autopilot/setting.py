"""What an operator may set of the autopilot: checked before it is stored, in its one spelling."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gavel.autopilot import goals
from gavel.autopilot.composition import Composition, read, spelling
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.mechanism.commands.autopilot_commands import with_fields
from gavel.types.autopilot import AutopilotSetting

CANDIDATES = (
    "max_min_fairness",
    "shortest_job_first",
    "rank_weighted_speed?length=attained_service",
    "finish_time_fairness",
    "fifo",
)
"""Compositions that are compared with the service's own policy if none is named."""
CANDIDATES_MAX = 16  # a decision simulates each of them


def checked(
    body: Mapping[str, Any], *, current: AutopilotSetting, service: Settings, tiers: Collection[str]
) -> dict[str, Any]:
    """Return the body of the command `autopilot.set`: the fields that are given, each in its one spelling.

    `current`: what is set now. `tiers`: their names. Raise InvalidRequest, which names the field and the fix.
    """
    given = {name: value for name, value in body.items() if value is not None}
    after = with_fields(current, given)
    values: dict[str, Callable[[], Any]] = {
        "mode": lambda: after.mode.value,
        "goal": lambda: _goal(after.goal, tiers),
        "candidates": lambda: [each.text for each in _candidates(after.candidates, service)],
        "epoch_s": lambda: _epoch_s(after.epoch_s, service),
        "pinned": lambda: after.pinned and read(after.pinned, service, "pinned").text,
    }
    return {name: value() for name, value in values.items() if name in given}


def candidates(setting: AutopilotSetting, service: Settings) -> tuple[str, ...]:
    """Return the texts of the candidates, each once, the safe one first; by default the service's and CANDIDATES."""
    texts = setting.candidates or (service.policy, *CANDIDATES)
    return tuple(dict.fromkeys(spelling(text, service) for text in texts))


def _goal(text: str, tiers: Collection[str]) -> str:
    goal = goals.read(text)
    goals.check_tier(goal, tiers)
    return goal.text


def _candidates(texts: tuple[str, ...], service: Settings) -> tuple[Composition, ...]:
    if len(texts) > CANDIDATES_MAX:
        raise InvalidRequest("candidates", f"are {len(texts)}; each is simulated: give at most {CANDIDATES_MAX}")
    each_once = {}
    for index, text in enumerate(texts):
        composition = read(text, service, f"candidates.{index}")
        if ("space_sharing", True) in composition.parts:
            raise InvalidRequest(
                f"candidates.{index}",
                "jobs that share workers cannot be simulated from a live state; leave space_sharing out",
            )
        each_once[composition.text] = composition
    return tuple(each_once.values())


def _epoch_s(epoch_s: float, service: Settings) -> float:
    if epoch_s < service.round_duration_s:
        raise InvalidRequest("epoch_s", f"is {epoch_s:g}; give at least a round, {service.round_duration_s:g} seconds")
    return epoch_s
