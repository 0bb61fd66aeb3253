"""Tiers form a tree: whatever is asked of it, exactly what leaves a tree with feasible guarantees is accepted."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest, NotFound, StaleVersion
from gavel.store.rules import next_tier
from gavel.types import Tier
from tests.refusals import refused

NAMES = st.sampled_from("abcd")
TIERS = st.builds(Tier, name=NAMES, parent=NAMES | st.none(), guarantee=st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0]))
TREE = {
    "top": Tier(name="top", guarantee=0.5),
    "left": Tier(name="left", parent="top", guarantee=0.3, version=4),
    "leaf": Tier(name="leaf", parent="left", guarantee=0.2),
}


def is_sound(tiers: Mapping[str, Tier]) -> bool:
    """Each tier leads to one without a parent, and no tier gives away more than it has, within 1e-9."""
    return all(leads_to_the_top(name, tiers) for name in tiers) and all(
        sum(round(each.guarantee * 10) for each in tiers.values() if each.parent == parent) <= whole
        for parent, whole in [(None, 10), *((name, round(tier.guarantee * 10)) for name, tier in tiers.items())]
    )


def leads_to_the_top(name: str, tiers: Mapping[str, Tier]) -> bool:
    at: str | None = name
    for _ in tiers:
        at = tiers[at].parent if at is not None and at in tiers else at
    return at is None


@settings(max_examples=100)
@given(st.lists(TIERS, max_size=25))
def test_what_is_accepted_is_what_leaves_a_tree_in_which_no_tier_gives_more_than_it_has(asked: list[Tier]) -> None:
    """In tenths, so that sums of floats such as 0.1 + 0.2 + 0.7 are as exact here as they have to be there."""
    stored: dict[str, Tier] = {}
    for tier in asked:
        version = stored[tier.name].version if tier.name in stored else None
        after = stored | {tier.name: tier}
        if is_sound(after):
            number = next_tier(tier, stored, version)
            assert number == (version or 0) + 1
            stored[tier.name] = replace(tier, version=number)
        else:
            with pytest.raises((NotFound, InvalidRequest)):
                next_tier(tier, stored, version)


@pytest.mark.parametrize(("name", "current"), [("left", 4), ("other", None)])
def test_a_tier_is_replaced_only_at_the_version_that_was_read(name: str, current: int | None) -> None:
    tier = Tier(name=name, parent="top", guarantee=0.2 if name == "left" else 0.0)
    assert next_tier(tier, TREE, current) == (current or 0) + 1
    with refused(StaleVersion, f"tier {name} is at version {current}, not 3: read it again"):
        next_tier(tier, TREE, 3)


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        (replace(TREE["top"], parent="leaf"), "parent: tier top would be its own ancestor; choose another parent"),
        (
            replace(TREE["leaf"], guarantee=0.4),
            "guarantee: siblings would be guaranteed 0.4 of 0.3, what tier left has; lower one",
        ),
        (Tier(name="new", guarantee=0.6), "guarantee: siblings would be guaranteed 1.1 of 1, all there is; lower one"),
        (replace(TREE["top"], guarantee=0.2), "guarantee: is 0.2, and tiers below are guaranteed 0.3; lower theirs"),
    ],
    ids=["its own ancestor", "more than the parent", "more than all", "less than below"],
)
def test_a_change_that_does_not_fit_is_refused_with_the_figures(tier: Tier, sentence: str) -> None:
    with refused(InvalidRequest, sentence):
        next_tier(tier, TREE, TREE[tier.name].version if tier.name in TREE else None)


def test_a_parent_is_created_first() -> None:
    with refused(NotFound, "tier new names the parent none, which does not exist; create it first"):
        next_tier(Tier(name="new", parent="none"), TREE, None)
