"""Gangs that no round may preempt hold what their tier allows, and leave other tiers what these are guaranteed."""

import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.types import JobState, Reason, Tier
from tests.builders import a_cluster
from tests.mechanism.test_admission_holds import put_tier
from tests.mechanism.world import World

PROFILE = settings(max_examples=1000 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 60, deadline=None)


def running(world: World, *ids: str) -> list[str]:
    return [job_id for job_id in ids if world.job(job_id).state is JobState.LEASED]


def a_world(*tiers: Tier, fast: int = 4) -> World:
    world = World(cluster=a_cluster(fast=fast))
    for tier in tiers:
        put_tier(world, tier)
    return world


def test_a_tier_says_how_many_workers_its_jobs_may_keep_for_themselves() -> None:
    """The others of these jobs wait with the figures, and start as soon as one of the first ends."""
    world = a_world(Tier(name="default", non_preemptible_workers=2))
    first, second, third = (world.submit(steps, preemptible=False) for steps in (600, 9000, 9000))
    world.run(lambda: len(running(world, first, second)) == 2)
    world.run_until_s(world.clock.now_s() + 25)
    waits = world.job(third)
    assert waits.state is JobState.QUEUED and waits.reason is Reason.NON_PREEMPTIBLE_LIMIT
    assert "2 of the 2 workers" in waits.message and "tier default" in waits.message
    world.run(lambda: running(world, third) == [third])
    assert world.is_done(first) and world.job(second).preemptions == 0


def test_jobs_that_may_be_preempted_use_what_the_limit_leaves() -> None:
    world = a_world(Tier(name="default", non_preemptible_workers=1))
    stays = [world.submit(9000, preemptible=False) for _ in range(2)]
    others = [world.submit(9000) for _ in range(3)]
    world.run(lambda: len(running(world, *others)) == 3)
    world.run_until_s(world.clock.now_s() + 25)
    assert len(running(world, *stays)) == 1 and len(running(world, *others)) == 3


def test_a_limit_counts_for_the_tiers_below() -> None:
    world = a_world(
        Tier(name="lab", non_preemptible_workers=2), Tier(name="a", parent="lab"), Tier(name="b", parent="lab")
    )
    ids = [world.submit(9000, preemptible=False, tier=name) for name in ("a", "b", "a", "b")]
    world.run(lambda: len(running(world, *ids)) == 2)
    world.run_until_s(world.clock.now_s() + 25)
    assert running(world, *ids) == ids[:2]


def test_what_other_tiers_are_guaranteed_stays_within_their_reach() -> None:
    """They have no jobs now, so others may use it, but nobody keeps it for as long as a job lasts."""
    world = a_world(Tier(name="gold", guarantee=0.5))
    stays = [world.submit(90_000, preemptible=False) for _ in range(4)]
    world.run(lambda: len(running(world, *stays)) == 2)
    world.run_until_s(world.clock.now_s() + 25)
    assert len(running(world, *stays)) == 2
    gold = [world.submit(90_000, tier="gold") for _ in range(2)]
    world.run(lambda: len(running(world, *gold)) == 2)
    assert len(running(world, *stays)) == 2 and all(world.job(each).preemptions == 0 for each in stays)


def test_gangs_that_stay_take_nothing_from_what_others_are_guaranteed() -> None:
    """default's gangs hold half of the cluster for good: the other half is what gold is guaranteed, all of it."""
    world = a_world(Tier(name="gold", guarantee=0.5), Tier(name="default", weight=100.0))
    stay = [world.submit(90_000, preemptible=False) for _ in range(2)]
    world.run(lambda: len(running(world, *stay)) == 2)
    gold, others = ([world.submit(90_000, tier=tier) for _ in range(3)] for tier in ("gold", "default"))
    world.run(lambda: len(running(world, *gold)) == 2)
    world.run_until_s(world.clock.now_s() + 100)
    received = [sum(sum(world.job(each).received_s.values()) for each in jobs) for jobs in (gold, others)]
    assert len(running(world, *stay)) == 2 and received[0] > 0.75 * sum(received)


def test_a_cap_holds_at_every_instant() -> None:
    world = a_world(Tier(name="small", cap=0.5))
    stays = [world.submit(90_000, preemptible=False, tier="small") for _ in range(4)]
    world.run(lambda: len(running(world, *stays)) == 2)
    world.run_until_s(world.clock.now_s() + 55)
    assert len(running(world, *stays)) == 2


def test_a_gang_that_runs_is_not_touched_when_its_limit_is_lowered() -> None:
    world = a_world()
    stays = [world.submit(9000, preemptible=False) for _ in range(3)]
    world.run(lambda: len(running(world, *stays)) == 3)
    put_tier(world, Tier(name="default", non_preemptible_workers=0))
    late = world.submit(9000, preemptible=False)
    world.run_until_s(world.clock.now_s() + 25)
    assert len(running(world, *stays)) == 3 and all(world.job(each).preemptions == 0 for each in stays)
    assert world.job(late).reason is Reason.NON_PREEMPTIBLE_LIMIT


def test_a_spent_month_ends_the_stay() -> None:
    """It would else go on without a bound; the gang saves its checkpoint at the end of its lease, as others do."""
    world = a_world(Tier(name="default", accelerator_hours_per_month=0.02))
    job_id = world.submit(90_000, preemptible=False)
    world.run(lambda: world.job(job_id).reason is Reason.QUOTA_EXCEEDED, ticks=2000)
    paused = world.job(job_id)
    assert paused.state is JobState.QUEUED and paused.steps_done > 0


TIERS = st.lists(
    st.builds(
        lambda guarantee, slack, most: (guarantee, min(1.0, guarantee + slack), most),
        st.sampled_from([0.0, 0.1, 0.25, 0.3]),
        st.sampled_from([0.0, 0.3, 1.0]),
        st.sampled_from([None, 0, 1, 3, 8]),
    ),
    min_size=1,
    max_size=3,
)


@PROFILE
@given(rules=TIERS, gangs=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 1)), max_size=20))
def test_whoever_comes_in_whatever_order_every_promise_can_be_kept(
    rules: list[tuple[float, float, int | None]], gangs: list[tuple[int, int, int]]
) -> None:
    """Limits and caps are kept, and what is guaranteed to all tiers fits beside what stays, on each type."""
    tiers = {
        f"t{i}": Tier(name=f"t{i}", guarantee=g, cap=max(cap, 0.01), non_preemptible_workers=most)
        for i, (g, cap, most) in enumerate(rules)
    }
    capacity = {"fast": 7, "slow": 4}
    room, held = Room(tiers, capacity), Counter[tuple[str, str]]()
    for index, size, column in gangs:
        tier, name = f"t{index % len(rules)}", ("fast", "slow")[column]
        if name in room.types(tier, size, capacity):
            room.take(tier, size, [name])
            held[tier, name] += size
    for tier in tiers.values():
        of_tier = {name: held[tier.name, name] for name in capacity}
        assert tier.non_preemptible_workers is None or sum(of_tier.values()) <= tier.non_preemptible_workers
        assert all(of_tier[name] <= tier.cap * capacity[name] + 1e-6 for name in capacity)
    for name, count in capacity.items():
        wanted = sum(max(held[tier.name, name], tier.guarantee * count) for tier in tiers.values())
        assert wanted <= count + 1e-6


@pytest.mark.parametrize("size", [1, 2])
def test_without_any_limit_there_is_room_for_all(size: int) -> None:
    room = Room({"default": Tier(name="default")}, {"fast": 2})
    assert list(room.types("default", size, ["fast"])) == ["fast"] and not room.is_bounded
