"""Which gangs stay into the next round because they start, save nothing yet or end: by their leases, and by user."""

from typing import Any

import pytest

from gavel.mechanism.planning.starting import LeaseSoFar, starting, stays
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import GangSeen, GangState, Job, JobState, Observation, StartupTimes
from tests.builders import a_cluster, a_job

LIMIT_S = 600.0
STARTS_AT_S = 130.0


def a_gang(job_id: str = "a", **over: Any) -> GangSeen:
    fields: dict[str, Any] = {
        "generation": 1,
        "state": GangState.RUNNING,
        "accelerator_type": "fast",
        "worker_ids": ("fast-0",),
    }
    return GangSeen(**{"job_id": job_id, "started_at_s": 100.0} | fields | over)


def leased(job_id: str = "a", *, spec: dict[str, Any] | None = None, **over: Any) -> Job:
    return a_job(job_id, spec=spec, **{"state": JobState.LEASED, "generation": 1} | over)


def stay(
    jobs: list[Job],
    gangs: list[GangSeen],
    *times: StartupTimes,
    unreported_s: dict[str, float] | None = None,
    starts_at_s: float = STARTS_AT_S,
) -> tuple[str, ...]:
    """Who stays in the next round, on a cluster of four workers."""
    tick = Tick(
        now_s=120.0,
        seen=Observation(observed_at_s=120.0, cluster=a_cluster(fast=4), gangs=tuple(gangs)),
        snapshot=Snapshot(version=0, jobs={}, tiers={}),
        jobs={job.id: job for job in jobs},
        startup_times=times,
    )
    return starting(tick, jobs, starts_at_s, start_limit_s=LIMIT_S, unreported_s=unreported_s or {})


@pytest.mark.parametrize(
    ("job", "gang"),
    [
        (leased("b"), a_gang("a")),
        (leased(state=JobState.QUEUED), a_gang()),
        (leased(generation=2), a_gang()),
        (leased(), a_gang(state=GangState.ENDED)),
        (leased(), a_gang(state=GangState.WAITING)),
    ],
    ids=["no gang", "waits", "a newer gang", "ended", "not launched"],
)
def test_only_a_gang_that_is_there_under_the_newest_lease_of_its_job_stays(job: Job, gang: GangSeen) -> None:
    """Those that come after it in the list are looked at all the same."""
    assert stay([job, leased("c")], [gang, a_gang("c")]) == ("c",)


@pytest.mark.parametrize(
    ("started_at_s", "accounted_until_s", "expected"),
    [(100.0, 0.0, ("a",)), (None, 100.0, ("a",)), (None, 0.0, ()), (0.0, 650.0, ())],
)
def test_a_gang_whose_programs_have_yet_to_start_counts_from_its_launch(
    started_at_s: float | None, accounted_until_s: float, expected: tuple[str, ...]
) -> None:
    job, gang = leased(accounted_until_s=accounted_until_s), a_gang(started_at_s=started_at_s)
    assert stay([job], [gang], starts_at_s=650.0) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((), ()),
        ((StartupTimes(kind="mlp", accelerator_type="fast", checkpoint_s=(1.0, 9.0, 99.0)),), ("a",)),
        ((StartupTimes(kind="mlp", accelerator_type="fast", checkpoint_s=(1.0, 4.0, 99.0)),), ()),
        (
            (
                StartupTimes(kind="mlp", accelerator_type="slow", checkpoint_s=(99.0,)),
                StartupTimes(kind="cnn", accelerator_type="fast", checkpoint_s=(99.0,)),
            ),
            (),
        ),
    ],
    ids=["not measured", "takes longer", "takes less", "of others"],
)
def test_a_gang_that_trains_stays_until_it_can_have_written_a_checkpoint(
    times: tuple[StartupTimes, ...], expected: tuple[str, ...]
) -> None:
    """It trains since five seconds; a checkpoint takes the median of what its kind took on the type."""
    assert stay([leased(training_since_s=125.0)], [a_gang()], *times) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"steps_reported": 99}, ()),
        ({"steps_reported": 100}, ("a",)),
        ({"steps_reported": 101}, ("a",)),
        ({"steps_reported": 100, "spec": {"total_steps": None}}, ()),
        ({"steps_reported": 100, "checkpoint": "1-99"}, ("a",)),
        ({"leases_without_checkpoint": 2, "longest_without_checkpoint_s": 40.0}, ("a",)),
        ({"leases_without_checkpoint": 2, "longest_without_checkpoint_s": 40.0, "checkpoint": "1-9"}, ()),
        ({"leases_without_checkpoint": 2, "longest_without_checkpoint_s": 40.0, "checkpoint": "0-9"}, ("a",)),
        ({"training_since_s": 129.5}, ()),
        ({"leases_without_checkpoint": 1, "longest_without_checkpoint_s": 40.0}, ()),
        ({"leases_without_checkpoint": 2, "longest_without_checkpoint_s": 10.0}, ()),
    ],
)
def test_a_gang_that_trains_stays_after_its_last_step_and_where_shorter_leases_saved_nothing(
    fields: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert stay([leased(**{"training_since_s": 101.0} | fields)], [a_gang()]) == expected


@pytest.mark.parametrize(
    ("lease", "starts_at_s", "expected"),
    [
        (LeaseSoFar(started_at_s=100.0, training_since_s=None), 699.9985, True),
        (LeaseSoFar(started_at_s=100.0, training_since_s=None), 699.9995, False),
        (LeaseSoFar(started_at_s=0.0, training_since_s=None), 599.999, False),
        (LeaseSoFar(started_at_s=100.0, training_since_s=0.0, has_all_steps=True), 699.9985, True),
        (LeaseSoFar(started_at_s=0.0, training_since_s=0.0, has_all_steps=True), 599.999, False),
        (LeaseSoFar(started_at_s=100.0, training_since_s=120.0), 120.0, False),
        (LeaseSoFar(started_at_s=100.0, training_since_s=120.0), 119.9, True),
        (LeaseSoFar(started_at_s=100.0, training_since_s=120.0, checkpoint_s=5.0), 125.0, False),
        (
            LeaseSoFar(
                started_at_s=0.0,
                training_since_s=0.0,
                leases_without_checkpoint=2,
                longest_without_checkpoint_s=40.0,
            ),
            79.999,
            False,
        ),
        (LeaseSoFar(started_at_s=100.0, training_since_s=None, longest_without_checkpoint_s=599.0), 101.0, True),
    ],
)
def test_a_gang_that_has_had_nearly_all_of_its_time_has_had_all(
    lease: LeaseSoFar, starts_at_s: float, expected: bool
) -> None:
    """A gang that starts a millisecond late in its round has had the whole round."""
    assert stays(lease, starts_at_s, start_limit_s=LIMIT_S) is expected


@pytest.mark.parametrize(
    ("unreported_s", "expected"),
    [
        ({}, ("a", "b", "c")),
        ({"ann": 577.4}, ("a", "b", "c")),
        ({"ann": 577.6}, ("b", "c")),
        ({"bob": 999.0}, ("a", "b", "c")),
        ({"ann": 577.5}, ("b", "c")),
        ({"cid": 599.0}, ("a", "b", "c")),
    ],
)
def test_the_gangs_of_a_user_that_have_reported_nothing_share_one_limit_of_time(
    unreported_s: dict[str, float], expected: tuple[str, ...]
) -> None:
    """Job a has held three of four workers for 30 s, which are 22.5 of all; c, of the same user, trains."""
    jobs = [
        leased("a", spec={"scale_factor": 3}),
        leased("b", spec={"user": "cid", "scale_factor": 1}, accounted_until_s=128.0),
        leased("c", training_since_s=127.0),
    ]
    gangs = [a_gang("a"), a_gang("b", started_at_s=127.0), a_gang("c")]
    times = StartupTimes(kind="mlp", accelerator_type="fast", checkpoint_s=(10.0,))
    assert stay(jobs, gangs, times, unreported_s=unreported_s) == expected


def test_gangs_of_one_user_add_up() -> None:
    jobs = [leased("a", spec={"scale_factor": 2}), leased("b", spec={"scale_factor": 2})]
    gangs = [a_gang("a"), a_gang("b")]
    assert stay(jobs, gangs, unreported_s={"ann": 569.0}) == ("a", "b")
    assert stay(jobs, gangs, unreported_s={"ann": 571.0}) == ()
    assert stay(jobs[:1], gangs, unreported_s={"ann": 571.0}) == ("a",)


def test_nobody_starts_with_a_debt() -> None:
    job = leased("a", spec={"scale_factor": 4})
    assert starting_alone(job) == ("a",)


def starting_alone(job: Job) -> tuple[str, ...]:
    seen = Observation(observed_at_s=120.0, cluster=a_cluster(fast=4), gangs=(a_gang(),))
    tick = Tick(now_s=120.0, seen=seen, snapshot=Snapshot(version=0, jobs={}, tiers={}), jobs={"a": job})
    return starting(tick, [job], STARTS_AT_S, start_limit_s=LIMIT_S)
