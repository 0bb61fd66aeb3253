from dataclasses import replace
from typing import Any

from gavel.mechanism.cluster.reconcile import gang_resources, launch, reconcile
from gavel.ports import ExtendLease, ForgetGang, SetResources, StopGang
from gavel.types import GangSeen, GangState, Job, JobState, Lease, NodeState, NodeStatus, Observation, RoundPlan
from tests.builders import a_cluster, a_job

CLUSTER = a_cluster(fast=2)


def a_lease(
    job_id: str = "a", generation: int = 1, workers: tuple[str, ...] = ("fast-0",), round_index: int = 1
) -> Lease:
    return Lease(
        job_id=job_id,
        generation=generation,
        combination=(job_id,),
        accelerator_type="fast",
        worker_ids=workers,
        round_index=round_index,
        expires_at_s=round_index * 10.0,
    )


def a_plan(*leases: Lease, round_index: int = 1) -> RoundPlan:
    return RoundPlan(
        round_index=round_index,
        parent_round_index=round_index - 1,
        starts_at_s=(round_index - 1) * 10.0,
        duration_s=10.0,
        leases=leases,
        policy="test",
        allocation_digest="",
    )


def a_gang(generation: int = 1, state: GangState = GangState.RUNNING, job_id: str = "a") -> GangSeen:
    return GangSeen(job_id=job_id, generation=generation, state=state, accelerator_type="fast", worker_ids=("fast-0",))


def decide(plans: list[RoundPlan], jobs: list[Job], *gangs: GangSeen, at_s: float = 1.0) -> Any:
    seen = Observation(observed_at_s=at_s, cluster=CLUSTER, gangs=gangs)
    return reconcile(plans, {job.id: job for job in jobs}, seen, lease_grace_s=5.0)


def test_a_queued_job_with_a_lease_in_force_is_launched_once() -> None:
    decision = decide([a_plan(a_lease())], [a_job("a")])
    assert decision.launches == (a_lease(),)
    leased = a_job("a", generation=1, state=JobState.LEASED)
    assert decide([a_plan(a_lease())], [leased], a_gang(state=GangState.WAITING)).launches == ()


def test_a_round_planned_ahead_launches_nothing_but_extends_who_stays() -> None:
    ahead = a_plan(a_lease(round_index=2), a_lease("b", workers=("fast-1",), round_index=2), round_index=2)
    jobs = [a_job("a", generation=1, state=JobState.LEASED), a_job("b")]
    decision = decide([a_plan(a_lease()), ahead], jobs, a_gang())
    assert decision.launches == ()
    assert ExtendLease(job_id="a", generation=1, expires_at_s=20.0) in decision.instructions
    renewed = next(each for each in decision.instructions if isinstance(each, SetResources))
    assert renewed.resources[0].lease_expires_at_s == 25.0


def test_a_gang_that_stays_starts_with_the_lease_of_the_newest_round() -> None:
    """It got that only once it was seen: too late, where it started in the last two ticks of a round."""
    ahead = a_plan(a_lease(round_index=2), a_lease("b", 2, ("fast-1",), round_index=2), round_index=2)
    now = a_plan(a_lease(), a_lease("b", 1, ("fast-1",)))
    launched = decide([now, ahead], [a_job("a"), a_job("b")], at_s=9.0).launches
    assert [(lease.job_id, lease.generation, lease.expires_at_s) for lease in launched] == [("a", 1, 20), ("b", 1, 10)]


def test_a_job_that_moves_waits_for_its_old_gang_to_end() -> None:
    """1. Round 2 moves a to another worker. 2. While the old gang lives nothing starts. 3. Once it is over, it does."""
    plans = [a_plan(a_lease()), a_plan(a_lease(generation=2, workers=("fast-1",), round_index=2), round_index=2)]
    leased = a_job("a", generation=1, state=JobState.LEASED)
    assert decide(plans, [leased], a_gang(), at_s=10.1).launches == ()
    queued = replace(leased, state=JobState.QUEUED)
    decision = decide(plans, [queued], a_gang(state=GangState.ENDED), at_s=10.2)
    assert [lease.generation for lease in decision.launches] == [2]
    assert ForgetGang(job_id="a", generation=1) in decision.instructions


def test_a_launch_that_was_committed_but_never_arrived_is_repeated() -> None:
    leased = a_job("a", generation=1, state=JobState.LEASED)
    assert decide([a_plan(a_lease())], [leased]).launches == (a_lease(),)
    assert decide([a_plan(a_lease())], [replace(leased, report_sequence=1)]).launches == (), "it has run"


def test_a_cancelled_job_is_stopped_and_not_launched() -> None:
    wish = a_job("a", generation=1, state=JobState.LEASED, cancel_requested=True)
    decision = decide([a_plan(a_lease())], [wish], a_gang())
    assert [type(each) for each in decision.instructions] == [StopGang]
    assert decide([a_plan(a_lease())], [a_job("a", cancel_requested=True)]).launches == ()


def test_a_gang_that_nobody_knows_is_stopped_and_then_forgotten() -> None:
    assert [type(x) for x in decide([], [], a_gang()).instructions] == [StopGang]
    assert decide([], [], a_gang(state=GangState.ENDED)).instructions == (ForgetGang(job_id="a", generation=1),)


def test_an_end_that_is_not_committed_yet_is_not_forgotten() -> None:
    leased = a_job("a", generation=1, state=JobState.LEASED)
    assert decide([], [leased], a_gang(state=GangState.ENDED)).instructions == ()


def test_a_round_that_is_over_launches_nothing() -> None:
    assert decide([a_plan(a_lease())], [a_job("a")], at_s=10.0).launches == ()


def test_the_same_view_twice_gives_the_same_answer() -> None:
    jobs = [a_job("a", generation=1, state=JobState.LEASED)]
    assert decide([a_plan(a_lease())], jobs, a_gang()) == decide([a_plan(a_lease())], jobs, a_gang())


def test_a_gang_is_said_as_one_resource_a_node_with_a_unit_a_task() -> None:
    lease = a_lease(workers=("fast-0", "fast-1"))
    resources = gang_resources(lease, {"fast-0": "n0", "fast-1": "n0"}, lease_grace_s=5.0).resources
    assert [(each.name, each.node, each.capacity, each.generation) for each in resources] == [("gang-a-1", "n0", 2, 1)]
    assert launch(lease, a_job("a", steps_done=7, checkpoint="0-7")).resource == "gavel/gang-a-1"


def test_a_lease_that_was_cut_is_history_and_launches_nothing() -> None:
    """It was given to a gang that could not start; its workers have gone to another since."""
    cut = replace(a_lease(), expires_at_s=0.5)
    other = replace(a_lease("b"), starts_at_s=0.5)
    decision = decide([a_plan(cut, other)], [a_job("a"), a_job("b")])
    assert decision.launches == (other,)


def test_nothing_new_is_launched_on_a_closed_node_but_what_was_committed_is() -> None:
    """A launch that was committed, and then lost with its process, is carried out: its job counts on it."""
    nodes = {"node-0": NodeStatus(name="node-0", state=NodeState.CORDONED, is_cordoned=True)}
    seen = Observation(observed_at_s=1.0, cluster=CLUSTER, gangs=())
    committed = a_job("b", generation=1, state=JobState.LEASED)
    plan = a_plan(a_lease(), a_lease("b", workers=("fast-1",)))
    jobs = {"a": a_job("a"), "b": committed}
    decision = reconcile([plan], jobs, seen, lease_grace_s=5.0, nodes=nodes)
    assert [lease.job_id for lease in decision.launches] == ["b"]


def test_what_is_left_on_a_draining_node_is_stopped_a_grace_before_its_window_ends() -> None:
    status = NodeStatus(name="node-0", state=NodeState.DRAINING, is_cordoned=True, drain_by_s=7.0)
    jobs = {"a": a_job("a", generation=1, state=JobState.LEASED)}

    def stops_at(at_s: float) -> list[StopGang]:
        seen = Observation(observed_at_s=at_s, cluster=CLUSTER, gangs=(a_gang(),))
        decision = reconcile([a_plan(a_lease())], jobs, seen, lease_grace_s=5.0, nodes={"node-0": status})
        return [each for each in decision.instructions if isinstance(each, StopGang)]

    assert stops_at(1.9) == [] and [(stop.job_id, stop.generation) for stop in stops_at(2.0)] == [("a", 1)]


def test_a_lease_on_workers_that_are_gone_is_not_launched() -> None:
    plan = a_plan(a_lease(workers=("gone-0",)))
    assert decide([plan], [a_job("a")]).launches == ()
