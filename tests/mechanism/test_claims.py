"""What jobs claim of workers that may not be taken from them: from plans, sessions and reservations."""

import time
from math import inf
from typing import Any

import pytest

from gavel.mechanism.jobs.reservations import (
    Claim,
    claim_of,
    has_reservation,
    held_types,
    is_due,
    late_sentence,
    outlasted,
    sharing,
    waits_sentence,
    when,
)
from gavel.types import Job, JobState, Lease, RoundPlan
from tests.builders import a_job

NOW_S = 100.0
ROUND_S = 10.0
SESSION = {"preemptible": False, "longest_s": 60.0}
RESERVED = SESSION | {"reserved_at_s": 150.0, "reserved_type": "fast", "scale_factor": 2}


def a_lease(job_id: str = "a", generation: int = 1, *, on: str = "fast", colocated: str = "", **over: Any) -> Lease:
    combination = tuple(sorted({job_id, colocated or job_id}))
    fields: dict[str, Any] = {"worker_ids": ("w",), "round_index": 1, "expires_at_s": NOW_S + 1.0}
    return Lease(job_id=job_id, generation=generation, combination=combination, accelerator_type=on, **fields | over)


def a_plan(*leases: Lease, round_index: int = 1) -> RoundPlan:
    return RoundPlan(
        round_index=round_index,
        parent_round_index=round_index - 1,
        starts_at_s=0.0,
        duration_s=ROUND_S,
        leases=leases,
        policy="",
        allocation_digest="",
    )


def leased(job_id: str = "a", **over: Any) -> Job:
    fields: dict[str, Any] = {"state": JobState.LEASED, "generation": 1}
    return a_job(job_id, **fields | over)


# --- what is held -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "job", "expected"),
    [
        (a_lease(expires_at_s=0.0), leased(), {"a": {"fast"}}),
        (a_lease(expires_at_s=1000.0), leased(state=JobState.QUEUED), {}),
        (a_lease(expires_at_s=1000.0), leased(generation=2), {}),
        (a_lease(generation=2), leased(), {"a": {"fast"}}),
        (a_lease(generation=2, expires_at_s=NOW_S), leased(), {}),
        (a_lease(generation=2), leased(state=JobState.QUEUED), {"a": {"fast"}}),
        (a_lease("b"), leased(), {}),
    ],
    ids=[
        "its gang runs",
        "its gang has ended",
        "an older gang",
        "a gang to come",
        "a gang that does not come any more",
        "the next gang of a job that waits",
        "a job that nobody asks about",
    ],
)
def test_a_job_holds_the_type_of_its_gang_and_of_the_one_to_come(
    lease: Lease, job: Job, expected: dict[str, set[str]]
) -> None:
    assert held_types([a_plan(lease)], NOW_S, {"a": job}) == expected


def test_all_types_of_a_job_and_all_jobs_are_held() -> None:
    plans = [a_plan(a_lease(), a_lease("b", on="slow")), a_plan(a_lease(generation=2, on="slow"), round_index=2)]
    held = held_types(plans, NOW_S, {"a": leased(), "b": leased("b")})
    assert held == {"a": {"fast", "slow"}, "b": {"slow"}}


def test_two_jobs_share_their_workers_by_the_newest_plan_that_has_each() -> None:
    pair = (a_lease("a", colocated="b"), a_lease("b", colocated="a"))
    assert sharing([a_plan(*pair)], {"a", "b"}) == {"a": "b", "b": "a"}
    assert sharing([a_plan(*pair)], {"a"}) == {}, "the other one may be preempted"
    apart = a_plan(a_lease("a"), a_lease("b"), round_index=2)
    for plans in ([a_plan(*pair), apart], [apart, a_plan(*pair)]):
        assert sharing(plans, {"a", "b"}) == {}
    others = a_plan(a_lease("c"), round_index=2)
    assert sharing([a_plan(*pair), others], {"a", "b", "c"}) == {"a": "b", "b": "a"}


def test_of_two_that_share_the_one_that_ends_first_is_outlasted() -> None:
    pairs = {"a": "b", "b": "a"}
    short = leased("a", spec=SESSION, started_at_s=0.0)
    long = leased("b", spec=SESSION | {"longest_s": 61.0}, started_at_s=0.0)
    assert outlasted(pairs, {"a": short, "b": long}) == {"a"}
    assert outlasted(pairs, {"a": short, "b": leased("b")}) == {"a"}, "one without an end"
    assert outlasted(pairs, {"a": leased("a"), "b": short}) == {"b"}
    assert outlasted(pairs, {"a": leased("a"), "b": leased("b")}) == {"a"}, "one of them, where none has an end"


# --- claims -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "is_reserved", "starts_at_s", "ends_at_s"),
    [
        (a_job(), False, NOW_S, inf),
        (a_job(spec=SESSION), False, NOW_S, NOW_S + 2 * ROUND_S + 60.0),
        (leased(spec=SESSION, started_at_s=70.0), False, NOW_S, 130.0),
        (a_job(spec=RESERVED), True, 150.0, 210.0),
        (a_job(spec=RESERVED), False, NOW_S, 210.0),
        (a_job(spec=RESERVED | {"reserved_at_s": 90.0}), True, NOW_S, 150.0),
        (a_job(spec=SESSION), True, NOW_S, NOW_S + 2 * ROUND_S + 60.0),
    ],
    ids=[
        "a job without an end",
        "a session that has yet to start",
        "one that runs",
        "a reservation",
        "one that has its gang",
        "one that is late",
        "one without a time",
    ],
)
def test_a_gang_claims_its_workers_until_it_ends(
    job: Job, is_reserved: bool, starts_at_s: float, ends_at_s: float
) -> None:
    assert claim_of(job, {"slow", "fast"}, NOW_S, round_duration_s=ROUND_S, is_reserved=is_reserved) == Claim(
        tier="gold",
        workers=job.spec.scale_factor,
        types=("fast", "slow"),
        starts_at_s=starts_at_s,
        ends_at_s=ends_at_s,
    )


def test_a_gang_that_holds_its_workers_claims_them_from_now_on_if_nothing_else_is_said() -> None:
    claim = claim_of(a_job(spec=RESERVED), ("fast",), NOW_S, round_duration_s=ROUND_S)
    assert claim.starts_at_s == NOW_S


# --- reservations -----------------------------------------------------------------------------------------------


def test_a_reservation_is_due_from_its_time_on_until_it_is_over() -> None:
    job = a_job(spec=RESERVED)
    states = {at_s: (has_reservation(job, at_s), is_due(job, at_s)) for at_s in (149.9, 150.0, 209.9, 210.0)}
    assert states == {149.9: (True, False), 150.0: (True, True), 209.9: (True, True), 210.0: (False, False)}


@pytest.mark.parametrize(
    "job",
    [
        a_job(spec=RESERVED, state=JobState.LEASED),
        a_job(spec=RESERVED, cancel_requested=True),
        a_job(spec=SESSION),
        a_job(),
    ],
    ids=["it has its gang", "it is cancelled", "a session without a time", "no session"],
)
def test_nothing_is_reserved_for_other_jobs(job: Job) -> None:
    assert not has_reservation(job, 160.0) and not is_due(job, 160.0)


def test_a_reservation_without_an_end_lasts() -> None:
    job = a_job(spec=RESERVED | {"longest_s": None})
    assert job.session_ends_at_s is None and is_due(job, 1e9)


def test_the_sentences_of_a_session_name_its_times_and_its_workers() -> None:
    job = a_job(spec=RESERVED)
    assert waits_sentence(job) == (
        "2 of fast reserved for the session: it starts at 1970-01-01 00:02:30 UTC, and ends at 1970-01-01 00:03:30 UTC."
    )
    assert late_sentence(job, 3, 2) == (
        "The session was to start at 1970-01-01 00:02:30 UTC, and needs 2 workers of fast. 3 can be used now, of which"
        " jobs that may not be preempted hold 2. It starts in the first round with room, and ends"
        " at 1970-01-01 00:03:30 UTC."
    )


def test_instants_are_told_in_utc_wherever_the_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "Asia/Tokyo")
            time.tzset()
            assert when(0.9) == "at 1970-01-01 00:00:00 UTC"
    finally:
        time.tzset()
