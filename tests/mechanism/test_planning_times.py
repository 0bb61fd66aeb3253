"""When the next round is decided, when it starts, and when something else is due."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.config import Settings
from gavel.mechanism.planning.timing import (
    DECISIONS_KEPT,
    NEVER_S,
    DecisionTimes,
    can_lease,
    next_pause_end_s,
    next_planning_s,
    next_start_s,
    planning_instant_s,
)
from gavel.mechanism.tick import Tick
from gavel.ports import Snapshot
from gavel.types import (
    Cluster,
    Job,
    JobState,
    Lease,
    NodeState,
    NodeStatus,
    Observation,
    Reason,
    RoundPlan,
    RoundRecord,
)
from gavel.types.regions import Residence
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.test_explaining import a_record

ROUND_S = 10.0
NOW_S = 105.0
SETTINGS = Settings(round_duration_s=ROUND_S)
CLUSTER = a_cluster(t0=2)


def a_plan(lasts_s: float = ROUND_S, starts_at_s: float = 0.0, *leases: Lease) -> RoundPlan:
    return RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=starts_at_s,
        duration_s=lasts_s,
        leases=leases,
        policy="",
        allocation_digest="",
    )


# --- the decision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasts_s", "from_s"), [(10.0, 7.5), (15.0, 11.25), (4.0, 1.5), (1.0, 0.0)])
def test_the_round_after_one_that_is_cut_short_is_decided_as_early_before_it_as_ever(
    lasts_s: float, from_s: float
) -> None:
    assert planning_instant_s(a_plan(lasts_s), SETTINGS, 0.0) == from_s


@pytest.mark.parametrize(("slowest_s", "from_s"), [(1.25, 107.5), (2.0, 106.0), (9.0, 100.0)])
def test_slow_decisions_begin_earlier_but_not_before_the_round_before(slowest_s: float, from_s: float) -> None:
    assert planning_instant_s(a_plan(ROUND_S, 100.0), SETTINGS, slowest_s) == from_s


def taken(*seconds: float) -> DecisionTimes:
    times = DecisionTimes()
    for each in seconds:
        times.add(each)
    return times


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=2 * DECISIONS_KEPT))
def test_the_slowest_decision_is_the_99th_percentile_of_the_last_ones(seconds: list[float]) -> None:
    assert taken(*seconds).slowest_s == pytest.approx(np.percentile(seconds[-DECISIONS_KEPT:], 99.0))


def test_decisions_that_are_long_past_do_not_count() -> None:
    assert taken(99.0, 99.0, *[1.0] * DECISIONS_KEPT).slowest_s == 1.0
    assert taken(99.0, *[1.0] * (DECISIONS_KEPT - 1)).slowest_s > 1.0


def test_before_any_decision_and_where_the_clock_was_set_back_none_is_slow() -> None:
    assert DecisionTimes().slowest_s == taken(-5.0).slowest_s == 0.0 and taken(0.5).slowest_s == 0.5


# --- the next round ---------------------------------------------------------------------------------------------


def a_lease(job_id: str = "j0") -> Lease:
    return Lease(
        job_id=job_id,
        generation=1,
        combination=(job_id,),
        accelerator_type="t0",
        worker_ids=("t0-0",),
        round_index=1,
        expires_at_s=110.0,
    )


def in_force(*leases: Lease, starts_at_s: float = 100.0) -> RoundRecord:
    """A round of 10 s for the jobs j0 and j1 on the two workers of the cluster."""
    problem = a_problem([[1.0], [1.0]], [2])
    return replace(a_record(), plan=a_plan(ROUND_S, starts_at_s, *leases), problem=problem)


def a_tick(
    *jobs: Job, records: tuple[RoundRecord, ...] = (), now_s: float = NOW_S, cluster: Cluster = CLUSTER, **over: Any
) -> Tick:
    snapshot = Snapshot(version=1, jobs={job.id: job for job in jobs}, tiers={}, round_records=records)
    tick = Tick.of(now_s, Observation(observed_at_s=now_s, cluster=cluster, gangs=()), snapshot)
    for name, value in over.items():
        setattr(tick, name, value)
    return tick


J0, J1 = a_job("j0"), a_job("j1")


def starts(tick: Tick, *jobs: Job, slowest_s: float = 0.0) -> float | None:
    return next_start_s(tick, jobs or (J0, J1), SETTINGS, slowest_s)


def test_without_jobs_or_workers_no_round_is_due() -> None:
    assert next_start_s(a_tick(J0), [], SETTINGS, 0.0) is None
    assert starts(a_tick(J0, cluster=a_cluster())) is None


def test_the_first_round_and_one_after_a_pause_start_now() -> None:
    assert starts(a_tick(J0)) == NOW_S
    assert starts(a_tick(J0, records=(in_force(a_lease(), starts_at_s=NOW_S - ROUND_S),))) == NOW_S
    assert starts(a_tick(J0, records=(in_force(a_lease(), starts_at_s=50.0),))) == NOW_S


def test_the_next_round_follows_the_one_in_force_once_its_instant_has_come() -> None:
    records = (in_force(a_lease()),)
    at = {now_s: starts(a_tick(J0, J1, records=records, now_s=now_s)) for now_s in (100.0, 107.4, 107.5, 109.9)}
    assert at == {100.0: None, 107.4: None, 107.5: 110.0, 109.9: 110.0}
    assert starts(a_tick(J0, records=records), slowest_s=2.5) == 110.0


def test_while_a_round_is_planned_ahead_none_is_due() -> None:
    records = (in_force(a_lease()), in_force(a_lease(), starts_at_s=NOW_S + 0.1))
    assert starts(a_tick(J0, records=records)) is None
    assert starts(a_tick(J0, records=(in_force(a_lease(), starts_at_s=NOW_S + 20.0),))) is None


@pytest.mark.parametrize(
    ("job", "held", "expected"),
    [
        (J0, {}, None),
        (replace(J0, retry_at_s=NOW_S), {}, None),
        (replace(J0, retry_at_s=NOW_S + 1.0), {}, NOW_S),
        (replace(J0, pause_requested=True), {}, NOW_S),
        (J0, {"j0": (Reason.QUOTA_EXCEEDED, "")}, NOW_S),
        (replace(J0, state=JobState.LEASED), {"j0": (Reason.QUOTA_EXCEEDED, "")}, None),
        (replace(J0, state=JobState.LEASED), {"j0": (Reason.MOVING, "")}, None),
        (J1, {}, NOW_S),
    ],
    ids=[
        "it is served",
        "it may start again",
        "it was lost",
        "it is paused",
        "its tier is out",
        "its tier is out, its gang runs on",
        "it moves once its lease is over",
        "it has ended",
    ],
)
def test_a_round_that_serves_none_of_its_jobs_any_more_gives_way_now(
    job: Job, held: dict[str, tuple[Reason, str]], expected: float | None
) -> None:
    assert starts(a_tick(job, J1, records=(in_force(a_lease()),), held=held)) == expected


def test_a_round_that_begins_now_and_serves_nobody_gives_way_at_once() -> None:
    paused = replace(J0, pause_requested=True)
    assert starts(a_tick(paused, J1, records=(in_force(a_lease(), starts_at_s=NOW_S),))) == NOW_S


def test_a_round_that_serves_one_of_its_jobs_goes_on() -> None:
    tick = a_tick(J1, a_job("j2"), records=(in_force(a_lease("j0"), a_lease("j1")),))
    assert starts(tick, J1, a_job("j2")) is None


def test_a_round_that_could_lease_nothing_is_not_decided_again_for_the_same_jobs_and_workers() -> None:
    records, late = (in_force(),), a_job("late")
    assert starts(a_tick(J0, J1, records=records)) is None
    assert starts(a_tick(J0, records=records), J0) is None
    assert starts(a_tick(J0, J1, records=records, now_s=108.0)) == 110.0
    assert starts(a_tick(J0, late, records=records), J0, late) == NOW_S
    assert starts(a_tick(J0, records=records, cluster=a_cluster(t0=3)), J0) == NOW_S
    assert starts(a_tick(J0, records=records, cluster=a_cluster(t0=2, t1=1)), J0) == NOW_S


def test_gangs_that_cannot_be_preempted_are_planned_for_without_usable_workers() -> None:
    def leased(preemptible: bool) -> Job:
        return a_job("j0", spec={"preemptible": preemptible}, state=JobState.LEASED)

    nowhere = a_cluster()
    assert can_lease(a_tick(leased(False), cluster=nowhere)) and not can_lease(a_tick(leased(True), cluster=nowhere))
    assert can_lease(a_tick()) and not can_lease(a_tick(a_job(spec={"preemptible": False}), cluster=nowhere))
    closed = {"node-0": NodeStatus(name="node-0", state=NodeState.CORDONED, is_cordoned=True)}
    assert not can_lease(a_tick(nodes=closed))


# --- when something is due ----------------------------------------------------------------------------------------


def planning_s(tick: Tick, *jobs: Job, slowest_s: float = 0.0) -> float:
    return next_planning_s(tick, jobs, SETTINGS, slowest_s)


def test_a_round_is_due_at_its_start_or_at_the_decision_of_the_one_after_it() -> None:
    planned = (in_force(a_lease()), in_force(a_lease(), starts_at_s=110.0))
    assert planning_s(a_tick(J0, records=planned), J0) == 110.0
    assert planning_s(a_tick(J0, records=planned[:1]), J0) == 107.5
    assert planning_s(a_tick(J0, records=planned[:1]), J0, slowest_s=2.0) == 106.0
    assert planning_s(a_tick(J0, records=planned, now_s=110.0), J0) == 117.5
    assert planning_s(a_tick(J0, records=planned[:1], now_s=109.0), J0) == 109.0


def test_without_rounds_jobs_or_workers_none_is_due() -> None:
    records = (in_force(a_lease()),)
    assert planning_s(a_tick(J0), J0) == planning_s(a_tick(records=records)) == NEVER_S
    assert planning_s(a_tick(J0, records=records, cluster=a_cluster()), J0) == NEVER_S == float("inf")


LOST = a_job("lost", retry_at_s=140.0)
MOVES = a_job("moves", residence=Residence(arrives_at_s=130.0))
RESERVED = a_job("s", spec={"preemptible": False, "longest_s": 60.0, "reserved_at_s": 120.0})
DRAINING = NodeStatus(name="n0", state=NodeState.DRAINING, is_cordoned=True, drain_by_s=115.0)


@pytest.mark.parametrize(
    ("jobs", "now_s", "due_s"),
    [
        ((LOST, MOVES, RESERVED), 105.0, 110.0),
        ((LOST, MOVES, RESERVED), 109.9, 110.0),
        ((LOST, MOVES, RESERVED), 110.0, 120.0),
        ((LOST, MOVES, RESERVED), 120.0, 130.0),
        ((LOST, MOVES, RESERVED), 130.0, 140.0),
        ((LOST, MOVES, RESERVED), 140.0, NEVER_S),
        ((LOST, MOVES), 110.0, 130.0),
        ((a_job("plain"),), 110.0, NEVER_S),
    ],
)
def test_the_next_of_drains_reservations_moves_and_losses_is_due(
    jobs: tuple[Job, ...], now_s: float, due_s: float
) -> None:
    """Gangs of a drained node are stopped 5 s before the end of the window."""
    nodes = {"n0": DRAINING, "n1": NodeStatus(name="n1")}
    assert next_pause_end_s(a_tick(*jobs, now_s=now_s, nodes=nodes), SETTINGS) == due_s
