"""No job falls further behind its isolated share than docs/policies.md and docs/tiers.md say: streams searched for."""

import os

import pytest
from hypothesis import Phase, given, settings, target
from hypothesis import strategies as st

from benchmarks.late_jobs import KINDS, POLICIES, Arrival, most_behind, worst
from gavel.policies import registry

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
arrivals = st.builds(
    Arrival,
    at_s=st.integers(0, 20),
    steps=st.integers(1, 90),
    kind=st.integers(0, len(KINDS) - 1),
    user=st.integers(0, 2),
)
ROUNDING = 1e-3


@pytest.mark.parametrize(("name", "users"), POLICIES)
@settings(max_examples=300 if IS_FULL else 4, deadline=None, phases=[Phase.generate, Phase.target])
@given(drawn=st.lists(arrivals, min_size=2, max_size=12))
def test_no_stream_is_found_in_which_a_job_is_further_behind_than_the_bound(
    name: str, users: int, drawn: list[Arrival]
) -> None:
    stream = tuple(each._replace(user=each.user % users) for each in drawn)
    part = most_behind(stream, registry.load(name))
    target(part)
    assert part <= 1 + ROUNDING


def test_the_search_finds_more_than_the_stream_that_it_begins_with() -> None:
    """And what it measures can be over the bound: without late jobs a long one waits while short ones come."""
    policy = registry.load("rank_weighted_speed")
    long, short = Arrival(0, 60, 1, 0), [Arrival(2 * index, 5, 1, 0) for index in range(30)]
    assert most_behind((long, *short), policy) > 0.5
    assert most_behind((long, *short), registry.load("shortest_job_first")) > 1
    assert worst(policy, 1, 4, seed=1)[0] >= worst(policy, 1, 1, seed=1)[0]
