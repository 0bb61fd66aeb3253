"""Which reservations are accepted, on which type, and what those are told that are not."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.mechanism.jobs.reservations import Claim
from gavel.mechanism.planning.reservations import AHEAD_S, Reservations, calendar_of
from gavel.ports import Commitments
from gavel.types import Cluster, Job, JobSpec, JobState, Lease, Node, Tier, Worker
from tests.builders import a_cluster, a_job, a_spec
from tests.mechanism.test_backfill import a_lease, a_plan

RULE = Reservations(settings=Settings(round_duration_s=10.0))
NOW_S = 30.0


def a_session(size: int = 1, at_s: float | None = 120.0, longest_s: float | None = 60.0, **over: Any) -> JobSpec:
    fields = {"preemptible": False, "scale_factor": size, "reserved_at_s": at_s, "longest_s": longest_s}
    return a_spec(**fields | over)


def reserved(job_id: str, size: int = 1, at_s: float = 120.0, longest_s: float = 60.0, **over: Any) -> Job:
    spec = a_session(size, at_s, longest_s, reserved_type="fast")
    return replace(a_job(job_id, **over), spec=spec)


def leased(job_id: str, size: int = 1, *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    fields = {"preemptible": False, "scale_factor": size} | (spec or {})
    return a_job(job_id, spec=fields, **{"state": JobState.LEASED, "generation": 1} | over)


def given(*jobs: Job, leases: tuple[Lease, ...] = (), cluster: Cluster | None = None, **over: Any) -> Commitments:
    fields: dict[str, Any] = {"tiers": (Tier(name="gold"),), "plans": (a_plan(leases),)}
    return Commitments(now_s=NOW_S, cluster=cluster or a_cluster(fast=2, slow=3), jobs=jobs, **fields | over)


def refusal(spec: JobSpec, commitments: Commitments) -> str:
    with pytest.raises(InvalidRequest) as refused:
        RULE.accepted(spec, commitments)
    assert refused.value.field == "reserved_at_s"
    return str(refused.value)


# --- on which type ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "jobs", "expected"),
    [
        (a_session(), (), "slow"),
        (a_session(), (leased("a", 2),), "fast"),
        (a_session(accelerator_types=("fast",)), (), "fast"),
        (a_session(2), (leased("a", 2),), "fast"),
        (a_session(3), (), "slow"),
    ],
    ids=["most are free", "most are free by then", "it may be on one", "enough", "only one has so many"],
)
def test_a_session_gets_the_type_of_which_most_stay_free(spec: JobSpec, jobs: tuple[Job, ...], expected: str) -> None:
    """Job a holds two workers of the slow type without an end."""
    commitments = given(*jobs, leases=(a_lease("a", 1, "slow-0", "slow-1"),))
    assert RULE.accepted(spec, commitments) == replace(spec, reserved_type=expected)


def test_a_type_of_a_region_keeps_the_session_there() -> None:
    names = ("fast@north", "fast@south", "fast@south")
    workers = tuple(Worker(id=f"w{row}", node="n", accelerator_type=name) for row, name in enumerate(names))
    cluster = Cluster(nodes=(Node(name="n"),), workers=workers)
    spec = RULE.accepted(a_session(), given(cluster=cluster))
    assert (spec.reserved_type, spec.regions) == ("fast@south", ("south",))
    assert RULE.accepted(a_session(regions=("local",)), given()).regions == ("local",)


# --- when ---------------------------------------------------------------------------------------------------------


def test_a_reservation_begins_two_rounds_from_now_or_later() -> None:
    """The next whole minute is told."""
    assert RULE.accepted(a_session(at_s=50.0), given()).reserved_type == "slow"
    assert refusal(a_session(at_s=49.0), given()) == (
        "reserved_at_s: the session cannot be reserved at 1970-01-01 00:00:49 UTC. A reservation begins 20 s from now"
        " or later; without a time it starts once there is room. It can be at 1970-01-01 00:01:00 UTC"
    )
    assert "at 1970-01-01 00:00:00 UTC. A reservation begins 20 s" in refusal(a_session(at_s=None), given())


def test_rounds_are_those_of_the_composition_in_force_and_of_one_that_has_planned_longer_ones() -> None:
    longer = given(policy="fifo/round_duration_s=40")
    assert RULE.accepted(a_session(at_s=110.0), longer).reserved_type == "slow"
    assert "A reservation begins 80 s from now" in refusal(a_session(at_s=109.0), longer)
    before = replace(a_plan(()), duration_s=40.0)  # from 0 on
    assert "80 s" in refusal(a_session(at_s=109.0), given(plans=(before,)))
    assert "80 s" in refusal(a_session(at_s=109.0), given(plans=(before,), policy="fifo/round_duration_s=5"))
    over = replace(before, starts_at_s=NOW_S - 40.0)
    assert "10 s" in refusal(a_session(at_s=39.0), given(plans=(over,), policy="fifo/round_duration_s=5"))


def test_a_session_that_has_yet_to_start_is_there_for_as_much_longer_as_rounds_are() -> None:
    waits = leased("a", 2, spec={"longest_s": 60.0})
    commitments = given(waits, leases=(a_lease("a", 1, "fast-0", "fast-1"),), cluster=a_cluster(fast=2))
    assert RULE.accepted(a_session(at_s=115.0), commitments).reserved_type == "fast"
    longer = replace(commitments, policy="fifo/round_duration_s=40")
    assert "leave 0 of 2 fast" in refusal(a_session(at_s=115.0), longer)
    assert RULE.accepted(a_session(at_s=170.0), longer).reserved_type == "fast"


def test_a_reservation_begins_within_ninety_days() -> None:
    assert RULE.accepted(a_session(at_s=NOW_S + AHEAD_S), given()).reserved_type == "slow"
    assert refusal(a_session(at_s=NOW_S + AHEAD_S + 1.0), given()) == (
        "reserved_at_s: is too far ahead; reserve up to at 1970-04-01 00:00:30 UTC"
    )


def test_what_is_in_the_way_is_told_and_when_it_would_do() -> None:
    cluster = a_cluster(fast=2)
    in_the_way = (
        "reserved_at_s: the session cannot be reserved at 1970-01-01 00:02:00 UTC. It needs 2 workers of one"
        " accelerator type. Jobs that may not be preempted, and reservations, leave 1 of 2 fast at 1970-01-01 00:02:00"
        " UTC. "
    )
    other = reserved("r")
    assert refusal(a_session(2), given(other, cluster=cluster)) == in_the_way + "It can be at 1970-01-01 00:03:00 UTC"
    forever = given(leased("a"), leases=(a_lease("a", 1, "fast-0"),), cluster=cluster)
    never = "No later time would do; ask for fewer workers"
    assert refusal(a_session(2), forever) == in_the_way + never
    assert RULE.accepted(a_session(1), forever).reserved_type == "fast"


@pytest.mark.parametrize(
    ("at_s", "longest_s", "is_free"), [(60.0, 60.0, True), (60.0, 61.0, False), (180.0, 9.0, True)]
)
def test_a_session_may_end_as_another_begins_and_begin_as_it_ends(at_s: float, longest_s: float, is_free: bool) -> None:
    commitments = given(reserved("r", 2), cluster=a_cluster(fast=2))
    if is_free:
        assert RULE.accepted(a_session(2, at_s, longest_s), commitments).reserved_type == "fast"
    else:
        assert "leave 0 of 2 fast" in refusal(a_session(2, at_s, longest_s), commitments)


def test_limits_of_tiers_count() -> None:
    commitments = given(reserved("r", 2), tiers=(Tier(name="gold", non_preemptible_workers=2),))
    assert "2 of the 2 workers that tier gold lets them hold" in refusal(a_session(1), commitments)


# --- who claims what ----------------------------------------------------------------------------------------------


def least_free(commitments: Commitments, at_s: float = 120.0) -> tuple[int, int]:
    """Workers of the fast and of the slow type that are free from an instant on."""
    calendar = calendar_of(commitments, 10.0)
    claim = Claim(tier="gold", workers=1, types=("fast", "slow"), starts_at_s=at_s, ends_at_s=at_s + 60.0)
    return calendar.least_free("fast", claim), calendar.least_free("slow", claim)


ON_FAST = a_lease("a", 1, "fast-0")


@pytest.mark.parametrize(
    ("jobs", "leases", "expected"),
    [
        ((), (), (2, 3)),
        ((leased("a"),), (ON_FAST,), (1, 3)),
        ((leased("a"),), (), (1, 2)),
        ((leased("a", generation=2),), (ON_FAST,), (1, 2)),
        ((a_job("a", spec={"preemptible": False}),), (ON_FAST,), (2, 3)),
        ((a_job("a", spec={"preemptible": False}),), (replace(ON_FAST, expires_at_s=40.0),), (1, 3)),
        ((a_job("a", spec={"preemptible": False}),), (), (2, 3)),
        ((reserved("a"),), (), (1, 3)),
        ((reserved("a", cancel_requested=True),), (), (2, 3)),
        ((leased("a", spec={"longest_s": 60.0}, started_at_s=60.0),), (ON_FAST,), (2, 3)),
        ((leased("a", spec={"longest_s": 61.0}, started_at_s=60.0),), (ON_FAST,), (1, 3)),
        ((leased("a", spec={"longest_s": 70.0}),), (ON_FAST,), (2, 3)),
        ((leased("a", spec={"longest_s": 71.0}),), (ON_FAST,), (1, 3)),
    ],
    ids=[
        "nobody",
        "a gang",
        "a gang of which nothing is known",
        "a gang that is newer than the rounds",
        "a lease that is over",
        "a lease to come",
        "one that waits",
        "a reservation",
        "a reservation that is cancelled",
        "a session that ends before",
        "a session that ends after that",
        "one that may still start and ends before",
        "one that may still start and ends after that",
    ],
)
def test_gangs_that_are_there_or_to_come_and_reservations_claim_workers(
    jobs: tuple[Job, ...], leases: tuple[Lease, ...], expected: tuple[int, int]
) -> None:
    assert least_free(given(*jobs, leases=leases)) == expected


def test_of_two_that_share_workers_the_one_that_ends_last_claims_them() -> None:
    pair = tuple(a_lease(name, 1, "fast-0", combination=("a", "b")) for name in "ab")
    jobs = [leased("a", spec={"longest_s": 500.0}, started_at_s=0.0), leased("b")]
    assert least_free(given(*jobs, leases=pair)) == (1, 3)
    short = replace(jobs[1], spec=replace(jobs[1].spec, longest_s=100.0), started_at_s=0.0)
    assert least_free(given(jobs[0], short, leases=pair), at_s=120.0) == (1, 3)
    assert least_free(given(jobs[0], short, leases=pair), at_s=500.0) == (2, 3)


# --- a session that is to last longer -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest_s", "job", "leases", "is_free"),
    [
        (120.0, leased("s", spec={"longest_s": 10.0}, started_at_s=0.0), (a_lease("s", 1, "fast-0"),), True),
        (121.0, leased("s", spec={"longest_s": 10.0}, started_at_s=0.0), (a_lease("s", 1, "fast-0"),), False),
        (500.0, leased("s", spec={"longest_s": 10.0}, started_at_s=0.0), (a_lease("s", 1, "slow-0"),), True),
        (500.0, leased("s", spec={"longest_s": 10.0}, started_at_s=0.0), (), False),
        (500.0, a_job("s", spec={"preemptible": False, "longest_s": 10.0}), (), True),
        (30.0, reserved("s", 1, 90.0), (), True),
        (31.0, reserved("s", 1, 90.0), (), False),
    ],
    ids=[
        "until the reservation",
        "beyond it",
        "on another type",
        "nobody knows where",
        "it waits",
        "it is reserved itself",
        "and would last too long",
    ],
)
def test_a_session_may_last_longer_if_it_is_in_the_way_of_no_reservation(
    longest_s: float, job: Job, leases: tuple[Lease, ...], is_free: bool
) -> None:
    """Both fast workers are reserved from 120 s on."""
    commitments = given(job, reserved("r", 2), leases=leases)
    if is_free:
        RULE.check_extension(job, longest_s, commitments)
        return
    with pytest.raises(InvalidRequest) as refused:
        RULE.check_extension(job, longest_s, commitments)
    assert refused.value.field == "by_s"
    start = "by_s: the session would be in the way of a reservation. "
    assert str(refused.value).startswith(start) and str(refused.value).removeprefix(start)


def test_what_a_session_has_already_is_not_in_its_own_way() -> None:
    job = leased("s", spec={"longest_s": 400.0}, started_at_s=0.0)
    RULE.check_extension(job, 500.0, given(job, reserved("r", 1), leases=(a_lease("s", 1, "fast-0"),)))
