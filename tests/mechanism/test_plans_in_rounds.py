"""Execution plans in whole rounds: a driver with a virtual cluster, whose gangs have the speeds given here."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from gavel.mechanism.explaining.explanation import State, explain
from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.ports import Changes
from gavel.simulator.cluster import program
from gavel.types import ExecutionPlan, GangExit, GangOutcome, InfeasibleType, JobState, Reason
from gavel.types.execution_plans import plan_kind
from tests.builders import a_cluster
from tests.mechanism.world import World

SPEEDS = {("a", "fast"): 10.0, ("a", "slow"): 2.0, ("b", "fast"): 4.0, ("b", "slow"): 6.0}
SPEEDS |= {("c", name): 1.0 for name in ("fast", "slow")}
RATES = {(f"net[{plan}]", size, name): rate * size**0.9 for (plan, name), rate in SPEEDS.items() for size in (1, 2, 4)}


def plans(*names: str, sizes: tuple[int, ...] = (1,), batch: int = 0) -> tuple[ExecutionPlan, ...]:
    kinds = [plan_kind("net", name, batch) for name in names]
    return tuple(
        ExecutionPlan(name=name, kind=kind, sizes=sizes, argv=program(kind))
        for name, kind in zip(names, kinds, strict=True)
    )


def a_world(rates: Mapping[tuple[str, int, str], float] = RATES, cost_s: float = 0.2, **workers: int) -> World:
    return World(cluster=a_cluster(**workers), rates=rates, switch_cost_s=cost_s)


def submit(world: World, own: tuple[ExecutionPlan, ...], steps: int = 10**5, **spec: Any) -> str:
    return world.submit(steps, plans=own, plan=own[0].name, kind=own[0].kind, **spec)


def under(world: World, job_id: str) -> list[tuple[str, str]]:
    """Type and plan of each gang of the job, oldest first."""
    gangs = {lease.generation: (lease.accelerator_type, lease.plan) for lease in world.leases_of(job_id)}
    return [gangs[generation] for generation in sorted(gangs)]


def test_a_stored_round_is_planned_again_with_the_same_plans() -> None:
    world = a_world(fast=1, slow=1)
    for _ in range(3):
        submit(world, plans("a", "b"))
    world.run_until_s(150)
    records = [world.store.round(index) for index in range(1, world.store.round().plan.round_index + 1)]
    for before, record in pairwise(records):
        again = planned_again(record, before.lag_rounds)
        assert again is not None and differences(record.plan, again) == ((), ())
    assert {lease.plan for record in records for lease in record.plan.leases} == {"a", "b"}


@pytest.mark.parametrize(("name", "best"), [("fast", "a"), ("slow", "b")])
def test_a_job_tries_its_plans_and_ends_with_the_better_one_of_the_type(name: str, best: str) -> None:
    world = a_world(**{name: 1})
    job_id = submit(world, plans("a", "b", "c"))
    world.run_until_s(200)
    assert {plan for _, plan in under(world, job_id)} == {"a", "b", "c"}
    assert len(under(world, job_id)) <= 4, under(world, job_id)
    job = world.job(job_id)
    assert (job.plan, job.spec.plan, job.spec.kind) == (best, best, f"net[{best}]")
    assert world.in_force().leases[0].plan == best
    assert job.losses == job.failures == 0 and job.steps_reported > 0


def test_of_two_jobs_each_has_the_type_and_the_plan_that_suit_both() -> None:
    world = a_world(fast=1, slow=1)
    jobs = [submit(world, plans("a", "b")) for _ in range(2)]
    world.run_until_s(400)
    for index in range(30):
        world.run_until_s(400 + 10 * index)
        leases = world.in_force().leases
        assert {(lease.accelerator_type, lease.plan) for lease in leases} == {("fast", "a"), ("slow", "b")}
    assert all(world.job(job_id).state is JobState.LEASED for job_id in jobs)


def test_an_elastic_job_has_its_best_plan_at_its_size() -> None:
    own = (*plans("a", sizes=(1, 2, 4), batch=64), *plans("b", sizes=(4,), batch=64))
    speeds = {"a": {1: 10.0, 2: 17.0, 4: 25.0}, "b": {4: 40.0}}
    rates = {(each.kind, size, "fast"): rate for each in own for size, rate in speeds[each.name].items()}
    world = a_world(rates, fast=4)
    job_id = submit(world, own, sizes=(1, 2, 4), global_batch=64)
    world.run(lambda: world.job(job_id).plan == "b" and world.job(job_id).has_reported, ticks=1000)
    assert world.job(job_id).size == 4
    world.run_until_s(world.clock.now_s() + 100)
    assert (world.job(job_id).plan, world.job(job_id).size) == ("b", 4)


def test_a_plan_is_not_tried_where_a_restart_does_not_pay() -> None:
    world = a_world(cost_s=500.0, fast=1)
    job_id = submit(world, plans("c", "a"), steps=1000)
    world.run_until_s(600)
    assert {plan for _, plan in under(world, job_id)} == {"c"}


def test_the_plan_in_force_survives_a_restart_of_the_service() -> None:
    world = a_world(slow=1)
    job_id = submit(world, plans("a", "b"))
    world.run_until_s(100)
    generation = world.job(job_id).generation
    assert world.job(job_id).plan == "b"
    world.driver = world.new_driver()
    world.run_until_s(150)
    assert (world.job(job_id).plan, world.job(job_id).generation) == ("b", generation)


def test_a_job_that_waits_in_the_middle_of_a_round_starts_in_its_plan() -> None:
    world = a_world(fast=1)
    first = world.submit(30, argv=program("net[c]"), kind="net[c]")
    world.run(lambda: world.job(first).state is JobState.LEASED)
    job_id = submit(world, plans("a", "b"))
    world.run(lambda: world.job(job_id).state is JobState.LEASED)
    assert world.job(job_id).plan in ("a", "b")


def fail_under(world: World, job_id: str, plan: str, line: str) -> None:
    """Let the first gang of the job under the plan fail before it reports, with that line."""
    world.run(lambda: (job := world.job(job_id)).plan == plan and job.state is JobState.LEASED)
    assert not world.job(job_id).has_reported
    gang = next(each for each in world.backend._gangs.values() if each.launched.job_id == job_id and not each.exit)
    end = GangExit(outcome=GangOutcome.EXITED, exit_code=1, message="rank 0 ended with exit code 1", log_tail=line)
    world.backend._end(gang, world.clock.now_s(), end)
    world.driver.tick()


@pytest.mark.parametrize("line", ["RuntimeError: no shard 3", "torch.OutOfMemoryError: CUDA out of memory."])
def test_a_job_that_fails_under_another_plan_goes_on_under_the_one_that_ran_and_says_so(line: str) -> None:
    """1 it runs under a, 2 b is tried and cannot start, 3 that costs no retry, and b is not tried again."""
    world = a_world(fast=1)
    job_id = submit(world, plans("a", "b"))
    fail_under(world, job_id, "b", line)
    job = world.job(job_id)
    assert (job.state, job.failures, job.losses, job.steps_done > 0) == (JobState.QUEUED, 0, 0, True)
    assert "under plan b" in job.message and line in job.message and "goes on with fast" in job.message
    now = world.store.snapshot()
    state = State(jobs=now.jobs, tiers=now.tiers, cluster=world.backend.whole, record=None, infeasible=now.infeasible)
    assert explain(job, state).code is not Reason.DOES_NOT_FIT
    world.run_until_s(world.clock.now_s() + 100)
    assert (world.job(job_id).plan, world.job(job_id).plan_trained) == ("a", "a")
    (mark,) = world.store.snapshot().infeasible
    assert (mark.kind, mark.accelerator_type) == ("net[b]", "fast")


def test_a_first_gang_that_tries_an_unknown_plan_and_fails_leaves_the_plan_and_not_the_job() -> None:
    """Another job of the kind has run under a, so b is tried first: its user listed a, too."""
    world = a_world(fast=1)
    other = submit(world, plans("a"), steps=100)
    world.run(lambda: world.is_done(other))
    job_id = submit(world, plans("a", "b"))
    fail_under(world, job_id, "b", "ValueError: heads do not divide")
    assert world.job(job_id).state is JobState.QUEUED and "after plan a had run" in world.job(job_id).message
    world.run(lambda: world.job(job_id).has_reported)
    assert world.job(job_id).plan == "a"


def test_a_first_gang_that_fails_while_no_plan_is_known_fails_the_job() -> None:
    """It is not the plan then, as far as anybody can know."""
    world = a_world(fast=1)
    job_id = submit(world, plans("a", "b"))
    fail_under(world, job_id, "a", "ModuleNotFoundError: no module named train")
    assert world.job(job_id).state is JobState.FAILED and world.store.snapshot().infeasible == ()


def test_a_job_whose_plan_ran_before_fails_as_any_other() -> None:
    world = a_world(fast=1)
    job_id = submit(world, plans("a"))
    world.run(lambda: world.job(job_id).has_reported)
    gang = next(each for each in world.backend._gangs.values() if not each.exit)
    end = GangExit(outcome=GangOutcome.EXITED, exit_code=1, message="m", log_tail="ValueError: bad shape")
    world.backend._end(gang, world.clock.now_s(), end)
    world.driver.tick()
    assert world.job(job_id).state is JobState.FAILED and world.store.snapshot().infeasible == ()


def test_a_gang_that_starts_keeps_its_plan_where_none_is_possible_any_more() -> None:
    """1 a gang starts, 2 meanwhile its plan is marked as failing there, 3 the rounds go on."""
    world = World(cluster=a_cluster(fast=1), rates=RATES, switch_cost_s=25.0, minimum_run_s=40.0)
    job_id = submit(world, plans("a"))
    world.run(lambda: world.job(job_id).state is JobState.LEASED)
    mark = InfeasibleType(
        user="ann", kind="net[a]", scale_factor=1, accelerator_type="fast", evidence="e", job_id="x", at_s=1.0
    )
    world.store.commit(world.store.snapshot().version, Changes(infeasible=(mark,)))
    world.run_until_s(world.clock.now_s() + 30)
    assert {lease.plan for lease in world.leases_of(job_id)} == {"a"}


def test_a_job_that_waits_and_becomes_smaller_has_a_plan_that_holds_there() -> None:
    """1 jobs run at size 4 under a plan of that size, 2 others come, and they run, at once or in turn, at size 1."""
    rates = {(plan_kind("net", name, 64), size, "fast"): 10.0 * size for name in ("wide", "any") for size in (1, 2, 4)}
    world = a_world(rates, fast=4)
    own = (*plans("wide", sizes=(2, 4), batch=64), *plans("any", sizes=(1, 2, 4), batch=64))
    spec = {"plans": own, "plan": "any", "kind": own[1].kind, "sizes": (1, 2, 4), "global_batch": 64}
    jobs = [world.submit(3000, **spec) for _ in range(6)]
    world.run(lambda: world.is_done(*jobs), ticks=3000)
    assert {lease.plan for job_id in jobs for lease in world.leases_of(job_id)} <= {"wide", "any"}
