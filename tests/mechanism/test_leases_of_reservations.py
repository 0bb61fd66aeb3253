"""Rounds that end when a reservation begins, and the leases of the sessions that start with one."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.planning.reserved_leases import (
    duration_s,
    reserved_instants,
    reserved_leases,
    with_reserved_leases,
)
from gavel.mechanism.tick import Tick
from gavel.types import (
    Cluster,
    Job,
    JobState,
    Lease,
    Node,
    NodeState,
    NodeStatus,
    Reason,
    Worker,
)
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.ticks import a_record, tick_at
from tests.mechanism.world import a_cluster_of_nodes

CLUSTER = a_cluster(fast=4, slow=2)
LIMIT = (Reason.NON_PREEMPTIBLE_LIMIT, "no room")


def reserved(job_id: str = "s", size: int = 1, at_s: float = 10.0, longest_s: float = 50.0, **over: Any) -> Job:
    spec = {"preemptible": False, "scale_factor": size, "reserved_at_s": at_s, "reserved_type": "fast"}
    return a_job(job_id, spec=spec | {"longest_s": longest_s} | over.pop("spec", {}), **over)


def leased(job_id: str, size: int = 1, *, preemptible: bool = True, **over: Any) -> Job:
    spec = {"scale_factor": size, "preemptible": preemptible} | over.pop("spec", {})
    return a_job(job_id, spec=spec, **{"state": JobState.LEASED, "generation": 1} | over)


def on(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    return a_lease(job_id, generation, *workers, **over)


def given(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    """A lease of the round [10, 20) that follows."""
    return on(job_id, *workers, generation=generation, **{"round_index": 4, "expires_at_s": 20.0} | over)


def a_tick(
    *jobs: Job, leases: tuple[Lease, ...] = (), cluster: Cluster = CLUSTER, now_s: float = 8.0, **over: Any
) -> Tick:
    """In the round [0, 10)."""
    records = [a_record(a_plan(leases))] if leases else []
    return tick_at(now_s, cluster, jobs, records=records, **over)


def leases_of(tick: Tick, *kept: Lease) -> list[Lease]:
    """The leases of the sessions that start with the round after that of the tick."""
    before = tick.round_plans[-1] if tick.round_plans else a_plan([])
    return list(reserved_leases(tick, before, kept, starts_at_s=10.0, ends_at_s=20.0))


# --- rounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        ([], 10.0),
        ([107.0], 7.0),
        ([115.0], 15.0),
        ([115.1], 10.0),
        ([100.0], 10.0),
        ([90.0], 10.0),
        ([100.2], 1.0),
        ([101.5, 103.0], 1.5),
        ([300.0, 104.0], 4.0),
    ],
    ids=[
        "none",
        "within it",
        "shortly after it",
        "long after it",
        "as it begins",
        "before it",
        "at once",
        "the first of two",
        "whatever the order",
    ],
)
def test_a_round_ends_when_a_reservation_begins_if_one_does_about_then(instants: list[float], expected: float) -> None:
    assert duration_s(100.0, 10.0, instants) == pytest.approx(expected)


def test_only_reservations_that_are_still_wanted_and_have_no_gang_end_rounds() -> None:
    jobs = [
        reserved("a", at_s=20.0),
        reserved("b", at_s=30.0, state=JobState.LEASED),
        reserved("c", at_s=40.0, pause_requested=True),
        reserved("d", at_s=50.0, cancel_requested=True),
        reserved("e", at_s=60.0),
        a_job("f", spec={"preemptible": False}),
        reserved("g", at_s=1.0, longest_s=2.0),
    ]
    assert reserved_instants(a_tick(*jobs)) == [20.0, 60.0]


# --- who starts ---------------------------------------------------------------------------------------------------


def test_a_session_gets_workers_of_its_type_that_nobody_has_to_the_end_of_the_round() -> None:
    tick = a_tick(reserved(size=2, generation=3, spec={"plan": ""}), leased("x"), leases=(on("x", "fast-1"),))
    assert leases_of(tick) == [given("s", "fast-0", "fast-2", generation=4)]
    first = reserved_leases(a_tick(reserved()), None, (), starts_at_s=10.0, ends_at_s=20.0)
    assert first == (replace(given("s", "fast-0"), round_index=1),)


@pytest.mark.parametrize(
    ("job", "tick", "starts"),
    [
        (reserved(), {}, True),
        (reserved(at_s=10.1), {}, False),
        (reserved(at_s=2.0, longest_s=8.0), {}, False),
        (reserved(state=JobState.LEASED, generation=1), {}, False),
        (reserved(pause_requested=True), {}, False),
        (reserved(retry_at_s=10.0), {}, True),
        (reserved(retry_at_s=10.1), {}, False),
        (reserved(), {"held": {"s": (Reason.RESERVED, "later")}}, True),
        (reserved(), {"held": {"s": LIMIT}}, False),
        (reserved(), {"held": {"x": LIMIT}}, True),
    ],
    ids=[
        "at its time",
        "later",
        "it is over",
        "it runs",
        "it is paused",
        "it may be tried again",
        "not yet",
        "it was held for its time",
        "it is held for something else",
        "another one is held",
    ],
)
def test_a_session_starts_with_the_round_in_which_it_is_its_time_and_nothing_else_holds_it(
    job: Job, tick: dict[str, Any], starts: bool
) -> None:
    assert leases_of(a_tick(job, **tick)) == ([given("s", "fast-0")] if starts else [])


def test_one_that_stays_already_gets_no_second_lease() -> None:
    assert leases_of(a_tick(reserved()), given("s", "fast-0")) == []


def test_the_one_that_was_to_start_first_goes_first_then_the_one_that_was_submitted_first() -> None:
    jobs = [
        reserved("c", 2, submitted_at_s=2.0),
        reserved("b", 2, submitted_at_s=1.0),
        reserved("a", 2, submitted_at_s=2.0),
        reserved("d", 2, at_s=9.0, submitted_at_s=5.0),
    ]
    assert leases_of(a_tick(*jobs, cluster=a_cluster(fast=6))) == [
        given("d", "fast-0", "fast-1"),
        given("b", "fast-2", "fast-3"),
        given("a", "fast-4", "fast-5"),
    ]


# --- whose workers ------------------------------------------------------------------------------------------------

BUSY = [leased("x"), leased("y", 2), leased("z")]
ALL = (on("x", "fast-0"), on("y", "fast-1", "fast-2"), on("z", "fast-3"))


@pytest.mark.parametrize(
    ("size", "leases", "kept", "expected"),
    [
        (1, ALL, (), ("fast-0",)),
        (2, ALL, (), ("fast-1", "fast-2")),
        (3, ALL, (), ("fast-0", "fast-1", "fast-2")),
        (4, ALL, (), ("fast-0", "fast-1", "fast-2", "fast-3")),
        (2, ALL[:2], (), ("fast-1", "fast-2")),
        (1, ALL[:2], (), ("fast-3",)),
        (2, ALL[1:], (), ("fast-0", "fast-1")),
        (1, ALL, (given("x", "fast-0"),), ("fast-3",)),
        (2, ALL, (given("x", "fast-0"),), ("fast-1", "fast-2")),
        (4, ALL, (given("x", "fast-0"),), None),
        (1, (replace(ALL[0], expires_at_s=8.0), *ALL[1:]), (), ("fast-0",)),
        (1, (ALL[0], replace(ALL[1], expires_at_s=8.0), ALL[2]), (), ("fast-1",)),
        (1, (on("x", "slow-0"), *ALL[1:]), (), ("fast-0",)),
    ],
    ids=[
        "one of one",
        "one of two",
        "all that there are",
        "all",
        "a larger one and what is free",
        "what is free",
        "the larger one",
        "beside one that stays",
        "two beside one that stays",
        "too many beside one that stays",
        "a lease that has ended",
        "another lease that has ended",
        "nobody of another type",
    ],
)
def test_a_session_gets_what_is_free_else_the_workers_of_the_gang_of_the_most_similar_size(
    size: int, leases: tuple[Lease, ...], kept: tuple[Lease, ...], expected: tuple[str, ...] | None
) -> None:
    tick = a_tick(reserved(size=size), *BUSY, leases=leases)
    assert leases_of(tick, *kept) == ([given("s", *expected)] if expected else [])


def test_a_gang_that_is_to_start_already_keeps_its_workers_and_its_generation() -> None:
    """Unless one that stays has them, or a node of them is closed."""
    before = on("s", "fast-2", generation=4)
    tick = a_tick(reserved(generation=3), leases=(before,))
    assert leases_of(tick) == [given("s", "fast-2", generation=4)]
    assert leases_of(tick, given("x", "fast-2")) == [given("s", "fast-0", generation=5)]
    ended = a_tick(reserved(generation=4), leases=(before,))
    assert leases_of(ended) == [given("s", "fast-0", generation=5)]
    only = a_tick(reserved(generation=4), leases=(on("s", "fast-0", generation=4),), cluster=a_cluster(fast=1))
    assert leases_of(only) == [given("s", "fast-0", generation=5)]
    newer = a_tick(reserved(generation=6), leases=(before,))
    assert leases_of(newer)[0].generation == 7
    elsewhere = a_tick(reserved(generation=3), leases=(on("s", "slow-1", generation=4),))
    assert leases_of(elsewhere) == [given("s", "slow-1", generation=4)]


def test_workers_of_a_closed_node_are_not_given() -> None:
    nodes = {"n0": NodeStatus(name="n0", state=NodeState.CORDONED, is_cordoned=True)}
    cluster = a_cluster_of_nodes(n0="fast fast", n1="fast")
    tick = a_tick(reserved(), cluster=cluster, nodes=nodes, leases=(on("s", "n0-0", accelerator_type="fast"),))
    assert leases_of(tick) == [given("s", "n1-0", generation=2, accelerator_type="fast")]
    assert leases_of(a_tick(reserved(size=2), cluster=cluster, nodes=nodes)) == []


def test_a_session_gets_another_type_only_where_its_own_has_too_few_and_it_is_in_nobodys_way() -> None:
    cluster = a_cluster(fast=1, slow=2)
    assert leases_of(a_tick(reserved(size=2), cluster=cluster)) == [given("s", "slow-0", "slow-1")]
    other = reserved("t", 1, at_s=40.0, spec={"reserved_type": "slow"})
    assert leases_of(a_tick(reserved(size=2), other, cluster=cluster)) == []
    short = reserved(size=2, longest_s=20.0)
    assert leases_of(a_tick(short, other, cluster=cluster)) == [given("s", "slow-0", "slow-1")]


def test_a_session_that_has_yet_to_start_beside_it_counts_until_two_rounds_and_its_length_have_passed() -> None:
    """That is until 58 s; a worker is reserved from 60 s on."""
    other = reserved("t", 1, at_s=60.0, spec={"reserved_type": "slow"})
    session = leased("h", preemptible=False, spec={"longest_s": 30.0})
    tick = a_tick(reserved(size=2, longest_s=100.0), other, session, cluster=a_cluster(fast=1, slow=3))
    assert leases_of(tick, given("h", "slow-0")) == [given("s", "slow-1", "slow-2")]


def test_cores_and_memory_of_nodes_are_left_for_it() -> None:
    """The one node has four cores; x holds three of them."""
    node = Cluster(
        nodes=(Node(name="n0", cpu_cores=4),),
        workers=tuple(Worker(id=f"fast-{index}", node="n0", accelerator_type="fast") for index in range(3)),
    )
    large = leased("x", spec={"cpu_cores": 3})
    session = reserved(spec={"cpu_cores": 2})
    tick = a_tick(session, large, cluster=node, leases=(on("x", "fast-0"),))
    assert leases_of(tick) == [given("s", "fast-0")]
    assert leases_of(tick, given("x", "fast-0")) == []
    small = a_tick(reserved(spec={"cpu_cores": 1}), large, cluster=node, leases=(on("x", "fast-0"),))
    assert leases_of(small, given("x", "fast-0")) == [given("s", "fast-1")]
    two = a_cluster_of_nodes(n0="fast fast", n1="fast fast")
    two = replace(two, nodes=tuple(replace(each, cpu_cores=4) for each in two.nodes))
    third = a_tick(reserved(spec={"cpu_cores": 2}), large, cluster=two)
    kept = given("x", "n0-0", accelerator_type="fast")
    assert leases_of(third, kept) == [given("s", "n1-0", accelerator_type="fast")]
    gone = a_tick(session, cluster=node, leases=(on("x", "fast-0"),))
    assert leases_of(gone, given("x", "fast-0")) == [given("s", "fast-1")]


# --- with those that stay -----------------------------------------------------------------------------------------


def with_kept(tick: Tick, *kept: Lease) -> list[Lease]:
    return list(with_reserved_leases(tick, a_plan(kept), kept, starts_at_s=10.0, ends_at_s=20.0))


def test_those_that_stay_come_first_and_a_session_that_ends_makes_way_only_if_that_helps() -> None:
    ending = leased("e", preemptible=False, started_at_s=0.0, spec={"longest_s": 10.0})
    lasting = leased("l", preemptible=False, started_at_s=0.0, spec={"longest_s": 10.1})
    batch = leased("b", preemptible=False)
    for other in (lasting, batch):
        assert with_kept(a_tick(reserved(), other, cluster=a_cluster(fast=1)), given(other.id, "fast-0")) == [
            given(other.id, "fast-0")
        ]
    stays = given("e", "fast-0")
    assert with_kept(a_tick(reserved(), ending, cluster=a_cluster(fast=1)), stays) == [given("s", "fast-0")]
    assert with_kept(a_tick(reserved(), ending, cluster=a_cluster(fast=2)), stays) == [stays, given("s", "fast-1")]
    assert with_kept(a_tick(ending, cluster=a_cluster(fast=2)), stays) == [stays]
    two = [reserved("s"), reserved("t")]
    assert with_kept(a_tick(*two, ending, cluster=a_cluster(fast=2)), stays) == [
        given("s", "fast-1"),
        given("t", "fast-0"),
    ]
