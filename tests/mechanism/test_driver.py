"""The production driver on a virtual cluster and a manual clock, with faults injected between its steps."""

import pytest

from gavel.errors import SolveFailed, StoreUnavailable
from gavel.policies.inline import InlineRunner
from gavel.ports import Changes
from gavel.store.memory import MemoryStore
from gavel.types import Allocation, AllocationProblem, JobState
from tests.mechanism.world import RATES, World


def test_a_job_runs_from_submission_to_its_last_step() -> None:
    world = World()
    job_id = world.submit(100)
    world.run(lambda: world.is_done(job_id))
    job = world.job(job_id)
    assert job.steps_done == 100 and job.finished_at_s is not None
    kinds = [event.kind for event in world.store.events(job_id)]
    assert kinds[0] == "job.submitted" and kinds[-1] == "job.completed"


def test_more_jobs_than_workers_share_by_preemption_and_all_do_exactly_their_steps() -> None:
    world = World()
    ids = [world.submit(200 + 7 * i) for i in range(7)]
    world.run(lambda: world.is_done(*ids))
    assert [world.job(i).steps_done for i in ids] == [200 + 7 * i for i in range(7)]
    assert sum(world.job(i).preemptions for i in ids) > 0
    assert any(len(world.job(i).rounds_received) == 2 for i in ids)


def test_a_new_kind_is_profiled_on_every_type_and_the_policy_then_knows_its_rates() -> None:
    world = World()
    ids = [world.submit(400) for _ in range(4)]
    world.run(lambda: world.is_done(*ids))
    rates = {row.accelerator_type: row.steps_per_s for row in world.store.throughputs()}
    assert rates == {"fast": pytest.approx(10, rel=0.02), "slow": pytest.approx(5, rel=0.02)}
    plans = world.store.rounds()
    assert any(lease.is_profiling for plan in plans for lease in plan.leases)


def test_a_gang_of_two_runs_whole() -> None:
    world = World()
    ids = [world.submit(150, scale_factor=2), world.submit(100)]
    world.run(lambda: world.is_done(*ids))
    sizes = {len(x.worker_ids) for plan in world.store.rounds() for x in plan.leases if x.job_id == ids[0]}
    assert sizes == {2}


def test_cancelling_ends_a_waiting_job_at_once_and_a_running_one_at_its_next_step() -> None:
    world = World()
    running = world.submit(10_000)
    world.run(lambda: world.job(running).state is JobState.LEASED)
    waiting = world.submit(100)
    for job_id in (running, waiting):
        world.store.request_cancel(job_id, now_s=world.clock.now_s())
    states = {JobState.CANCELLED}
    world.run(lambda: {world.job(running).state, world.job(waiting).state} == states, ticks=3)
    assert world.backend.observe().gangs == () or world.driver.tick() > 0


def test_a_restarted_driver_goes_on_without_starting_anything_twice() -> None:
    """1. Jobs run. 2. The driver is replaced in the middle of a round, again and again. 3. All end exactly."""
    world = World()
    ids = [world.submit(300 + i) for i in range(5)]
    for _ in range(12):
        world.run(lambda: True)
        world.clock.advance(3.7)
        world.driver = world.new_driver()
    world.run(lambda: world.is_done(*ids))
    assert [world.job(i).steps_done for i in ids] == [300 + i for i in range(5)]


class FailingStore(MemoryStore):
    """Refuses every third commit, before it has any effect."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0

    def commit(self, expected_version: int, changes: Changes) -> int:
        self.commits += 1
        if self.commits % 3 == 0:
            raise StoreUnavailable("database is locked")
        return super().commit(expected_version, changes)


def test_a_store_that_refuses_commits_loses_no_progress() -> None:
    world = World(store=FailingStore())
    ids = [world.submit(200) for _ in range(6)]
    world.run(lambda: world.is_done(*ids), ticks=1500)
    ends = [event.message for i in ids for event in world.store.events(i) if event.kind == "gang.preempted"]
    assert ends and not [message for message in ends if "at step 0 " in message]


class FailingRunner(InlineRunner):
    """Solves once, then never again."""

    def __init__(self) -> None:
        super().__init__()
        self.solved = 0

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        self.solved += 1
        if self.solved != 2:
            raise SolveFailed("time limit")
        return super().allocate(policy, problem, time_limit_s)


def test_a_solver_that_fails_costs_no_round() -> None:
    """First the equal share, then the last valid allocation restricted to live jobs; the outcome is stored.

    While the jobs are those of the answer, nobody is asked.
    """
    world = World(runner=FailingRunner())
    ids = [world.submit(150 + 50 * index) for index in range(5)]
    world.run(lambda: world.is_done(*ids))
    newest = world.store.round().plan.round_index
    first, solved, *rest = [world.store.round(index) for index in range(1, newest + 1)]
    assert first.solver_outcome.startswith("equal share") and solved.solver_outcome == "solved"
    same = [record for record in rest if record.problem.job_ids == solved.problem.job_ids]
    others = [record for record in rest if record.problem.job_ids != solved.problem.job_ids]
    assert same and all(record.solver_outcome == "reused" for record in same)
    assert others and all(record.solver_outcome.startswith("last allocation kept") for record in others)


def test_a_job_that_waits_is_told_why_with_figures() -> None:
    world = World()
    ids = [world.submit(10_000) for _ in range(6)]
    world.run(lambda: world.clock.now_s() > 11)
    waiting = [world.job(i) for i in ids if world.job(i).state is JobState.QUEUED]
    assert waiting and all(job.message.startswith("All 4 workers are busy.") for job in waiting)
    assert sorted(job.message.rpartition(". ")[2] for job in waiting) == [
        "1 job of default comes before this job.",
        "This job is next in default.",
    ]


def test_start_up_costs_are_paid_and_time_received_is_accounted() -> None:
    world = World(switch_cost_s=1.0)
    job_id = world.submit(50)
    world.run(lambda: world.is_done(job_id))
    received = world.job(job_id).received_s
    assert sum(received.values()) == pytest.approx(1.0 + 50 / RATES[("mlp", 1, next(iter(received)))], abs=0.2)


def test_an_idle_driver_has_nothing_to_do() -> None:
    world = World()
    assert world.driver.tick() == float("inf") and world.driver.is_idle
    assert world.store.rounds() == ()


def test_the_rounds_a_job_received_are_those_in_which_it_held_workers() -> None:
    """Counted against the stored plans: a lease counts from its gang's launch, unless its job had ended before."""
    world = World()
    ids = [world.submit(200 + 30 * i) for i in range(6)]
    world.run(lambda: world.is_done(*ids))
    plans = world.store.rounds(limit=200)
    for job_id in ids:
        job = world.job(job_id)
        leases = [(plan.starts_at_s, x) for plan in plans for x in plan.leases if x.job_id == job_id]
        held = [
            x for starts_at_s, x in leases if x.generation <= job.generation and starts_at_s < (job.finished_at_s or 0)
        ]
        assert sum(job.rounds_received.values()) == len(held)
