"""Which gangs are started, extended and stopped at the limits of leases and rounds: whole answers are compared."""

from dataclasses import replace
from typing import Any

import pytest

from gavel.mechanism.cluster.reconcile import Actions, reconcile
from gavel.ports import ExtendLease, ForgetGang, Instruction, SetResources, StopGang
from gavel.types import (
    EphemeralResource,
    GangSeen,
    GangState,
    Job,
    JobState,
    Lease,
    NodeState,
    NodeStatus,
    Observation,
    ReplicaSpec,
)
from gavel.types.services import Check, Serving
from tests.builders import a_job
from tests.mechanism.test_reconcile import CLUSTER, a_gang, a_lease, a_plan, decide
from tests.mechanism.world import a_cluster_of_nodes

LEASED = a_job("a", generation=1, state=JobState.LEASED)
WAITING = a_gang(state=GangState.WAITING)
ENDED = a_gang(state=GangState.ENDED)


def extended(until_s: float, job_id: str = "a", *, node: str = "node-0") -> tuple[Instruction, ...]:
    """What a gang on one worker is sent so that it may run until then; the grace is 5 s."""
    resource = EphemeralResource(
        name=f"gang-{job_id}-1",
        node=node,
        capacity=1,
        owner="gavel",
        lease_expires_at_s=until_s + 5.0,
        generation=1,
    )
    extension = ExtendLease(job_id=job_id, generation=1, expires_at_s=until_s)
    return SetResources(resources=(resource,)), extension


def stopped(reason: str, job_id: str = "a") -> StopGang:
    return StopGang(job_id=job_id, generation=1, reason=reason)


def test_a_round_is_in_force_from_its_start_until_its_end() -> None:
    ahead = a_plan(a_lease("b", workers=("fast-1",), round_index=2), round_index=2)
    plans, jobs = [a_plan(a_lease()), ahead], [a_job("a"), a_job("b")]
    started = {at_s: [lease.job_id for lease in decide(plans, jobs, at_s=at_s).launches] for at_s in (0.0, 9.9, 10.0)}
    assert started == {0.0: ["a"], 9.9: ["a"], 10.0: ["b"]}


def test_a_lease_that_ends_now_starts_nothing() -> None:
    cut = replace(a_lease(), expires_at_s=1.0)
    assert decide([a_plan(cut)], [a_job("a")], at_s=0.9).launches == (cut,)
    assert decide([a_plan(cut)], [a_job("a")], at_s=1.0).launches == ()


@pytest.mark.parametrize(
    ("job", "gangs"),
    [
        (LEASED, ()),
        (replace(LEASED, report_sequence=4), ()),
        (replace(LEASED, state=JobState.QUEUED), (a_gang(),)),
        (replace(LEASED, generation=2), (a_gang(), a_gang(2, GangState.ENDED))),
        (replace(LEASED, generation=2), (a_gang(2, GangState.ENDED),)),
        (replace(LEASED, generation=2, state=JobState.QUEUED), ()),
    ],
    ids=[
        "the end of the gang before is not stored",
        "nor where that gang has reported",
        "the gang before still runs",
        "that before the gang that ended does",
        "this gang has ended already",
        "its end is stored",
    ],
)
def test_a_gang_starts_once_and_after_the_end_of_the_one_before(job: Job, gangs: tuple[GangSeen, ...]) -> None:
    assert decide([a_plan(a_lease(generation=2))], [job], *gangs).launches == ()


def test_a_gang_that_cannot_be_preempted_starts_only_if_the_round_that_follows_keeps_it() -> None:
    job = a_job("a", spec={"preemptible": False})
    now, kept, ended = a_plan(a_lease()), a_plan(a_lease(round_index=2), round_index=2), a_plan(round_index=2)
    assert decide([now], [job]).launches == (a_lease(),)
    assert decide([now, kept], [job]).launches == (replace(a_lease(), expires_at_s=20.0),)
    assert decide([now, ended], [job]).launches == ()
    assert decide([now, ended], [a_job("a")]).launches == (a_lease(),)


def test_a_gang_that_no_plan_holds_is_stopped_and_one_that_has_ended_is_forgotten() -> None:
    forgotten = ForgetGang(job_id="a", generation=1)
    assert decide([], [LEASED], a_gang()).instructions == (stopped("no longer planned"),)
    for job in (replace(LEASED, state=JobState.QUEUED), replace(LEASED, generation=2)):
        assert decide([], [job], ENDED).instructions == (forgotten,)
    assert decide([], [LEASED], ENDED).instructions == ()


def test_a_gang_that_waits_beyond_its_lease_is_stopped_while_one_that_runs_ends_by_itself() -> None:
    """Its lease ends with its round, and no later round is planned."""
    over = stopped("its lease ended before it could start")
    plan = a_plan(a_lease())
    assert decide([plan], [LEASED], WAITING, at_s=9.9).instructions == extended(10.0)
    assert decide([plan], [LEASED], WAITING, at_s=10.0).instructions == (over, *extended(10.0))
    assert decide([plan], [LEASED], a_gang(), at_s=10.0).instructions == extended(10.0)


def test_a_gang_that_waits_for_a_round_that_is_ahead_is_left_alone() -> None:
    ahead = a_plan(a_lease(round_index=2), round_index=2)
    assert decide([a_plan(), ahead], [LEASED], WAITING).instructions == extended(20.0)


def test_a_gang_whose_lease_was_cut_within_the_round_in_force_is_left_to_its_lease() -> None:
    cut = replace(a_lease(), expires_at_s=0.5)
    assert decide([a_plan(cut)], [LEASED], WAITING).instructions == extended(0.5)


def test_a_gang_on_a_node_that_is_drained_is_stopped_and_the_others_are_extended() -> None:
    cluster = a_cluster_of_nodes(n0="fast", n1="fast")
    plan = a_plan(a_lease(workers=("n0-0",)), a_lease("b", workers=("n1-0",)))
    gangs = (
        replace(a_gang(), worker_ids=("n0-0",)),
        replace(a_gang(job_id="b"), worker_ids=("n1-0",)),
    )
    drained = NodeStatus(name="n0", state=NodeState.DRAINING, is_cordoned=True, drain_by_s=6.0)
    seen = Observation(observed_at_s=1.0, cluster=cluster, gangs=gangs)
    jobs = {job_id: replace(LEASED, id=job_id) for job_id in "ab"}
    actions = reconcile([plan], jobs, seen, lease_grace_s=5.0, nodes={"n0": drained})
    instructions = (*extended(10.0, "b", node="n1"), stopped("its node is being drained"))
    assert actions == Actions(instructions=instructions)


SERVING = Serving(port=8000, readiness=Check())
REPLICA = ReplicaSpec(service="s", version=1, serving=SERVING)


@pytest.mark.parametrize(
    ("spec", "started_at_s", "until_s"),
    [
        ({}, 0.0, 0.5),
        ({"longest_s": 60.0}, 3.0, 63.0),
        ({"longest_s": 60.0}, None, 0.5),
        ({"longest_s": 0.25}, 0.0, 0.5),
        ({"replica": REPLICA}, 0.0, 86_400.5),
    ],
    ids=["a batch job", "a session", "a session before its start", "a session at its end", "a replica"],
)
def test_where_leases_last_a_session_has_one_to_its_end_and_a_replica_for_a_day(
    spec: dict[str, Any], started_at_s: float | None, until_s: float
) -> None:
    job = a_job("a", generation=1, state=JobState.LEASED, started_at_s=started_at_s, spec=spec)
    plan = a_plan(replace(a_lease(), expires_at_s=0.5))
    seen = Observation(observed_at_s=0.1, cluster=CLUSTER, gangs=(a_gang(),))
    lasting = reconcile([plan], {"a": job}, seen, lease_grace_s=5.0, leases_last_sessions=True)
    assert lasting.instructions == extended(until_s)
    assert reconcile([plan], {"a": job}, seen, lease_grace_s=5.0).instructions == extended(0.5)


def test_nothing_is_extended_on_workers_that_are_gone_and_the_rest_is() -> None:
    gone: Lease = a_lease(workers=("fast-0", "gone-0"))
    plan = a_plan(gone, a_lease("b", workers=("fast-1",)))
    gangs = (a_gang(), a_gang(job_id="b"))
    assert decide([plan], [LEASED, replace(LEASED, id="b")], *gangs).instructions == extended(10.0, "b")
