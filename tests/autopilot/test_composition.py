"""A composition is named by one string, which is read back to the same composition."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.autopilot.composition import PARTS, Composition, read
from gavel.config import Settings
from gavel.errors import InvalidRequest
from tests.simulator.test_simulation import FULL

SERVICE = Settings(round_duration_s=360.0)
VALUES = {
    "backfill": st.booleans(),
    "planner": st.sampled_from(["lag", "published", "published_shuffled"]),
    "price_moves": st.booleans(),
    "round_duration_s": st.floats(90, 1440),
    "space_sharing": st.booleans(),
}
compositions = st.builds(
    lambda policy, parts: Composition(policy=policy, parts=tuple(sorted(parts.items()))),
    st.sampled_from(["fifo", "max_min_fairness?water_filling=false", "hierarchical"]),
    st.fixed_dictionaries({}, optional=VALUES),
)


@settings(max_examples=500 if FULL else 40)
@given(composition=compositions)
def test_the_text_of_a_composition_is_read_back_to_it(composition: Composition) -> None:
    again = read(composition.text, SERVICE)
    assert again == composition and again.text == composition.text


def test_every_part_is_a_setting_of_the_service_and_has_values_that_are_tested() -> None:
    assert set(PARTS) == set(VALUES) and set(PARTS) <= set(Settings.model_fields)


def test_two_ways_to_write_one_composition_have_one_text() -> None:
    one = read("max_min_fairness?water_filling=true&agnostic=false/round_duration_s=400.0/backfill=off", SERVICE)
    assert one.text == "max_min_fairness/backfill=false/round_duration_s=400"
    assert read(one.text, SERVICE) == one


def test_settings_are_the_service_s_but_for_what_the_composition_names() -> None:
    made = read("fifo/planner=published", SERVICE).settings(SERVICE)
    assert made == SERVICE.model_copy(update={"policy": "fifo", "planner": "published"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fifo/plannr=lag", r"has no part 'plannr=lag'; write backfill=VALUE, .*; did you mean planner\?"),
        ("fifo/backfill", "has no part 'backfill'"),
        ("fifo/planner=fair", "planner=fair: input should be 'lag', 'published' or 'published_shuffled'"),
        ("fifo/backfill=maybe", "backfill=maybe: input should be a valid boolean"),
        ("fifo/backfill=true/backfill=false", "sets backfill twice"),
        ("fifo/round_duration_s=10", "the service's rounds take 360 s; give 90 to 1440"),
        ("fifo/round_duration_s=nan", "round_duration_s=nan"),
        ("fif0", "there is no 'fif0'.*did you mean fifo"),
        ("", "there is no ''"),
    ],
)
def test_what_is_no_composition_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(text, SERVICE)
