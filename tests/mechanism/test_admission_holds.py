"""Jobs that are paused, run after others, fail and are retried, or whose tier has spent its month: by the driver."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.explaining.preemption_audit import preemptions
from gavel.mechanism.jobs.admission_holds import held, used
from gavel.mechanism.observing.charging import charges
from gavel.mechanism.planning.caps import capped, uncapped
from gavel.ports import JobEdit, ThroughputEstimate, ThroughputSource
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import (
    Allocation,
    Certificate,
    GangExit,
    GangOutcome,
    GangState,
    JobState,
    Reason,
    Tier,
    Usage,
    month_of,
)
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.world import World

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
PROFILE = settings(max_examples=200 if IS_FULL else 8)


def pause(world: World, job_id: str, is_paused: bool = True) -> None:
    world.store.request_pause(job_id, is_paused=is_paused, now_s=world.clock.now_s())


def crash(world: World, job_id: str, exit_code: int = 3) -> None:
    """The job's program ends with an error, without a checkpoint."""
    now_s = world.backend._advance()
    gang = next(g for g in world.backend._gangs.values() if g.key[0] == job_id and g.state is GangState.RUNNING)
    world.backend._end(gang, now_s, GangExit(outcome=GangOutcome.EXITED, exit_code=exit_code, message="boom"))


def put_tier(world: World, tier: Tier) -> None:
    stored = {each.name: each.version for each in world.store.tiers()}
    world.store.put_tier(tier, expected_version=stored.get(tier.name), by="op", now_s=world.clock.now_s())


def runs(world: World, job_id: str) -> bool:
    return world.job(job_id).state is JobState.LEASED and world.job(job_id).steps_reported > 0


# --- pause ------------------------------------------------------------------------------------------------------


def test_a_paused_job_checkpoints_leaves_its_workers_and_goes_on_from_there() -> None:
    world = World()
    job_id = world.submit(10_000)
    world.run(lambda: runs(world, job_id))
    world.clock.advance(3.0)
    pause(world, job_id)
    world.run(lambda: world.job(job_id).reason == Reason.PAUSED)
    paused = world.job(job_id)
    assert paused.state is JobState.QUEUED and paused.steps_done > 0 and paused.preemptions == 0
    assert f"paused at step {paused.steps_done}" in paused.message
    world.run_until_s(world.clock.now_s() + 50)
    assert world.job(job_id).attempt == paused.attempt and not world.holding("node-0") and world.driver.is_idle
    pause(world, job_id, False)
    world.run(lambda: world.job(job_id).state is JobState.LEASED)
    world.run(lambda: world.job(job_id).steps_done > paused.steps_done)


def test_a_job_paused_before_it_ran_waits_and_others_pass_it() -> None:
    world = World()
    first, second = world.submit(100), world.submit(100)
    pause(world, first)
    world.run(lambda: world.is_done(second))
    assert (world.job(first).state, world.job(first).reason, world.job(first).attempt) == (JobState.QUEUED, "Paused", 0)


def test_a_paused_job_can_be_cancelled() -> None:
    world = World()
    job_id = world.submit(10_000)
    world.run(lambda: runs(world, job_id))
    pause(world, job_id)
    world.run(lambda: world.job(job_id).reason == Reason.PAUSED)
    world.store.request_cancel(job_id, now_s=world.clock.now_s())
    world.run(lambda: world.job(job_id).state is JobState.CANCELLED)


@PROFILE
@given(user_requests=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0, 25)), max_size=12))
def test_whatever_is_paused_and_resumed_every_job_does_exactly_its_steps(
    user_requests: list[tuple[int, bool, float]],
) -> None:
    world = World()
    ids = [world.submit(150 + 10 * i) for i in range(3)]
    for index, is_paused, seconds in user_requests:
        if not world.job(ids[index]).state.is_terminal:
            pause(world, ids[index], is_paused)
        world.run_until_s(world.clock.now_s() + seconds)
    for job_id in ids:
        if not world.job(job_id).state.is_terminal:
            pause(world, job_id, False)
    world.run(lambda: world.is_done(*ids))
    assert [world.job(job_id).steps_done for job_id in ids] == [150, 160, 170]


# --- priority and weight ----------------------------------------------------------------------------------------


def test_a_job_of_higher_priority_goes_first_in_a_tier_that_serves_in_order() -> None:
    world = World(cluster=a_cluster(fast=1))
    put_tier(world, Tier(name="default", objective="fifo"))
    early, late = world.submit(200), world.submit(200, priority=5)
    world.run(lambda: world.is_done(late))
    assert not world.is_done(early)


def test_a_changed_weight_counts_from_the_next_round_on() -> None:
    world = World(cluster=a_cluster(fast=1))
    ids = [world.submit(100_000) for _ in range(2)]
    world.run_until_s(30)
    world.store.edit_job(ids[0], JobEdit(priority=2), expected_version=None, now_s=world.clock.now_s())
    world.run_until_s(60)
    assert world.store.round().problem.weight.tolist() == [4.0, 1.0]


# --- after others -----------------------------------------------------------------------------------------------


def test_a_job_runs_after_those_it_names() -> None:
    world = World()
    first = world.submit(100)
    second = world.submit(100, after=(first,))
    world.run(lambda: runs(world, first))
    assert world.job(second).reason == Reason.WAITING_FOR_JOBS and first in world.job(second).message
    world.run(lambda: world.is_done(first, second))
    launched = next(e for e in world.store.events(second) if e.kind == "gang.launched")
    completed = next(e for e in world.store.events(first) if e.kind == "job.completed")
    assert launched.sequence > completed.sequence


def test_a_job_fails_with_the_one_it_waits_for_and_says_so() -> None:
    world = World()
    first = world.submit(10_000)
    second = world.submit(100, after=(first,))
    third = world.submit(100, after=(second,))
    world.run(lambda: runs(world, first))
    crash(world, first)
    world.run(lambda: world.job(third).state.is_terminal)
    assert [world.job(each).state for each in (first, second, third)] == [JobState.FAILED] * 3
    assert (world.job(second).reason, world.job(second).attempt) == ("DependencyFailed", 0)
    assert f"job {first}, which is FAILED" in world.job(second).message


def test_a_restarted_driver_still_knows_that_a_predecessor_completed() -> None:
    world = World()
    first = world.submit(50)
    world.run(lambda: world.is_done(first))
    second = world.submit(50, after=(first,))
    assert world.job(second).waits_for == ()
    slow = world.submit(200)
    third = world.submit(50, after=(slow,))
    world.run(lambda: runs(world, slow))
    world.driver = world.new_driver()
    world.run(lambda: world.is_done(second, slow, third))


# --- retries ----------------------------------------------------------------------------------------------------


def test_a_program_that_fails_is_started_again_as_often_as_its_user_allows() -> None:
    world = World()
    job_id = world.submit(10_000, max_retries=2)
    for failures in (1, 2):
        world.run(lambda: runs(world, job_id))
        crash(world, job_id)
        world.run(lambda: world.job(job_id).failures == failures)  # noqa: B023
    world.run(lambda: runs(world, job_id))
    crash(world, job_id)
    world.run(lambda: world.job(job_id).state is JobState.FAILED)
    history = [event for event in world.store.events(job_id) if event.kind in ("gang.failed", "job.failed")]
    assert [event.kind for event in history] == ["gang.failed", "gang.failed", "job.failed"]
    assert "exit code 3" in history[0].message and "Retry 1 of 2 follows" in history[0].message
    assert world.job(job_id).exit_code == 3


# --- limits -----------------------------------------------------------------------------------------------------


def test_a_tier_that_has_spent_its_month_is_held_and_goes_on_in_the_next() -> None:
    world = World(cluster=a_cluster(fast=1))
    put_tier(world, Tier(name="default", accelerator_hours_per_month=60 / 3600))
    job_id = world.submit(2000)  # 200 s
    world.run(lambda: world.job(job_id).reason == Reason.QUOTA_EXCEEDED)
    job = world.job(job_id)
    assert job.state is JobState.QUEUED and 0 < job.steps_done < 2000
    assert "of 0.0166667 accelerator hours in 1970-01" in job.message
    world.run_until_s(world.clock.now_s() + 100)
    assert world.job(job_id).steps_done == job.steps_done
    put_tier(world, Tier(name="default", version=2))
    world.run(lambda: world.is_done(job_id))
    (spent,) = world.store.usage("1970-01")
    assert spent.accelerator_hours == pytest.approx(200 / 3600, rel=0.02)
    assert spent.cost_usd == pytest.approx(200 / 3600, rel=0.02)  # a worker costs 1 USD an hour


def test_a_limit_above_holds_the_tiers_below_and_a_new_month_frees_them() -> None:
    tiers = {
        "team": Tier(name="team", parent="department"),
        "department": Tier(name="department", budget_usd_per_month=10.0),
    }
    usage = {(name, "1970-01"): Usage(tier=name, month="1970-01", cost_usd=5.0) for name in tiers}
    job = a_job(spec={"tier": "team"})
    assert held([job], tiers=tiers, usage=usage, now_s=5.0)[job.id][0] == "QuotaExceeded"
    assert held([job], tiers=tiers, usage=usage, now_s=40 * 86_400.0) == {}
    assert used("department", tiers, usage, "1970-01").cost_usd == 10.0
    assert month_of(31 * 86_400.0 - 1) == "1970-01" and month_of(31 * 86_400.0) == "1970-02"


ESTIMATOR = OracleThroughputs(
    {("mlp", size, name): rate for size in (1, 2) for name, rate in (("fast", 10.0), ("slow", 2.5))}
)


def test_hours_are_charged_by_relative_speed_for_what_was_held_since() -> None:
    before = a_job(spec={"scale_factor": 2}, received_s={"fast": 100.0})
    after = replace(before, received_s={"fast": 100.0, "slow": 3600.0})
    (part,) = charges({before.id: before}, [after], cluster=a_cluster(fast=2, slow=2), estimator=ESTIMATOR, now_s=0.0)
    assert part == Usage(tier="gold", month="1970-01", accelerator_hours=0.5, cost_usd=2.0, worker_hours=2.0)
    assert charges({after.id: after}, [after], cluster=a_cluster(fast=1), estimator=ESTIMATOR, now_s=0.0) == ()


def test_hours_that_were_accounted_for_too_much_are_given_back() -> None:
    before = a_job(spec={"scale_factor": 2}, received_s={"fast": 7200.0})
    after = replace(before, received_s={"fast": 3600.0})
    (part,) = charges({before.id: before}, [after], cluster=a_cluster(fast=2, slow=2), estimator=ESTIMATOR, now_s=0.0)
    assert (part.worker_hours, part.accelerator_hours) == (-2.0, -2.0)


def test_hours_are_charged_by_the_speed_of_the_job_s_own_kind() -> None:
    """It was seen to differ: on the slow type it is as fast as on the fast one, where its kind is four times slower."""
    rows = [("mlp", "fast", 10.0), ("mlp", "slow", 2.5), ("mlp#j1", "fast", 10.0), ("mlp#j1", "slow", 10.0)]
    table = [
        ThroughputEstimate(
            kind=kind, scale_factor=1, accelerator_type=name, steps_per_s=rate, relative_error=0.02,
            source=ThroughputSource.MEASURED, measurements=9,
        )
        for kind, name, rate in rows
    ]  # fmt: skip
    estimator = ReconciledThroughputs.from_table(table)
    job = a_job("j1", received_s={"slow": 3600.0})
    (part,) = charges({}, [job], cluster=a_cluster(fast=1, slow=1), estimator=estimator, now_s=0.0)
    assert part.accelerator_hours == pytest.approx(1.0, rel=0.02)


# --- who preempted whom -----------------------------------------------------------------------------------------


def test_the_audit_log_tells_who_lost_a_worker_to_whom_in_which_round() -> None:
    world = World(cluster=a_cluster(fast=1))
    first = world.submit(1000)
    world.run(lambda: runs(world, first))
    second = world.submit(1000)
    world.run(lambda: world.job(first).preemptions > 0)
    (entry,) = world.store.audit(subject=f"job/{first}")
    assert (entry.action, entry.user, entry.by) == ("gang.preempted", "ann", "hierarchical")
    assert entry.after["given_to"] == {"fast-0": second} and entry.round_index is not None
    plan = world.store.round(entry.round_index).plan
    assert [lease.job_id for lease in plan.leases] == [second]
    assert list(preemptions(plan, plan, {}, 0.0)) == []


# --- caps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [0.25, 0.5])
def test_a_capped_tier_has_no_more_than_its_part_over_time_though_nobody_else_wants_the_rest(cap: float) -> None:
    world = World(cluster=a_cluster(fast=1))
    put_tier(world, Tier(name="default", cap=cap))
    job_id = world.submit(1_000_000)
    world.run_until_s(1000)
    held_s = sum(world.job(job_id).received_s.values())
    assert held_s == pytest.approx(cap * 1000, abs=30)  # three rounds
    notes = dict(world.store.round().allocation.notes)
    assert f"cap of {cap:.0%}" in notes[job_id]


def test_what_a_capped_tier_may_not_have_goes_to_others() -> None:
    world = World(cluster=a_cluster(fast=2))
    put_tier(world, Tier(name="default", cap=0.25))
    put_tier(world, Tier(name="free"))
    mine = [world.submit(1_000_000) for _ in range(2)]
    others = [world.submit(1_000_000, tier="free") for _ in range(2)]
    world.run_until_s(1000)
    of_mine, of_others = (sum(sum(world.job(each).received_s.values()) for each in ids) for ids in (mine, others))
    assert of_mine == pytest.approx(500, abs=60) and of_mine + of_others == pytest.approx(2000, abs=60)


# --- any web of jobs --------------------------------------------------------------------------------------------


@PROFILE
@given(data=st.data(), count=st.integers(2, 7))
def test_in_any_web_of_jobs_each_runs_after_those_it_names_or_fails_with_them(data: st.DataObject, count: int) -> None:
    """1. Each job names some earlier ones, some are doomed. 2. All end. 3. Order and failures are as they must be."""
    world = World()
    ids: list[str] = []
    after: dict[str, list[str]] = {}
    doomed = data.draw(st.sets(st.integers(0, count - 1), max_size=2))
    for _ in range(count):
        named = data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)) if ids else []
        ids.append(world.submit(60, after=tuple(named)))
        after[ids[-1]] = named
    for _ in range(400):
        world.run(lambda: True)
        for index in sorted(doomed):
            if runs(world, ids[index]):
                crash(world, ids[index])
        if all(world.job(each).state.is_terminal for each in ids):
            break
        world.clock.advance(1.0)
    failed = {job_id for job_id in ids if world.job(job_id).state is JobState.FAILED}
    must_fail = {ids[index] for index in doomed}
    for job_id in ids:
        if must_fail.intersection(after[job_id]):
            must_fail.add(job_id)
    assert failed == must_fail and world.is_done(*set(ids) - failed)
    ends = {e.job_id: e.sequence for i in ids for e in world.store.events(i) if e.kind == "job.completed"}
    starts = {i: [e.sequence for e in world.store.events(i) if e.kind == "gang.launched"] for i in ids}
    assert all(min(starts[i]) > ends[earlier] for i in ids if starts[i] for earlier in after[i])


def test_the_cap_of_a_tier_holds_what_those_below_it_have_together() -> None:
    tiers = (Tier(name="department", cap=0.5), Tier(name="a", parent="department"), Tier(name="b", parent="department"))
    problem = a_problem([[1.0], [1.0]], [2], tiers=tiers, tier_of_job=[1, 2])
    full = Allocation(
        combinations=(("j0",), ("j1",)), accelerator_types=("t0",), time_fraction=np.array([[1.0], [0.5]]),
        certificate=Certificate(primal_violation=0.0, dual_gap=0.0), policy="p", solver="s",
    )  # fmt: skip
    cut = capped(full, problem)
    assert cut.time_fraction.sum() == pytest.approx(1.0) and cut.time_fraction[0] == pytest.approx(2 / 3)
    assert {job for job, _ in cut.notes} == {"j0", "j1"} and cut.certificate.dual_gap is None
    assert capped(cut, problem).time_fraction is cut.time_fraction
    assert not uncapped(problem).any()
