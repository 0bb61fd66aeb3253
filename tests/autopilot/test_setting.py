"""What an operator sets of the autopilot is checked before it is stored, and stored in its one spelling."""

from pathlib import Path
from typing import Any

import pytest

from gavel.autopilot.setting import CANDIDATES, candidates, checked
from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.types.autopilot import AutopilotSetting

SERVICE = Settings(round_duration_s=60.0, policy="equal_share")


def test_fields_that_are_given_come_back_in_one_spelling() -> None:
    body = {
        "goal": " money=1 ,mean_jct=2",
        "candidates": [
            "max_min_fairness?water_filling=false/round_duration_s=30.0",
            "fifo/backfill=off",
            "fifo/backfill=0",
        ],
        "pinned": None,
    }
    asked = checked(body, current=AutopilotSetting(), service=SERVICE, tiers=("gold", "free"))
    assert asked["goal"] == "mean_jct=2,money"
    assert asked["candidates"][1:] == ["fifo/backfill=false"]
    assert asked.keys() == {"goal", "candidates"}
    assert checked(asked, current=AutopilotSetting(), service=SERVICE, tiers=("gold", "free")) == asked


@pytest.mark.parametrize(
    ("body", "field", "fix"),
    [
        ({"goal": "mean_jtc"}, "goal", "did you mean mean_jct?"),
        ({"goal": "mean_jct=much"}, "goal", "give a positive number"),
        ({"goal": "mean_jct=nan"}, "goal", "give a positive number"),
        ({"goal": "longest_wait_s<=60"}, "goal", "name what to make small"),
        ({"candidates": ["fifo", "fifi"]}, "candidates.1", "did you mean fifo?"),
        ({"candidates": ["fifo/speed=3"]}, "candidates.0", "has no part"),
        ({"candidates": ["fifo/round_duration_s=1"]}, "candidates.0", "give 15 to 240"),
        ({"candidates": ["fifo/space_sharing=true"]}, "candidates.0", "leave space_sharing out"),
        ({"candidates": [f"fifo/round_duration_s={each}" for each in range(20, 40)]}, "candidates", "at most 16"),
        ({"pinned": "fifi"}, "pinned", "did you mean fifo?"),
        ({"mode": "pin"}, "pinned", "give it"),
        ({"epoch_s": 30}, "epoch_s", "at least a round, 60 seconds"),
    ],
)
def test_a_mistake_is_refused_with_its_field_and_the_fix(body: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked(body, current=AutopilotSetting(), service=SERVICE, tiers=("gold", "free"))
    assert refused.value.field == field and fix in refused.value.message


def test_a_pinned_composition_that_is_set_already_is_enough() -> None:
    assert checked(
        {"mode": "pin"}, current=AutopilotSetting(pinned="fifo"), service=SERVICE, tiers=("gold", "free")
    ) == {"mode": "pin"}


def test_without_candidates_the_policy_of_the_settings_is_the_safe_one() -> None:
    own = candidates(AutopilotSetting(), SERVICE)
    assert own == ("equal_share", *CANDIDATES)
    assert candidates(AutopilotSetting(candidates=("fifo", "fifo")), SERVICE) == ("fifo",)


def test_a_candidate_whose_policy_file_is_gone_is_still_named(tmp_path: Path) -> None:
    service = SERVICE.model_copy(update={"policy_dir": tmp_path})
    assert candidates(AutopilotSetting(candidates=("fifo", "mine?x=1")), service) == ("fifo", "mine?x=1")


def test_a_goal_may_be_for_a_tier_that_there_is() -> None:
    def goal(text: str) -> object:
        return checked({"goal": text}, current=AutopilotSetting(), service=SERVICE, tiers=("gold", "free"))["goal"]

    assert goal(" tier=gold, mean_jct") == "mean_jct,tier=gold"
    with pytest.raises(InvalidRequest, match=r"there is no tier 'golf'; choose of free, gold; did you mean gold\?"):
        goal("mean_jct,tier=golf")
