"""A tier of objective `auto` has the objective that the text of the policy names; all others keep theirs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidProblem, InvalidRequest
from gavel.mechanism.explaining.forecast import forecast
from gavel.policies import registry
from gavel.policies.tiers.objectives import OBJECTIVES
from gavel.types import Tier
from gavel.types.tier_objectives import AUTO, chosen_by, in_force, not_auto, read_objectives, sentence, written
from tests.builders import a_problem
from tests.policies.instances import a_tree
from tests.simulator.test_simulation import FULL

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
chosen = st.dictionaries(NAMES, st.sampled_from(sorted(OBJECTIVES)), max_size=4)


@given(chosen)
def test_a_text_is_read_back_to_what_it_names(names: dict[str, str]) -> None:
    spec = registry.canonical(f"hierarchical?objectives={written(names)}")
    assert registry.canonical(spec) == spec
    assert chosen_by(spec) == {name: each for name, each in names.items() if each != "fairness"}


@settings(max_examples=200 if FULL else 15)
@given(seed=st.integers(0, 999), objective=st.sampled_from(sorted(OBJECTIVES)))
def test_an_automatic_tier_is_served_as_one_that_has_the_objective_itself(seed: int, objective: str) -> None:
    """Whatever the tree: with every tier automatic and named, answers are those of tiers with these objectives."""
    problem = a_tree(seed, [objective], depth=1, caps=False, jobs=6)
    automatic = replace(problem, tiers=tuple(replace(tier, objective=AUTO) for tier in problem.tiers))
    text = ",".join(f"{tier.name}:{objective}" for tier in problem.tiers)
    policy = registry.load(f"hierarchical?objectives={text}")
    expected, answer = registry.load("hierarchical").allocate(problem), policy.allocate(automatic)
    assert np.array_equal(answer.time_fraction, expected.time_fraction)
    assert forecast(automatic, answer).finish_s == pytest.approx(forecast(problem, expected).finish_s)


def test_without_a_name_it_is_fairness_and_a_tier_with_an_objective_of_its_own_keeps_it() -> None:
    tiers = (Tier(name="gold", objective=AUTO), Tier(name="free", objective="fifo"), Tier(name="lab", objective=AUTO))
    named = in_force(tiers, read_objectives("gold:speed,free:throughput"))
    assert [tier.objective for tier in named] == ["speed", "fifo", "fairness"]
    assert [replace(tier, objective="") for tier in named] == [replace(tier, objective="") for tier in tiers]
    assert not_auto("hierarchical?objectives=gold:speed,free:fifo,gone:fifo", tiers) == {"free": "fifo", "gone": ""}


def test_a_tree_does_not_guess_what_an_automatic_tier_means() -> None:
    """Nobody who reads tiers may overlook it: the tree refuses the word, the policy has replaced it."""
    from gavel.policies.tiers.tree import tree

    problem = a_problem([[1.0]] * 2, [1], tiers=(Tier(name="default", objective=AUTO),))
    with pytest.raises(InvalidProblem, match="is auto; give one of fairness"):
        tree(problem)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gold", "write TIER:OBJECTIVE, as in gold:speed"),
        ("gold:speed,gold:fifo", "names tier gold twice"),
        ("gold:sped", "tier gold cannot have 'sped'; choose one of fairness, .*did you mean speed"),
        ("gold:auto", "cannot have 'auto'"),
    ],
)
def test_a_text_that_means_nothing_is_refused_with_the_fix(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        registry.canonical(f"hierarchical?objectives={text}")


def test_the_sentence_says_by_what_a_tier_shares_and_who_chose_it() -> None:
    gold = Tier(name="gold", objective=AUTO)
    policy = "hierarchical?objectives=gold:speed/backfill=false"
    assert sentence(gold, policy) == (
        "Jobs of gold share by the objective speed: the tier leaves it to the policy in force."
    )
    assert sentence(Tier(name="free", objective="fifo"), policy) == "Jobs of free share by the objective fifo."
    assert sentence(gold, "fifo") == ""
