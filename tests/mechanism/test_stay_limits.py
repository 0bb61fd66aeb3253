"""Which waiting jobs that may not be preempted are held since there is no room for them, and what others may have."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.non_preemptible import limit
from gavel.mechanism.tick import Tick
from gavel.types import (
    Cluster,
    GangSeen,
    GangState,
    Job,
    JobState,
    Lease,
    Reason,
    Tier,
)
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_gang, a_lease, a_plan
from tests.mechanism.ticks import GOLD, a_record, tick_at

CLUSTER = a_cluster(fast=4, slow=2)
LIMITED = Tier(name="gold", non_preemptible_workers=3)
GUARANTEED = Tier(name="low", guarantee=0.5)
FULL = "Jobs that may not be preempted hold {} of the 3 workers that tier gold lets them hold; this one needs {} more."
Outcome = tuple[list[tuple[str, tuple[str, ...]]], dict[str, str]]
"""Who may be served, each with the accelerator types of its specification, and who is held by a limit, and why."""


def stays(job_id: str, size: int = 1, *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    return a_job(job_id, spec={"preemptible": False, "scale_factor": size} | (spec or {}), **over)


def leased(job_id: str, size: int = 1, **over: Any) -> Job:
    given: dict[str, Any] = {"state": JobState.LEASED, "generation": 1}
    return stays(job_id, size, **given | over)


def reserved(job_id: str, size: int, at_s: float, *, longest_s: float = 100.0, **over: Any) -> Job:
    spec = {"reserved_at_s": at_s, "reserved_type": "fast", "longest_s": longest_s, "tier": "gold"}
    return stays(job_id, size, spec=spec | over.pop("spec", {}), **over)


def a_tick(
    jobs: list[Job],
    *tiers: Tier,
    leases: tuple[Lease, ...] = (),
    gangs: tuple[GangSeen, ...] = (),
    cluster: Cluster = CLUSTER,
    held: dict[str, tuple[Reason, str]] | None = None,
) -> Tick:
    """At 4 s of the round [0, 10)."""
    given: dict[str, Any] = {"held": held or {}, "wanting": [job for job in jobs if job.id not in (held or {})]}
    records = [a_record(a_plan(leases))]
    return tick_at(4.0, cluster, jobs, records=records, tiers=(GOLD, *tiers), gangs=gangs, **given)


def limited(tick: Tick) -> Outcome:
    limit(tick, Layout(tick.usable), round_duration_s=10.0)
    assert {reason for reason, _ in tick.held.values()} <= {Reason.NON_PREEMPTIBLE_LIMIT}
    return [(job.id, job.spec.accelerator_types) for job in tick.wanting], {
        job_id: why for job_id, (_, why) in tick.held.items()
    }


def on(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    return a_lease(job_id, generation, *workers, **over)


# --- limits of tiers ----------------------------------------------------------------------------------------------


def test_without_limits_and_reservations_everybody_may_be_served() -> None:
    jobs = [stays(name, 9) for name in "ab"]
    assert limited(a_tick(jobs)) == ([("a", ()), ("b", ())], {})


def test_those_that_wait_take_what_the_limit_leaves_in_their_order_and_others_are_told_why_not() -> None:
    """One that may be preempted is served beside them."""
    jobs = [
        leased("a"),
        a_job("p", spec={"scale_factor": 4}),
        stays("late", submitted_at_s=3.0),
        stays("large", 2, submitted_at_s=2.0),
        stays("first", submitted_at_s=1.0),
    ]
    tick = a_tick(jobs, LIMITED, leases=(on("a", "fast-0"),))
    assert limited(tick) == (
        [("a", ()), ("p", ()), ("late", ()), ("first", ())],
        {"large": FULL.format(3, 2)},
    )


def test_the_highest_priority_goes_first() -> None:
    jobs = [stays("a", 3), stays("b", 3, spec={"priority": 1})]
    assert limited(a_tick(jobs, LIMITED)) == ([("b", ())], {"a": FULL.format(3, 3)})


def test_what_was_held_for_another_reason_stays_so_and_takes_no_room() -> None:
    jobs = [stays("a", 3), stays("b", 3)]
    tick = a_tick(jobs, LIMITED, held={"a": (Reason.NON_PREEMPTIBLE_LIMIT, "as before")})
    assert limited(tick) == ([("b", ())], {"a": "as before"})


def test_where_all_have_gangs_nothing_is_limited() -> None:
    jobs = [leased("a", 4), a_job("p")]
    assert limited(a_tick(jobs, LIMITED)) == ([("a", ()), ("p", ())], {})


def test_one_that_waits_gets_the_types_that_have_room_and_keeps_the_others_of_its_own() -> None:
    """Half of each type is guaranteed to another tier: two of one, and one of the other."""
    jobs = [leased("a"), stays("b", 2), stays("c"), stays("d", spec={"accelerator_types": ("slow",)})]
    tick = a_tick(jobs, GUARANTEED, leases=(on("a", "slow-0"),))
    never = (
        "The job may not be preempted and needs 1 more of one accelerator type. Its tier's cap and the guarantees of"
        " other tiers do not leave so many to jobs that stay."
    )
    assert limited(tick) == ([("a", ()), ("b", ("!slow",))], {"c": never, "d": never})


def test_types_that_are_ruled_out_are_added_to_those_that_the_job_rules_out() -> None:
    cluster = a_cluster(fast=4, medium=4, slow=2)
    jobs = [leased("a"), stays("b", 1, spec={"accelerator_types": ("!medium",)})]
    tick = a_tick(jobs, GUARANTEED, leases=(on("a", "slow-0"),), cluster=cluster)
    assert limited(tick) == ([("a", ()), ("b", ("!medium", "!slow"))], {})


def test_one_that_fits_nowhere_is_told_so_elsewhere() -> None:
    assert limited(a_tick([stays("a", 9), stays("b", 3)], LIMITED)) == ([("a", ()), ("b", ())], {})


# --- who holds workers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tick", "left"),
    [
        ({}, 3),
        ({"leases": (on("a", "fast-0", "fast-1"),)}, 1),
        ({"leases": (on("a", "fast-0", "fast-1", generation=2),)}, 1),
        ({"leases": (on("a", "fast-0", "fast-1", generation=2, expires_at_s=4.0),)}, 3),
        ({"gangs": (a_gang("a", 1, ["fast-0", "fast-1"]),)}, 1),
        ({"gangs": (replace(a_gang("a", 1, ["fast-0", "fast-1"]), state=GangState.ENDED),)}, 3),
        ({"gangs": (a_gang("p", 1, ["fast-0"]),)}, 3),
        ({"gangs": (a_gang("a", 1, ["gone-0"]),)}, 1),
    ],
    ids=[
        "nothing",
        "a lease",
        "a lease to come",
        "a lease that is over",
        "a gang",
        "a gang that has ended",
        "a gang that may be preempted",
        "a gang whose node is gone",
    ],
)
def test_a_gang_counts_by_its_lease_by_one_that_is_to_come_and_while_it_is_there(
    tick: dict[str, Any], left: int
) -> None:
    jobs = [leased("a", 2, submitted_at_s=9.0), a_job("p")]
    for size in (1, 2, 3):
        served, _ = limited(a_tick([*jobs, stays("w", size)], LIMITED, **tick))
        assert (("w", ()) in served) is (size <= left)


def test_two_gangs_that_share_their_workers_count_half_each() -> None:
    pair = tuple(on(name, "fast-0", "fast-1", combination=("a", "b")) for name in "ab")
    jobs = [leased("a", 2), leased("b", 2)]
    assert limited(a_tick([*jobs, stays("w", 1)], LIMITED, leases=pair))[1] == {}
    assert limited(a_tick([*jobs, stays("w", 2)], LIMITED, leases=pair))[1] == {"w": FULL.format(2, 2)}


# --- reservations -------------------------------------------------------------------------------------------------

AT_A_MINUTE = "at 1970-01-01 00:01:00 UTC."


def test_one_that_waits_gets_no_type_on_which_it_could_still_be_when_a_reservation_begins() -> None:
    """Four workers of the fast type are reserved from 60 s on; c could start within two rounds, and lasts 36 s."""
    jobs = [reserved("r", 4, 60.0), stays("b", 2), stays("c", 1, spec={"longest_s": 36.0})]
    assert limited(a_tick(jobs)) == ([("r", ()), ("b", ("!fast",)), ("c", ())], {})
    longer = [reserved("r", 4, 60.0), stays("b", 2), stays("c", 1, spec={"longest_s": 36.1})]
    assert limited(a_tick(longer, cluster=a_cluster(fast=4, slow=3))) == (
        [("r", ()), ("b", ("!fast",)), ("c", ("!fast",))],
        {},
    )


def test_a_reservation_that_needs_all_leaves_nothing_and_others_are_told_when() -> None:
    jobs = [reserved("r", 4, 60.0), stays("b", 3)]
    why = (
        "It could still run when a reservation begins. It needs 3 workers of one accelerator type. Jobs that may not be"
        f" preempted, and reservations, leave 0 of 4 fast {AT_A_MINUTE}"
    )
    assert limited(a_tick(jobs, cluster=a_cluster(fast=4))) == ([("r", ())], {"b": why})


def test_a_reservation_counts_for_the_limit_of_its_tier_once_it_has_begun_and_before_for_those_that_stay() -> None:
    later = f"It could still run when a reservation begins. {FULL.format(3, 1)} That is so {AT_A_MINUTE}"
    assert limited(a_tick([reserved("r", 3, 2.0), stays("b")], LIMITED)) == ([("r", ())], {"b": FULL.format(3, 1)})
    assert limited(a_tick([reserved("r", 3, 60.0), stays("b")], LIMITED)) == ([("r", ())], {"b": later})
    short = stays("b", spec={"longest_s": 30.0})
    assert limited(a_tick([reserved("r", 3, 60.0), short], LIMITED)) == ([("r", ()), ("b", ())], {})


@pytest.mark.parametrize(
    ("job", "counts"),
    [
        (reserved("r", 3, 60.0), True),
        (reserved("r", 3, 60.0, cancel_requested=True), False),
        (reserved("r", 3, 60.0, pause_requested=True), False),
        (reserved("r", 3, 2.0, longest_s=2.0), False),
    ],
    ids=["it is to begin", "it is cancelled", "it is paused", "it is over"],
)
def test_only_a_reservation_that_is_still_wanted_counts(job: Job, counts: bool) -> None:
    tick = a_tick([job, stays("b", submitted_at_s=-1.0)], cluster=a_cluster(fast=3))
    assert ("b" in limited(tick)[1]) is counts


def test_of_two_that_share_workers_the_one_that_ends_later_claims_them() -> None:
    """Job b has no end; without a, which ends before the reservation begins, its two workers would count twice."""
    pair = tuple(on(name, "fast-0", "fast-1", combination=("a", "b")) for name in "ab")
    session = leased("a", 2, spec={"longest_s": 500.0}, started_at_s=1.0)
    jobs = [session, leased("b", 2), reserved("r", 2, 60.0), stays("c", 1)]
    tick = a_tick(jobs, leases=pair, cluster=a_cluster(fast=5))
    assert limited(tick) == ([("a", ()), ("b", ()), ("r", ()), ("c", ())], {})


def test_one_whose_reservation_began_gets_its_type_or_one_on_which_it_is_in_nobodys_way() -> None:
    """The slow type is reserved from 60 s on, and nobody wants the medium one."""
    late, other = reserved("r", 2, 2.0), reserved("s", 2, 60.0, spec={"reserved_type": "slow"})
    cluster = a_cluster(fast=4, medium=2, slow=2)
    assert limited(a_tick([late, other], cluster=cluster)) == ([("r", ("!slow",)), ("s", ())], {})


def test_gangs_that_stay_and_those_that_may_start_before_leave_less_for_later() -> None:
    """One of four workers is reserved from 60 s on."""
    later = reserved("r", 1, 60.0)
    held = a_tick([leased("a", 3), later, stays("w")], leases=(on("a", "fast-0", "fast-1", "fast-2"),))
    assert limited(held) == ([("a", ()), ("r", ()), ("w", ("!fast",))], {})
    waiting = a_tick([later, stays("v", 3, spec={"accelerator_types": ("fast",)}), stays("w", submitted_at_s=1.0)])
    assert limited(waiting) == ([("r", ()), ("v", ("fast",)), ("w", ("!fast",))], {})


def test_a_gang_counts_on_the_type_of_its_workers() -> None:
    """Half of each type is guaranteed to others."""
    gang = a_gang("a", 1, ["slow-0"])
    tick = a_tick([leased("a"), stays("b")], GUARANTEED, gangs=(gang,))
    assert limited(tick) == ([("a", ()), ("b", ("!slow",))], {})


def test_one_whose_reservation_began_waits_where_no_type_has_so_many_workers() -> None:
    assert limited(a_tick([reserved("r", 2, 2.0)], cluster=a_cluster(fast=1))) == ([], {})


def test_a_session_that_has_yet_to_start_may_do_so_for_two_rounds() -> None:
    """Its end counts where another one, whose reservation has begun, looks for a type."""
    session = leased("h", spec={"longest_s": 30.0})
    other = reserved("s", 2, 60.0, spec={"reserved_type": "medium"})
    jobs = [session, reserved("r", 2, 2.0, longest_s=50.0), other]
    tick = a_tick(jobs, leases=(on("h", "medium-0"),), cluster=a_cluster(fast=1, medium=2))
    assert limited(tick) == ([("h", ()), ("r", ()), ("s", ())], {})
