"""Workers that get free in the middle of a round are used at once, and only then."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.explaining.waiting import leased
from gavel.mechanism.planning.backfill import Gap, backfill
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import GangSeen, GangState, Job, JobState, Lease, RoundPlan
from tests.builders import a_cluster, a_job
from tests.conftest import IS_FULL
from tests.mechanism.world import GRACE_S, RATES, World, a_cluster_of_nodes

LONG = 100_000
STATED = {"throughput_steps_per_s": {"fast": 10.0, "slow": 5.0}}


def a_world(**over: Any) -> World:
    return World(cluster=a_cluster_of_nodes(n0="fast", n1="slow"), gang_grace_s=GRACE_S, **over)


def test_a_finished_gangs_workers_go_at_once_to_the_next() -> None:
    """1. Two workers, three jobs. 2. One job ends in the middle of a round. 3. The waiting one has its workers."""
    world = a_world()
    short = world.submit(23, **STATED)
    others = [world.submit(LONG, **STATED) for _ in range(2)]
    world.run(lambda: world.is_done(short))
    now_s = world.clock.now_s()
    assert now_s % 10 < 8, "in the middle of a round"
    assert {world.job(job_id).state for job_id in others} == {JobState.LEASED}
    given = [lease for job_id in others for lease in world.leases_of(job_id) if lease.starts_at_s is not None]
    assert [(lease.starts_at_s, lease.expires_at_s) for lease in given] == [(now_s, world.in_force().ends_at_s)]
    (ended,) = world.leases_of(short)[-1:]
    assert ended.expires_at_s == now_s and ended.worker_ids == given[0].worker_ids


def test_an_arrival_does_not_wait_for_the_boundary_when_a_worker_is_free() -> None:
    world = a_world()
    world.submit(LONG, **STATED)
    world.run_until_s(3.0)
    late = world.submit(LONG, **STATED)
    world.driver.tick()
    assert world.job(late).state is JobState.LEASED
    assert world.leases_of(late)[0].expires_at_s == pytest.approx(10.0)


def test_a_waiting_job_is_told_how_much_of_each_type_is_leased_and_never_more_than_there_is() -> None:
    """The amended plan holds the lease that ended and the one that took its place."""
    world = a_world()
    short = world.submit(23, **STATED)
    others = [world.submit(LONG, **STATED) for _ in range(3)]
    world.run(lambda: world.is_done(short))
    (waiting,) = [job for job in map(world.job, others) if job.state is JobState.QUEUED]
    assert waiting.message.startswith("All 2 workers are busy.")
    snapshot = world.store.snapshot()
    assert leased(snapshot.round_records[-1], snapshot.jobs) == {"fast": 1, "slow": 1}


def test_without_the_setting_both_wait_for_the_boundary() -> None:
    world = a_world(backfill=False)
    world.submit(LONG, **STATED)
    world.run_until_s(3.0)
    late = world.submit(LONG, **STATED)
    world.run_until_s(9.9)
    assert world.job(late).state is JobState.QUEUED
    world.run_until_s(10.1)
    assert world.job(late).state is JobState.LEASED


def test_what_is_left_of_the_round_must_be_worth_a_start() -> None:
    world = a_world(minimum_lease_fraction=0.5, planning_lead_fraction=0.0)
    world.submit(LONG, **STATED)
    world.run_until_s(6.0)
    late = world.submit(LONG, **STATED)
    world.run_until_s(9.9)
    assert world.job(late).state is JobState.QUEUED


def test_a_job_that_the_next_round_has_a_place_for_starts_there_early_under_the_same_token() -> None:
    """1. A job arrives when the round is nearly over. 2. The next has a free worker for it; it starts there now."""
    world = a_world(minimum_lease_fraction=0.0)
    world.submit(LONG, **STATED)
    world.run_until_s(3.0)
    late = world.submit(LONG, scale_factor=1, **STATED)
    world.settings.__dict__["backfill"] = False  # as if it had been too late for this round when it arrived
    world.run_until_s(8.0)
    assert world.job(late).state is JobState.QUEUED
    (planned,) = world.leases_of(late)
    world.settings.__dict__["backfill"] = True
    world.driver.tick()
    assert world.job(late).state is JobState.LEASED and world.job(late).generation == planned.generation
    world.run_until_s(15.0)
    assert world.job(late).attempt == 1 and sum(world.job(late).rounds_received.values()) == 2


def test_a_gang_that_is_not_preempted_is_not_started_once_a_round_is_planned_without_it() -> None:
    """1. The next round is planned. 2. A job comes, and a worker is free. 3. It starts when it can stay."""
    world = a_world()
    world.submit(LONG, **STATED)
    world.run_until_s(7.7)
    late = world.submit(300, preemptible=False, **STATED)
    world.run_until_s(9.9)
    assert world.in_force().round_index == 1 and world.job(late).state is JobState.QUEUED
    world.run(lambda: world.is_done(late))
    assert (world.job(late).attempt, world.job(late).preemptions) == (1, 0)


def test_a_gang_that_is_not_preempted_starts_however_little_of_the_round_is_left() -> None:
    world = a_world(planning_lead_fraction=0.0)
    world.submit(LONG, **STATED)
    world.run_until_s(9.5)
    late = world.submit(50, preemptible=False, **STATED)
    world.driver.tick()
    assert world.job(late).state is JobState.LEASED
    world.run(lambda: world.is_done(late))
    assert (world.job(late).attempt, world.job(late).preemptions) == (1, 0)


@pytest.mark.parametrize(("policy", "next_one"), [("fifo", 1), ("shortest_job_first", 2)])
def test_who_stays_where_it_starts_is_chosen_by_the_policy(policy: str, next_one: int) -> None:
    """1. One worker, three tasks, the last one the shortest. 2. The first ends in the middle of a round."""
    world = World(cluster=a_cluster_of_nodes(n0="fast"), gang_grace_s=GRACE_S, policy=policy, round_duration_s=100.0)
    tasks = [world.submit(steps, preemptible=False, **STATED) for steps in (50, 900)]
    world.run(lambda: world.job(tasks[0]).state is JobState.LEASED)
    tasks.append(world.submit(20, preemptible=False, **STATED))
    world.run(lambda: world.is_done(tasks[0]))
    assert [world.job(each).state is JobState.LEASED for each in tasks] == [place == next_one for place in range(3)]


@settings(max_examples=30 if IS_FULL else 8)
@given(
    tasks=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 600), st.booleans()), min_size=2, max_size=12),
    lead=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_gangs_that_may_not_be_preempted_never_are(tasks: list[tuple[int, int, bool]], lead: float) -> None:
    """Tenths of a second of arrivals, and lengths in steps, whatever the round is doing when they come."""
    world, ids = a_world(planning_lead_fraction=lead), []
    for steps, at_ds, preemptible in sorted(tasks, key=lambda task: task[1]):
        world.run_until_s(at_ds / 10)
        ids.append(world.submit(steps, preemptible=preemptible, **STATED))
    world.run(lambda: world.is_done(*ids), ticks=2000)
    assert all(world.job(each).preemptions == 0 for each in ids if not world.job(each).spec.preemptible)


def test_a_restart_in_the_middle_of_an_amended_round_starts_nothing_twice() -> None:
    world = a_world()
    world.submit(23, **STATED)
    others = [world.submit(300, **STATED) for _ in range(3)]
    for _ in range(25):
        world.run(lambda: True)
        world.clock.advance(1.3)
        world.driver = world.new_driver()
    assert any(lease.starts_at_s is not None for job_id in others for lease in world.leases_of(job_id))
    world.run(lambda: world.is_done(*others))
    assert [world.job(job_id).steps_done for job_id in others] == [300] * 3


def test_jobs_with_more_owed_go_before_earlier_ones() -> None:
    gap = a_gap([], waiting=[a_job("early"), a_job("late")], lag={("late", "fast"): 1.0})
    plan = backfill(replace(gap, cluster=a_cluster(fast=1), whole=a_cluster(fast=1)))
    assert plan is not None and [lease.job_id for lease in plan.leases] == ["late"]


def test_with_the_published_planner_rounds_received_do_not_count_as_owed() -> None:
    """1. The second job has had rounds, the first, of little weight, none. 2. The third ends: the first is next."""
    over = {"planner": "published", "solve_on": "event", "planning_lead_fraction": 0.0}
    world = World(cluster=a_cluster_of_nodes(n0="fast", n1="fast"), gang_grace_s=GRACE_S, **over)
    ids = []
    for steps, weight in ((LONG, 0.01), (LONG, 1.0), (23, 1.0), (LONG, 100.0)):
        ids.append(world.submit(steps, weight=weight, **STATED))
        world.clock.advance(0.1)
    light, heavy, short, _ = ids  # the last one never stops
    world.run(lambda: world.is_done(short))
    assert world.job(heavy).rounds_received and world.clock.now_s() % 10 < 8
    assert [lease.starts_at_s for lease in world.leases_of(light)] == [world.clock.now_s()]


# --- any view at all ----------------------------------------------------------------------------------------------


def a_lease(job_id: str, generation: int, *workers: str, **over: Any) -> Lease:
    fields = {"combination": (job_id,), "accelerator_type": workers[0].split("-")[0], "round_index": 3}
    return Lease(
        **fields | {"job_id": job_id, "generation": generation, "worker_ids": workers, "expires_at_s": 10.0} | over
    )


def a_plan(leases: Sequence[Lease], starts_at_s: float = 0.0, index: int = 3) -> RoundPlan:
    return RoundPlan(
        round_index=index,
        parent_round_index=index - 1,
        starts_at_s=starts_at_s,
        duration_s=10.0,
        leases=tuple(leases),
        policy="p",
        allocation_digest="d",
    )


def a_gap(leases: Sequence[Lease], *, waiting: Sequence[Job], jobs: Sequence[Job] = (), **over: Any) -> Gap:
    cluster = a_cluster(fast=3, slow=3)
    fields: dict[str, Any] = {
        "plan": a_plan(leases),
        "ahead": None,
        "jobs": {job.id: job for job in (*jobs, *waiting)},
        "gangs": (),
        "waiting": waiting,
        "cluster": cluster,
        "whole": cluster,
        "estimate": OracleThroughputs({**RATES, ("mlp", 2, "slow"): 0.0}).estimate,
        "lag": {},
        "now_s": 4.0,
    }
    return Gap(**fields | over)


@st.composite
def gaps(draw: st.DrawFn) -> Gap:
    """Six workers; leases of this round and of the next; jobs in every state; gangs that linger."""
    names = [f"j{i}" for i in range(draw(st.integers(1, 6)))]
    free = {"fast": [f"fast-{i}" for i in range(3)], "slow": [f"slow-{i}" for i in range(3)]}
    later = {kind: list(ids) for kind, ids in free.items()}
    jobs, leases, ahead, gangs = [], [], [], []
    for name in names:
        size, generation = draw(st.sampled_from([1, 1, 2])), draw(st.integers(0, 2))
        kind, next_kind = draw(st.sampled_from(["fast", "slow"])), draw(st.sampled_from(["fast", "slow"]))
        planned = draw(st.integers(generation, generation + 1)) or 1
        has_lease = len(free[kind]) >= size and draw(st.booleans())
        is_leased = has_lease and planned == generation and draw(st.booleans())
        wish = {"cancel_requested": draw(st.integers(0, 4)) == 0}
        state = JobState.LEASED if is_leased else JobState.QUEUED
        jobs.append(a_job(name, spec={"scale_factor": size}, generation=generation, state=state, **wish))
        if has_lease:
            workers = [free[kind].pop() for _ in range(size)]
            leases.append(a_lease(name, planned, *workers))
            if is_leased or draw(st.integers(0, 3)) == 0:
                gangs.append(a_gang(name, generation, workers))
        if len(later[next_kind]) >= size and draw(st.booleans()):
            workers, next_one = [later[next_kind].pop() for _ in range(size)], max(planned, generation) + 1
            ahead.append(a_lease(name, next_one, *workers, expires_at_s=20.0, round_index=4))
            if draw(st.integers(0, 3)) == 0:  # it was in force before the clock was set back, and amended then
                ahead[-1] = replace(ahead[-1], starts_at_s=15.0)
                before = draw(st.integers(max(1, generation), next_one - 1))
                ahead.append(a_lease(name, before, *workers, expires_at_s=15.0, round_index=4))
    alive = [job for job in jobs if draw(st.integers(0, 5)) > 0]
    waiting = [job for job in alive if job.is_wanted]
    next_plan = a_plan(ahead, starts_at_s=10.0, index=4) if draw(st.booleans()) else None
    return a_gap(leases, waiting=waiting, jobs=alive, gangs=tuple(gangs), ahead=next_plan)


def a_gang(job_id: str, generation: int, workers: Sequence[str]) -> GangSeen:
    return GangSeen(
        job_id=job_id,
        generation=generation,
        state=GangState.RUNNING,
        accelerator_type=workers[0].split("-")[0],
        worker_ids=tuple(workers),
    )


@settings(max_examples=300 if IS_FULL else 100)
@given(gap=gaps())
def test_any_amended_plan_holds_the_invariants_and_asks_for_nothing_more(gap: Gap) -> None:
    """The invariants are checked inside. New gangs are whole, on free workers, of waiting jobs; then it is full."""
    plan = backfill(gap)
    if plan is None:
        return
    new = [lease for lease in plan.leases if lease.starts_at_s is not None]
    assert new and len(plan.leases) == len(gap.plan.leases) + len(new)
    held = {worker for gang in gap.gangs for worker in gang.worker_ids}
    waiting = {job.id for job in gap.waiting if job.state is JobState.QUEUED}
    for lease in new:
        assert lease.job_id in waiting and held.isdisjoint(lease.worker_ids)
        assert lease.generation > gap.jobs[lease.job_id].generation
        assert (lease.starts_at_s, lease.expires_at_s) == (4.0, 10.0)
    assert backfill(replace(gap, plan=plan)) is None, "asked again, it gives nothing more"


@settings(max_examples=100 if IS_FULL else 40)
@given(gap=gaps())
def test_no_worker_stays_free_that_a_waiting_job_alone_could_use(gap: Gap) -> None:
    plan = backfill(gap) or gap.plan
    ahead = {lease.job_id for lease in gap.ahead.leases} if gap.ahead else set()
    live = [x for x in plan.leases if x.expires_at_s > 4.0 and _keeps_workers(x, gap)]
    taken = {worker for lease in live for worker in lease.worker_ids}
    taken |= {worker for gang in gap.gangs for worker in gang.worker_ids}
    served = {lease.job_id for lease in live}
    left = [job for job in gap.waiting if job.state is JobState.QUEUED and job.id not in served | ahead]
    if any(job.spec.scale_factor == 1 for job in left):
        assert taken >= {worker.id for worker in gap.cluster.workers}


def _keeps_workers(lease: Lease, gap: Gap) -> bool:
    job = gap.jobs.get(lease.job_id)
    if job is None or lease.generation < job.generation:
        return False
    return job.state is JobState.LEASED if lease.generation == job.generation else job.is_wanted
