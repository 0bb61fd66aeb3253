"""Reservations of sessions: what is accepted never exceeds what there is, and starts at its time."""

import re
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.config import Settings
from gavel.errors import InvalidRequest
from gavel.mechanism.jobs.non_preemptible_limits import Room
from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.mechanism.planning.reservations import AHEAD_S, Reservations
from gavel.mechanism.planning.reserved_leases import duration_s
from gavel.ports import Commitments
from gavel.types import Job, JobState, Reason, Tier
from tests.builders import a_cluster, a_job, a_spec
from tests.conftest import IS_FULL
from tests.mechanism.world import World, a_cluster_of_nodes

ROUND_S = 10.0
RULE = Reservations(settings=Settings(round_duration_s=ROUND_S))
ENDLESS = 10**9
TIERS = (Tier(name="gold", non_preemptible_workers=3), Tier(name="silver", guarantee=0.25), Tier(name="low", cap=0.5))
CLUSTER = a_cluster(fast=4, slow=2)


def a_session(at_s: float | None = None, longest_s: float = 60.0, **spec: Any) -> dict[str, Any]:
    return {"preemptible": False, "longest_s": longest_s, "reserved_at_s": at_s, "total_steps": ENDLESS} | spec


def committed(
    now_s: float = 0.0, jobs: tuple[Job, ...] = (), tiers: tuple[Tier, ...] = (Tier(name="gold"),)
) -> Commitments:
    return Commitments(now_s=now_s, cluster=CLUSTER, tiers=tiers, jobs=jobs)


def why_refused(spec: dict[str, Any], commitments: Commitments) -> str:
    with pytest.raises(InvalidRequest) as refused:
        RULE.accepted(a_spec(**spec), commitments)
    assert refused.value.field == "reserved_at_s"
    return refused.value.message


# --- what is accepted ---------------------------------------------------------------------------------------------

REQUESTS = st.tuples(
    st.sampled_from(["gold", "silver", "low"]),
    st.integers(1, 4),
    st.integers(2, 40).map(lambda each: each * 10.0),
    st.integers(1, 20).map(lambda each: each * 10.0),
    st.sampled_from([(), ("fast",), ("slow",)]),
)


@settings(max_examples=300 if IS_FULL else 40)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=14), is_bounded=st.booleans())
def test_accepted_reservations_never_exceed_workers_and_limits(requests: list[Any], is_bounded: bool) -> None:
    tiers = TIERS if is_bounded else tuple(Tier(name=tier.name) for tier in TIERS)
    accepted: list[Job] = []
    for number, (tier, size, at_s, longest_s, types) in enumerate(requests):
        wanted = a_spec(**a_session(at_s, longest_s, tier=tier, scale_factor=size, accelerator_types=types))
        try:
            spec = RULE.accepted(wanted, committed(jobs=tuple(accepted), tiers=tiers))
        except InvalidRequest as refused:
            _check_advice(wanted, refused, committed(jobs=tuple(accepted), tiers=tiers))
            continue
        assert not types or spec.reserved_type in types
        accepted.append(Job(id=f"s{number}", spec=spec))
    for at_s in {job.spec.reserved_at_s or 0.0 for job in accepted}:
        there = [job for job in accepted if (job.spec.reserved_at_s or 0.0) <= at_s < (job.session_ends_at_s or 0.0)]
        room = Room({tier.name: tier for tier in tiers}, CLUSTER.capacity_workers())
        for job in there:
            assert room.types(job.spec.tier, job.spec.scale_factor, [job.spec.reserved_type])
            room.take(job.spec.tier, job.spec.scale_factor, [job.spec.reserved_type])
        for name, workers in CLUSTER.capacity_workers().items():
            assert sum(job.spec.scale_factor for job in there if job.spec.reserved_type == name) <= workers


def _check_advice(wanted: Any, refused: InvalidRequest, commitments: Commitments) -> None:
    """The instant that a refusal names would do; if it names none, the session fits at no time at all."""
    named = re.search(r"It can be at (\S+ \S+) UTC", refused.message)
    at_s = datetime.fromisoformat(f"{named[1]}+00:00").timestamp() if named else AHEAD_S - 1
    if named:
        assert at_s >= wanted.reserved_at_s
        RULE.accepted(a_spec(**_fields(wanted) | {"reserved_at_s": at_s}), commitments)
    else:
        with pytest.raises(InvalidRequest):
            RULE.accepted(a_spec(**_fields(wanted) | {"reserved_at_s": at_s}), commitments)


def _fields(spec: Any) -> dict[str, Any]:
    names = ("tier", "scale_factor", "accelerator_types", "longest_s", "preemptible", "total_steps")
    return {name: getattr(spec, name) for name in names}


def test_a_refusal_says_what_is_in_the_way_and_when_it_would_do() -> None:
    first = Job(id="a", spec=RULE.accepted(a_spec(**a_session(600.0, 1200.0, scale_factor=3)), committed()))
    assert first.spec.reserved_type == "fast"
    why = why_refused(a_session(1200.0, 600.0, scale_factor=2, accelerator_types=("fast",)), committed(jobs=(first,)))
    assert "leave 1 of 4 fast at 1970-01-01 00:20:00 UTC" in why
    assert why.endswith("at 1970-01-01 00:30:00 UTC")


def test_it_names_the_limit_of_the_tier() -> None:
    tiers = (Tier(name="gold", non_preemptible_workers=2),)
    first = Job(id="a", spec=RULE.accepted(a_spec(**a_session(600.0, 1200.0, scale_factor=2)), committed(tiers=tiers)))
    why = why_refused(a_session(1000.0), committed(jobs=(first,), tiers=tiers))
    assert "hold 2 of the 2 workers that tier gold lets them hold" in why
    assert "No later time would do" in why_refused(a_session(1000.0, scale_factor=3), committed(tiers=tiers))


def test_too_early_and_too_far_ahead_are_refused() -> None:
    assert "20 s from now or later" in why_refused(a_session(109.0), committed(now_s=90.0))
    assert "1970-01-01 00:02:00 UTC" in why_refused(a_session(50.0), committed(now_s=90.0))
    assert "too far ahead" in why_refused(a_session(91 * 86_400.0), committed())


def test_gangs_that_run_count_until_their_end_and_those_without_one_for_ever() -> None:
    endless = a_job("e", spec={"preemptible": False, "scale_factor": 3}, state=JobState.LEASED, generation=1)
    session = a_job("s", spec=a_session(None, 100.0), state=JobState.LEASED, generation=1, started_at_s=0.0)
    wanted = {"scale_factor": 2, "accelerator_types": ("fast",)}
    assert "No later time" in why_refused(a_session(600.0, **wanted), committed(jobs=(endless,)))
    whole = a_session(60.0, scale_factor=4, accelerator_types=("fast",))
    assert "00:02:00 UTC" in why_refused(whole, committed(jobs=(session,)))


def test_an_extension_is_refused_that_is_in_the_way_of_a_reservation() -> None:
    session = a_job(
        "s", spec=a_session(None, 100.0, scale_factor=2), state=JobState.LEASED, generation=1, started_at_s=0.0
    )
    wanted = a_spec(**a_session(600.0, scale_factor=4, accelerator_types=("fast",)))
    reserved = Job(id="r", spec=RULE.accepted(wanted, committed(jobs=(session,))))
    jobs = (session, reserved)
    RULE.check_extension(session, 600.0, committed(now_s=50.0, jobs=jobs))
    with pytest.raises(InvalidRequest, match="in the way of a reservation"):
        RULE.check_extension(session, 601.0, committed(now_s=50.0, jobs=jobs))
    RULE.check_extension(reserved, 10_000.0, committed(now_s=50.0, jobs=jobs))


# --- rounds --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1e6), max_size=5))
def test_a_round_ends_when_a_reservation_begins_and_is_never_much_longer_or_shorter(
    starts_at_s: float, reserved: list[float]
) -> None:
    lasts_s = duration_s(starts_at_s, ROUND_S, reserved)
    next_s = min((at_s for at_s in reserved if at_s > starts_at_s), default=None)
    assert 0.1 * ROUND_S <= lasts_s <= 1.5 * ROUND_S
    if next_s is not None and next_s < starts_at_s + lasts_s:
        assert next_s < starts_at_s + 0.1 * ROUND_S
    assert next_s is not None or lasts_s == ROUND_S


class Reserved:
    """A world with other users' jobs on all workers, and one session that is reserved as the API does it."""

    def __init__(self, at_s: float = 47.0, longest_s: float = 30.0, others: int = 3, **world: Any) -> None:
        self.world = World(**({"cluster": a_cluster(fast=2)} | world))
        self.others = [self.world.submit(ENDLESS, user="bob") for _ in range(others)]
        self.world.run_until_s(0.5)
        self.id = self.reserve(at_s, longest_s)

    def reserve(self, at_s: float, longest_s: float, **spec: Any) -> str:
        wanted = a_spec(**{"tier": "default"} | a_session(at_s, longest_s, argv=("mlp",), **spec))
        made = Reservations(settings=self.world.settings).accepted(wanted, self.commitments)
        fields = {name: getattr(made, name) for name in ("reserved_type", "scale_factor", "user", "accelerator_types")}
        return self.world.submit(**a_session(at_s, longest_s) | fields)

    @property
    def commitments(self) -> Commitments:
        store, snapshot = self.world.store, self.world.store.snapshot()
        jobs = tuple(job for job in snapshot.jobs.values() if not job.spec.preemptible)
        return Commitments(
            now_s=self.world.clock.now_s(),
            cluster=self.world.backend.whole,
            tiers=store.tiers(),
            jobs=jobs,
            plans=store.rounds(limit=2),
        )

    @property
    def job(self) -> Job:
        return self.world.job(self.id)

    def until_it_starts(self) -> float:
        self.world.run(lambda: self.job.started_at_s is not None)
        assert self.job.started_at_s is not None
        return self.job.started_at_s


def test_it_starts_at_its_time_though_every_worker_was_busy_and_ends_at_its_end() -> None:
    reserved = Reserved(at_s=47.0, longest_s=30.0)
    reserved.world.run_until_s(46.0)
    assert (reserved.job.state, reserved.job.reason) == (JobState.QUEUED, Reason.RESERVED)
    assert "1 of fast reserved for the session: it starts at 1970-01-01 00:00:47 UTC" in reserved.job.message
    assert 47.0 <= reserved.until_it_starts() <= 47.0 + 1.0
    reserved.world.run(lambda: reserved.job.state.is_terminal)
    job = reserved.job
    assert (job.state, job.preemptions, job.attempt) == (JobState.COMPLETED, 0, 1)
    assert job.finished_at_s is not None
    assert 77.0 <= job.finished_at_s <= 79.0


def test_the_round_before_ends_at_its_time_and_each_round_can_be_verified() -> None:
    reserved = Reserved(at_s=47.0)
    reserved.until_it_starts()
    plans = reserved.world.store.rounds()
    assert 47.0 in {plan.starts_at_s for plan in plans}
    records = [reserved.world.store.round(plan.round_index) for plan in reversed(plans)]
    for before, record in pairwise(records):
        again = planned_again(record, before.lag_rounds)
        assert again is not None
        assert differences(record.plan, again) == ((), ())


def test_a_gang_on_several_nodes_gets_its_workers_too() -> None:
    cluster = a_cluster_of_nodes(n0="fast fast", n1="fast fast")
    reserved = Reserved(others=6, cluster=cluster, rates={("mlp", size, "fast"): 10.0 for size in (1, 2, 3, 4)})
    late = reserved.reserve(60.0, 20.0, scale_factor=3)
    assert reserved.until_it_starts() <= 48.0
    reserved.world.run(lambda: reserved.world.job(late).started_at_s is not None)
    started_s = reserved.world.job(late).started_at_s
    assert started_s is not None
    assert 60.0 <= started_s <= 61.0


def test_nothing_starts_that_could_still_be_there_and_what_ends_before_does() -> None:
    reserved = Reserved(at_s=200.0, longest_s=30.0, others=0, cluster=a_cluster(fast=1))
    endless = reserved.world.submit(ENDLESS, user="bob", preemptible=False)
    long = reserved.world.submit(**a_session(None, 300.0, user="bob"))
    short = reserved.world.submit(**a_session(None, 100.0, user="bob"))
    reserved.world.run(lambda: reserved.world.job(short).started_at_s is not None)
    for each in (endless, long):
        job = reserved.world.job(each)
        assert (job.state, job.reason) == (JobState.QUEUED, Reason.NON_PREEMPTIBLE_LIMIT)
        assert "could still run when a reservation begins" in job.message
    assert 200.0 <= reserved.until_it_starts() <= 201.0
    reserved.world.run(lambda: any(reserved.world.job(each).started_at_s is not None for each in (endless, long)))


def test_on_an_idle_cluster_it_starts_by_itself() -> None:
    assert 47.0 <= Reserved(others=0).until_it_starts() <= 48.0


def test_one_begins_when_another_ends_on_the_same_workers() -> None:
    reserved = Reserved(at_s=50.0, longest_s=30.0, cluster=a_cluster(fast=1))
    second = reserved.reserve(80.0, 20.0)
    reserved.world.run(lambda: reserved.world.job(second).started_at_s is not None)
    started_s = reserved.world.job(second).started_at_s
    assert started_s is not None
    assert 80.0 <= started_s <= 82.0
    assert reserved.job.state is JobState.COMPLETED
    assert reserved.job.finished_at_s is not None
    assert reserved.job.finished_at_s >= 80.0


def test_a_restart_forgets_nothing() -> None:
    reserved = Reserved()
    for at_s in (20.0, 46.5):
        reserved.world.run_until_s(at_s)
        reserved.world.driver = reserved.world.new_driver()
    assert 47.0 <= reserved.until_it_starts() <= 48.0


def test_one_that_is_cancelled_gives_its_workers_back() -> None:
    reserved = Reserved(at_s=200.0, others=0, cluster=a_cluster(fast=1))
    endless = reserved.world.submit(ENDLESS, user="bob", preemptible=False)
    reserved.world.run_until_s(20.0)
    reserved.world.store.request_cancel(reserved.id, now_s=20.0)
    reserved.world.run(lambda: reserved.world.job(endless).state is JobState.LEASED)
    assert reserved.job.state is JobState.CANCELLED


def test_without_nodes_it_says_why_and_starts_once_they_are_back() -> None:
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast"), longest_s=60.0)
    reserved.world.ask("node.cordon", "node/n0", node="n0")
    reserved.world.run_until_s(70.0)
    assert (reserved.job.state, reserved.job.reason) == (JobState.QUEUED, Reason.RESERVED)
    assert (
        "was to start at 1970-01-01 00:00:47 UTC, and needs 1 workers of fast. 0 can be used now"
        in reserved.job.message
    )
    reserved.world.ask("node.uncordon", "node/n0", node="n0")
    reserved.until_it_starts()
    reserved.world.run(lambda: reserved.job.state.is_terminal)
    assert reserved.job.state is JobState.COMPLETED
    assert reserved.job.finished_at_s is not None
    assert 107.0 <= reserved.job.finished_at_s <= 109.0


def test_one_that_could_not_start_in_all_its_time_has_failed() -> None:
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast"))
    reserved.world.ask("node.cordon", "node/n0", node="n0")
    reserved.world.run(lambda: reserved.job.state.is_terminal)
    job = reserved.job
    assert (job.state, job.reason) == (JobState.FAILED, Reason.RESERVATION_MISSED)
    assert "could not start" in job.message
    assert job.finished_at_s is not None
    assert 77.0 <= job.finished_at_s <= 90.0


def test_it_takes_another_type_if_its_own_is_gone() -> None:
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast", n1="slow"))
    assert reserved.job.spec.reserved_type == "fast"
    reserved.world.ask("node.cordon", "node/n0", node="n0")
    assert 47.0 <= reserved.until_it_starts() <= 48.0
    assert reserved.world.leases_of(reserved.id)[-1].accelerator_type == "slow"


def test_it_gets_its_own_type_though_the_last_round_gave_those_workers_to_a_job_that_has_ended() -> None:
    """On the other type it would be in the way of a reservation of somebody else."""
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), others=0)
    last = reserved.world.submit(1, accelerator_types=("fast",))
    reserved.world.run(lambda: reserved.world.is_done(last))
    other = reserved.reserve(57.0, 60.0, user="cyd", accelerator_types=("slow",))
    assert 47.0 <= reserved.until_it_starts() <= 48.0
    assert reserved.world.leases_of(reserved.id)[-1].accelerator_type == reserved.job.spec.reserved_type == "fast"
    reserved.id = other
    assert 57.0 <= reserved.until_it_starts() <= 58.0


def test_it_takes_no_other_type_that_is_reserved_for_others() -> None:
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), longest_s=60.0)
    first, reserved.id = reserved.id, reserved.reserve(77.0, 20.0, user="cyd", accelerator_types=("slow",))
    reserved.world.ask("node.cordon", "node/n0", node="n0")
    assert 77.0 <= reserved.until_it_starts() <= 78.0
    assert reserved.world.job(first).reason is Reason.RESERVED and not reserved.world.leases_of(first)


def test_a_type_whose_nodes_have_all_gone_stops_no_planning_and_no_extension() -> None:
    """A session holds the type still, and another one has reserved it."""
    reserved = Reserved(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), at_s=147.0, others=0)
    session = reserved.world.submit(**a_session(longest_s=120.0, user="cyd", accelerator_types=("slow",)))
    reserved.world.run(lambda: reserved.world.job(session).started_at_s is not None)
    last = reserved.reserve(200.0, 20.0, user="dee", accelerator_types=("slow",))
    reserved.world.backend.lose_node("n1")
    reserved.world.backend.whole = a_cluster_of_nodes(n0="fast")
    with pytest.raises(InvalidRequest, match="leave 0 of 0 slow"):
        RULE.check_extension(reserved.world.job(session), 300.0, reserved.commitments)
    reserved.id = last
    other = reserved.world.submit(10, user="eve", preemptible=False)
    reserved.world.run(lambda: reserved.job.state.is_terminal and reserved.world.is_done(other))
    assert reserved.job.reason is Reason.RESERVATION_MISSED


@pytest.mark.parametrize("by_s", [-25.0, 25.0, 3600.0])
def test_a_clock_that_is_set_does_no_harm_beyond_a_round(by_s: float) -> None:
    reserved = Reserved(at_s=147.0, longest_s=7200.0)
    reserved.world.run_until_s(100.0)
    reserved.world.clock.step(by_s)
    started_s = reserved.until_it_starts()
    assert max(147.0, 100.0 + by_s) <= started_s <= max(147.0, 100.0 + by_s) + 2 * ROUND_S


@settings(max_examples=100 if IS_FULL else 8, deadline=None)
@given(
    wanted=st.lists(st.tuples(st.integers(3, 15), st.integers(2, 9), st.integers(1, 3), st.integers(0, 9)), max_size=6),
    endless=st.integers(0, 2),
    restart_s=st.integers(1, 150),
)
def test_every_accepted_reservation_starts_within_a_tenth_of_a_round(
    wanted: list[tuple[int, int, int, int]], endless: int, restart_s: int
) -> None:
    rates = {("mlp", size, "fast"): 10.0 for size in (1, 2, 3)}
    reserved = Reserved(others=5, cluster=a_cluster(fast=3), rates=rates, at_s=30.0, longest_s=20.0)
    accepted = [reserved.id]
    for at, longest, size, seconds in wanted:
        try:
            accepted.append(reserved.reserve(10.0 * at + seconds, 10.0 * longest, scale_factor=size))
        except InvalidRequest:
            continue
    for _ in range(endless):
        reserved.world.submit(ENDLESS, user="eve", preemptible=False)
    reserved.world.run_until_s(float(restart_s))
    reserved.world.driver = reserved.world.new_driver()
    reserved.world.run(lambda: all(reserved.world.job(each).state.is_terminal for each in accepted), ticks=3000)
    for each in accepted:
        job = reserved.world.job(each)
        assert job.state is JobState.COMPLETED, job.message
        assert job.started_at_s is not None
        assert job.spec.reserved_at_s is not None
        assert job.spec.reserved_at_s <= job.started_at_s <= job.spec.reserved_at_s + 0.1 * ROUND_S + 1.0
        assert job.attempt == 1
