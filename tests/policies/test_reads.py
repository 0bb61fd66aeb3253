"""An answer depends on the fields that its policy says it reads, and on no others; so it stands while these stand."""

from dataclasses import fields, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidRequest
from gavel.mechanism.planning.problem import Solved
from gavel.policies import registry
from gavel.policies._reads import ALWAYS, fields_read
from gavel.policies.conformance import a_small_problem, changed, check_reads
from gavel.policies.equal_share import EqualShare
from gavel.policies.fifo import Fifo
from gavel.policies.inline import InlineRunner
from gavel.types import Allocation, AllocationProblem, Tier

VARIANTS = [
    f"{info.name}?{parameter.name}={choice}"
    for info in registry.available()
    for parameter in info.parameters
    for choice in parameter.choices
    if choice != parameter.default
]


@pytest.mark.parametrize("spec", VARIANTS)
def test_every_variant_of_a_policy_depends_on_what_it_reads(spec: str) -> None:
    check_reads(registry.load(spec), a_small_problem())


def test_every_policy_of_this_project_says_what_it_reads() -> None:
    """None would be right, and slow: it is asked again in every round."""
    problem = a_small_problem()
    silent = [info.name for info in registry.available() if fields_read(registry.load(info.name), problem) is None]
    assert silent == []


@settings(max_examples=12)
@given(
    objectives=st.lists(st.sampled_from(sorted(registry.TIER_OBJECTIVES)), min_size=3, max_size=3),
    seed=st.integers(0, 99),
    deadlines=st.booleans(),
)
def test_what_tiers_read_depends_on_their_objectives(objectives: list[str], seed: int, deadlines: bool) -> None:
    tiers = tuple(Tier(name=f"tier-{place}", objective=each) for place, each in enumerate(objectives))
    problem = a_small_problem(seed, jobs=8)
    problem = replace(problem, tiers=tiers, tier_of_job=np.arange(8, dtype=np.int64) % 2)  # nobody is in the third
    check_reads(registry.load("hierarchical"), changed(problem, "deadline_at_s") if deadlines else problem)


class Forgetful(Fifo):
    """Serves the heaviest first, and does not say so."""

    def order(self, problem: AllocationProblem) -> np.ndarray:
        return np.argsort(-problem.weight, kind="stable")


def test_a_policy_that_reads_more_than_it_says_is_found() -> None:
    with pytest.raises(AssertionError, match="another weight gives another answer"):
        for seed in range(5):
            check_reads(Forgetful(), a_small_problem(seed))


class Silent:
    """An operator's own policy that does not say what it reads."""

    name = "silent"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        return EqualShare().allocate(problem)


class Misspelt(EqualShare):
    reads: ClassVar[frozenset[str]] = frozenset({"wieght"})


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="reads 'wieght', which is no field of a problem"):
        InlineRunner(lambda _: Misspelt()).allocate("misspelt", a_small_problem(), 1.0)


def test_a_policy_that_says_nothing_is_asked_again_when_anything_has_changed() -> None:
    problem = a_small_problem()
    answer = InlineRunner(lambda _: Silent()).allocate("silent", problem, 1.0)
    solved = Solved(problem=problem, allocation=answer)
    assert answer.reads is None and solved.serves(problem, solve_on="change", interval_s=0.0)
    names = {each.name for each in fields(problem)} - ALWAYS - {"warm_start"}
    assert not [name for name in names if solved.serves(changed(problem, name), solve_on="change", interval_s=0.0)]


@pytest.mark.parametrize(
    ("spec", "again"), [("max_min_fairness", ["weight"]), ("shortest_job_first", ["steps_remaining"])]
)
def test_an_answer_stands_until_something_that_its_policy_reads_has_changed(spec: str, again: list[str]) -> None:
    problem = a_small_problem()
    solved = Solved(problem=problem, allocation=InlineRunner().allocate(spec, problem, 1.0))
    names = sorted({each.name for each in fields(problem)} - ALWAYS - {"warm_start"})
    assert again == [
        name for name in names if not solved.serves(changed(problem, name), solve_on="change", interval_s=0.0)
    ]
    in_events = [name for name in names if not solved.serves(changed(problem, name), solve_on="event", interval_s=0.0)]
    assert in_events == [name for name in again if name == "weight"]
