"""Gangs that no plan moves: who stays into a round, on what, and who has its workers again after a drain."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.planning.non_preemptible import of_tiers, restored, staying, used_of_kept, without_ended
from gavel.mechanism.tick import Tick
from gavel.types import (
    NO_NEEDS,
    Cluster,
    DiskState,
    Job,
    JobState,
    Lease,
    Needs,
    NodeState,
    NodeStatus,
    Reason,
    RoundPlan,
    Used,
)
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_lease, a_plan
from tests.mechanism.ticks import a_record, tick_at
from tests.mechanism.world import a_cluster_of_nodes

NODES = a_cluster_of_nodes(n0="fast fast", n1="fast fast")
SPENT = (Reason.QUOTA_EXCEEDED, "its month is spent")


def holding(job_id: str, generation: int = 1, *, preemptible: bool = False, **over: Any) -> Job:
    spec = {"preemptible": preemptible} | over.pop("spec", {})
    return a_job(job_id, spec=spec, **{"generation": generation, "state": JobState.LEASED} | over)


def on(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    """A lease of the round [0, 10) on workers of type fast."""
    return a_lease(job_id, generation, *workers, **{"accelerator_type": "fast"} | over)


def stays_on(lease: Lease, **over: Any) -> Lease:
    """The lease in the round [10, 20) that follows."""
    return replace(lease, **{"round_index": 4, "expires_at_s": 20.0, "starts_at_s": None} | over)


def draining(name: str, by_s: float) -> NodeStatus:
    return NodeStatus(name=name, state=NodeState.DRAINING, is_cordoned=True, drain_by_s=by_s)


def a_tick(
    *jobs: Job,
    plans: tuple[RoundPlan, ...] = (),
    nodes: tuple[NodeStatus, ...] = (),
    cluster: Cluster = NODES,
    now_s: float = 8.0,
    **over: Any,
) -> Tick:
    by_name = {node.name: node for node in nodes}
    return tick_at(now_s, cluster, jobs, records=map(a_record, plans), tiers=(), nodes=by_name, **over)


def stay(tick: Tick, *leases: Lease) -> list[Lease]:
    return list(staying(tick, a_plan(leases), starts_at_s=10.0, ends_at_s=20.0))


# --- who stays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "tick", "does"),
    [
        (holding("a"), {}, True),
        (holding("a", preemptible=True), {}, False),
        (holding("a", preemptible=True), {"disk": DiskState(low="full")}, True),
        (holding("a"), {"held": {"a": SPENT}}, False),
        (holding("a"), {"held": {"a": SPENT}, "disk": DiskState(low="full")}, True),
        (holding("a"), {"held": {"a": (Reason.RESERVED, "later")}}, True),
        (holding("a"), {"held": {"b": SPENT}}, True),
        (holding("a", state=JobState.QUEUED), {}, False),
        (holding("a", 2), {}, False),
        (holding("a", cancel_requested=True), {}, False),
        (holding("b"), {}, False),
    ],
    ids=[
        "it may not be preempted",
        "it may",
        "the disk is full",
        "its month is spent",
        "its month is spent and the disk full",
        "another hold",
        "another job's month is spent",
        "it has ended",
        "a newer gang",
        "it is cancelled",
        "its job is gone",
    ],
)
def test_who_may_not_be_preempted_and_is_still_wanted_stays_as_it_is(
    job: Job, tick: dict[str, Any], does: bool
) -> None:
    """Those that come after one that does not stay do so all the same."""
    first, other = on("a", "n0-0", starts_at_s=4.0), on("z", "n1-0")
    expected = [stays_on(first), stays_on(other)] if does else [stays_on(other)]
    assert stay(a_tick(job, holding("z"), **tick), first, other) == expected


@pytest.mark.parametrize(
    ("by_s", "expected"),
    [(14.0, 14.0), (10.0, None), (9.0, None), (25.0, 20.0)],
    ids=["in it", "as it starts", "before", "after"],
)
def test_it_stays_until_its_node_is_drained(by_s: float, expected: float | None) -> None:
    lease = on("a", "n0-1", "n1-0")
    tick = a_tick(holding("a"), nodes=(draining("n1", by_s), NodeStatus(name="n0")))
    assert stay(tick, lease) == ([] if expected is None else [stays_on(lease, expires_at_s=expected)])
    apart = on("a", "n0-1")
    assert stay(tick, apart) == [stays_on(apart)]


def test_a_gang_does_not_stay_where_one_of_its_workers_is_gone_or_that_was_only_profiled() -> None:
    tick = a_tick(holding("a"))
    assert stay(tick, on("a", "n0-0", "n7-0")) == [] == stay(tick, on("a", "n0-0", is_profiling=True))


def test_two_that_shared_a_worker_stay_a_pair_unless_the_partner_has_started_again_elsewhere() -> None:
    pair = [on(name, "n0-0", combination=("a", "b")) for name in "ab"]
    tick = a_tick(holding("a"), holding("b"))
    assert stay(tick, *pair) == [stays_on(each) for each in pair]
    elsewhere = on("b", "n1-0")
    assert stay(tick, pair[0], elsewhere) == [stays_on(pair[0], combination=("a",)), stays_on(elsewhere)]
    assert stay(a_tick(holding("a")), *pair) == [stays_on(pair[0], combination=("a",))]


def test_what_stays_counts_for_its_tier_and_type_and_half_where_it_is_shared() -> None:
    jobs = [holding("a", spec={"tier": "gold"}), holding("b", spec={"tier": "low"}), holding("c", spec={"tier": "low"})]
    leases = [on("a", "n0-0", "n0-1"), on("b", "n0-0"), on("c", "n1-0", accelerator_type="slow")]
    assert of_tiers(a_tick(*jobs), leases) == [("gold", "fast", 1.5), ("low", "fast", 0.5), ("low", "slow", 1.0)]


def test_what_those_that_stay_hold_of_nodes_counts_where_anybody_needs_more_than_workers() -> None:
    large = Needs(cpu_cores=3)
    held = [(("n0-0", "n1-0"), NO_NEEDS), (("n0-1",), NO_NEEDS)]
    assert used_of_kept(held, [NO_NEEDS], NODES) == {} == used_of_kept([], [], NODES)
    expected = {"n0": Used(workers=2, cpu_cores=2, memory_bytes=0), "n1": Used(workers=1, cpu_cores=1, memory_bytes=0)}
    assert used_of_kept(held, [NO_NEEDS, large], NODES) == expected
    more = {"n0": Used(workers=2, cpu_cores=4, memory_bytes=0), "n1": Used(workers=1, cpu_cores=1, memory_bytes=0)}
    assert used_of_kept([held[0], (("n0-1",), large)], [NO_NEEDS], NODES) == more


@pytest.mark.parametrize(
    ("now_s", "expected"), [(3.9, ["a", "b", "c"]), (4.0, ["b", "c"]), (8.0, ["b", "c"]), (10.0, ["b"]), (12.0, ["b"])]
)
def test_leases_that_ended_early_are_no_part_of_the_plan_to_go_on_from(now_s: float, expected: list[str]) -> None:
    """One that ended with its round stays in it."""
    leases = [on("a", "n0-0", expires_at_s=4.0), on("b", "n0-1"), on("c", "n0-0", expires_at_s=9.0)]
    plan = a_plan(leases)
    assert without_ended(plan, now_s) == replace(plan, leases=tuple(each for each in leases if each.job_id in expected))
    whole = a_plan(leases[1:2])
    assert without_ended(whole, now_s) is whole


# --- a drain that was taken back ----------------------------------------------------------------------------------

CUT = on("a", "n0-0", expires_at_s=9.0)
NOW = a_plan([on("a", "n0-0")])


def after(*leases: Lease, starts_at_s: float = 10.0) -> RoundPlan:
    """The round that follows."""
    given = [replace(lease, round_index=4, expires_at_s=20.0) for lease in leases]
    return replace(a_plan(given, starts_at_s=starts_at_s, index=4))


def test_without_jobs_that_may_not_be_preempted_nothing_is_looked_for() -> None:
    tick = a_tick(holding("a", preemptible=True), plans=(a_plan([CUT]),), disk=DiskState(low="full"))
    assert restored(tick) is None


@pytest.mark.parametrize(
    ("leases", "tick", "expected"),
    [
        ([CUT], {}, [replace(CUT, expires_at_s=10.0)]),
        ([on("a", "n0-0")], {}, None),
        ([on("a", "n0-0", expires_at_s=8.0)], {}, None),
        ([CUT], {"nodes": (draining("n0", 9.0),)}, None),
        ([CUT], {"nodes": (draining("n0", 9.5),)}, [replace(CUT, expires_at_s=9.5)]),
        ([CUT, on("b", "n0-0", starts_at_s=9.0)], {}, None),
        ([CUT, on("b", "n0-1")], {}, [replace(CUT, expires_at_s=10.0), on("b", "n0-1")]),
        (
            [CUT, on("c", "n1-0", expires_at_s=9.0)],
            {},
            [replace(CUT, expires_at_s=10.0), on("c", "n1-0", expires_at_s=10.0)],
        ),
        (
            [on("b", "n1-0", expires_at_s=9.0), CUT],
            {},
            [on("b", "n1-0", expires_at_s=9.0), replace(CUT, expires_at_s=10.0)],
        ),
        ([replace(CUT, generation=2)], {}, None),
    ],
    ids=[
        "it is cut",
        "it is whole",
        "it has ended",
        "the drain goes on",
        "the drain ends later",
        "somebody else has its worker",
        "somebody else has another one",
        "two of them",
        "one that may be preempted stays cut",
        "another gang",
    ],
)
def test_a_gang_whose_lease_was_cut_by_a_drain_has_it_to_the_end_of_the_round(
    leases: list[Lease], tick: dict[str, Any], expected: list[Lease] | None
) -> None:
    plan = a_plan(leases)
    jobs = [holding("a"), holding("b", preemptible=True), holding("c")]
    result = None if expected is None else replace(plan, leases=tuple(expected))
    assert restored(a_tick(*jobs, plans=(plan,), **tick)) == result


def test_a_round_that_is_over_or_was_decided_in_this_tick_is_left_as_it_is() -> None:
    over = a_plan([replace(CUT, expires_at_s=5.5)], starts_at_s=-4.0)
    assert restored(a_tick(holding("a"), plans=(over,), now_s=6.0)) is None
    assert restored(a_tick(holding("a"), plans=(over,), now_s=5.0)) is not None
    plan = a_plan([CUT])
    assert restored(a_tick(holding("a"), record=a_record(plan))) is None
    assert restored(a_tick(holding("a"), plans=(plan,), record=a_record(after(CUT)))) is not None


def test_the_plan_in_force_comes_before_the_one_ahead() -> None:
    plan = a_plan([CUT])
    ahead = after()
    result = restored(a_tick(holding("a"), plans=(plan, ahead)))
    assert result == replace(plan, leases=(replace(CUT, expires_at_s=10.0),))


LEASE = on("a", "n0-0")
AGAIN = stays_on(LEASE)


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        (after(), [AGAIN]),
        (after(on("a", "n0-0")), None),
        (after(on("a", "n1-0", generation=2)), [AGAIN]),
        (after(on("b", "n1-0")), [stays_on(on("b", "n1-0")), AGAIN]),
        (after(on("b", "n0-0")), None),
        (after(on("b", "n0-1")), [stays_on(on("b", "n0-1")), AGAIN]),
        (after(on("d", "n0-1")), None),
        (after(on("b", "n0-1", generation=2)), None),
        (after(on("d", "n1-1")), [stays_on(on("d", "n1-1")), AGAIN]),
        (after(on("b", "n1-0", combination=("a", "b"))), None),
        (after(on("a", "n1-1", generation=2), on("b", "n1-0")), [stays_on(on("b", "n1-0")), AGAIN]),
        (after(starts_at_s=8.0), None),
        (after(starts_at_s=8.1), [AGAIN]),
    ],
    ids=[
        "the plan has nothing",
        "it has it",
        "it has it elsewhere",
        "and another job elsewhere",
        "another job has its worker",
        "one that was there goes on on its node",
        "one starts on its node",
        "one that was there starts anew on its node",
        "one starts on another node",
        "another job is to share with it",
        "both",
        "it has begun",
        "it has not begun",
    ],
)
def test_a_gang_goes_on_in_the_round_ahead_that_was_planned_without_it(
    ahead: RoundPlan, expected: list[Lease] | None
) -> None:
    jobs = [holding("a"), holding("b", preemptible=True), a_job("d")]
    plan = a_plan([LEASE, on("b", "n0-1")])
    ahead = replace(ahead, duration_s=20.0 - ahead.starts_at_s)
    result = None if expected is None else replace(ahead, leases=tuple(expected))
    assert restored(a_tick(*jobs, plans=(plan, ahead))) == result


def test_it_goes_on_only_if_its_lease_lasts_to_the_end_of_the_round_and_it_may_not_be_preempted() -> None:
    ended = a_plan([replace(LEASE, expires_at_s=8.0)])
    assert restored(a_tick(holding("a"), plans=(ended, after()))) is None
    disk = DiskState(low="full")
    plan = a_plan([LEASE, on("b", "n1-0")])
    result = restored(a_tick(holding("a"), holding("b", preemptible=True), plans=(plan, after()), disk=disk))
    assert result == replace(after(), leases=(AGAIN,))


def test_a_round_that_does_not_follow_the_one_in_force_is_left_as_it_is() -> None:
    later = replace(after(), round_index=5, parent_round_index=4)
    assert restored(a_tick(holding("a"), plans=(NOW, later))) is None


def test_two_gangs_go_on_each_where_it_was() -> None:
    plan = a_plan([LEASE, on("c", "n1-0")])
    result = restored(a_tick(holding("a"), holding("c"), plans=(plan, after())))
    assert result == replace(after(), leases=(AGAIN, stays_on(on("c", "n1-0"))))


def test_workers_of_a_cluster_without_names_of_nodes_are_told_apart() -> None:
    """All are on one node, where another gang starts."""
    cluster = a_cluster(fast=2)
    plan = a_plan([on("a", "fast-0")])
    ahead = after(on("d", "fast-1"))
    assert restored(a_tick(holding("a"), a_job("d"), plans=(plan, ahead), cluster=cluster)) is None
