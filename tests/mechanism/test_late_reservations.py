"""What sessions are told that are late, and on which types they may start or stay beside the other reservations."""

from typing import Any

import pytest

from gavel.mechanism.jobs.reservations import claim_of
from gavel.mechanism.planning.reserved_leases import late_sessions
from gavel.mechanism.planning.reserved_types import claimed_later, types_for
from gavel.types import Job, Reason
from tests.builders import a_cluster, a_job
from tests.mechanism.test_leases_of_reservations import LIMIT, a_tick, leased, on, reserved

# --- those that are late ------------------------------------------------------------------------------------------


def late(*jobs: Job, **over: Any) -> dict[str, tuple[Reason, str]]:
    return late_sessions(a_tick(*jobs, now_s=12.0, **over))


def a_sentence(usable: int, held: int) -> str:
    return (
        "The session was to start at 1970-01-01 00:00:10 UTC, and needs 1 workers of fast."
        f" {usable} can be used now, of which jobs that may not be preempted hold {held}. It starts in the first round"
        " with room, and ends at 1970-01-01 00:01:00 UTC."
    )


def test_a_session_that_has_no_workers_at_its_time_is_told_how_many_there_are() -> None:
    """Only gangs that may not be preempted, and whose lease goes on, count."""
    jobs = [
        leased("x", 2, preemptible=False),
        leased("y"),
        leased("z", preemptible=False),
        leased("w", preemptible=False),
    ]
    leases = (
        on("x", "fast-0", "fast-1", expires_at_s=20.0),
        on("y", "fast-2", expires_at_s=20.0),
        on("z", "fast-3", expires_at_s=12.0),
        on("w", "fast-3", expires_at_s=20.0),
    )
    assert late(reserved(), *jobs, leases=leases) == {"s": (Reason.RESERVED, a_sentence(4, 3))}
    elsewhere = (*leases[:3], on("w", "slow-0", expires_at_s=20.0))
    assert late(reserved(), *jobs, leases=elsewhere) == {"s": (Reason.RESERVED, a_sentence(4, 2))}
    assert late(reserved()) == {"s": (Reason.RESERVED, a_sentence(4, 0))}
    assert late(reserved(), cluster=a_cluster(slow=1)) == {"s": (Reason.RESERVED, a_sentence(0, 0))}


@pytest.mark.parametrize(
    ("job", "over", "is_late"),
    [
        (reserved(), {}, True),
        (reserved(at_s=12.1), {}, False),
        (reserved(pause_requested=True), {}, False),
        (reserved(), {"held": {"s": LIMIT}}, False),
        (reserved(), {"leases": (on("s", "fast-0", expires_at_s=20.0),)}, False),
        (reserved(), {"leases": (on("s", "fast-0", expires_at_s=12.0),)}, True),
        (reserved(generation=1), {"leases": (on("s", "fast-0", expires_at_s=20.0),)}, True),
        (reserved(), {"leases": (on("gone", "fast-0", expires_at_s=20.0),)}, True),
    ],
    ids=["late", "early", "paused", "held", "planned", "it was planned", "it ended", "others"],
)
def test_a_session_is_late_if_its_reservation_has_begun_and_no_plan_has_workers_for_it(
    job: Job, over: dict[str, Any], is_late: bool
) -> None:
    assert list(late(job, **over)) == (["s"] if is_late else [])


# --- on which types -----------------------------------------------------------------------------------------------


def test_types_are_its_own_first_and_then_those_on_which_it_is_in_nobodys_way() -> None:
    cluster = a_cluster(fast=1, medium=1, slow=1)
    other = reserved("t", at_s=40.0, spec={"reserved_type": "slow"})
    tick = a_tick(reserved(), other, cluster=cluster)
    assert types_for(tick, reserved(), {}, round_duration_s=10.0) == ["fast", "medium"]
    only = reserved(spec={"accelerator_types": ("fast",)})
    assert types_for(tick, only, {}, round_duration_s=10.0) == ["fast"]
    assert types_for(a_tick(reserved(), cluster=cluster), reserved(), {}, round_duration_s=10.0) == [
        "fast",
        "medium",
        "slow",
    ]


def test_of_two_that_share_workers_only_the_one_that_ends_last_is_in_the_way() -> None:
    """Of two slow workers one is reserved from 40 s on, and the pair has the other one."""
    pair = tuple(on(name, "slow-0", combination=("a", "b"), expires_at_s=20.0) for name in "ab")
    jobs = [leased("a", preemptible=False, spec={"longest_s": 900.0}, started_at_s=0.0), leased("b", preemptible=False)]
    other = reserved("t", at_s=40.0, spec={"reserved_type": "slow"})
    held = {"a": ("slow",), "b": ("slow",)}
    for workers, expected in ((2, ["fast"]), (3, ["fast", "slow"])):
        tick = a_tick(reserved(), other, *jobs, leases=pair, cluster=a_cluster(fast=1, slow=workers))
        assert types_for(tick, reserved(), held, round_duration_s=10.0) == expected


def test_those_that_stay_claim_what_they_hold_and_reservations_their_type() -> None:
    batch = leased("b", 2, preemptible=False)
    jobs = [batch, reserved("r", 1, at_s=40.0), leased("p"), a_job("w", spec={"preemptible": False})]
    tick = a_tick(*jobs)
    wanted = reserved("n", 4, at_s=0.0)
    free = {}
    for left_out in ((), ("b",), ("r",), ("b", "r")):
        calendar = claimed_later(tick, {"b": ("fast",), "p": ("fast",)}, left_out=left_out, round_duration_s=10.0)
        claim = claim_of(wanted, ("fast",), 8.0, round_duration_s=10.0)
        free[left_out] = calendar.least_free("fast", claim)
    assert free == {(): 1, ("b",): 3, ("r",): 2, ("b", "r"): 4}
