"""A wall clock that is set back or ahead costs a round at most: gangs are measured by another clock than plans."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gavel.clock import ManualClock
from gavel.mechanism.driver import Driver
from gavel.mechanism.planning.clock_steps import ClockStep, after_step, step_of
from gavel.ports import ExtendLease, Instruction, LaunchGang, PrepareGang, SetResources
from gavel.store.samples import round_record
from gavel.types import JobState, Observation, RoundRecord
from tests.conftest import IS_FULL
from tests.mechanism.world import World

ROUND_S = 10.0


class WallClock(ManualClock):
    """The clock of the cluster, seen through a wall clock that is set `ahead_s` seconds ahead of it."""

    def __init__(self, cluster: ManualClock) -> None:
        super().__init__()
        self._cluster, self.ahead_s = cluster, 1.7e9

    def now_s(self) -> float:
        return self._cluster.now_s() + self.ahead_s

    def steady_s(self) -> float:
        return self._cluster.now_s()

    def wait(self, until_s: float) -> None:
        self._cluster.wait(until_s - self.ahead_s)


class Translated:
    """The virtual cluster, told and asked in wall time, as a backend that measures by boot time is."""

    def __init__(self, world: World, wall: WallClock) -> None:
        self._backend, self._wall = world.backend, wall

    def observe(self) -> Observation:
        seen, ahead_s = self._backend.observe(), self._wall.ahead_s
        later = lambda at_s: None if at_s is None else at_s + ahead_s  # noqa: E731
        gangs = tuple(
            replace(each, started_at_s=later(each.started_at_s), ended_at_s=later(each.ended_at_s))
            for each in seen.gangs
        )
        resources = tuple(
            replace(each, lease_expires_at_s=each.lease_expires_at_s + ahead_s) for each in seen.resources
        )
        return replace(seen, observed_at_s=seen.observed_at_s + ahead_s, gangs=gangs, resources=resources)

    def execute(self, instructions: Sequence[Instruction]) -> None:
        self._backend.execute([self._in_cluster_time(each) for each in instructions])

    def _in_cluster_time(self, instruction: Instruction) -> Instruction:
        ahead_s = self._wall.ahead_s
        match instruction:
            case LaunchGang():
                return replace(instruction, lease_expires_at_s=instruction.lease_expires_at_s - ahead_s)
            case ExtendLease():
                return replace(instruction, expires_at_s=instruction.expires_at_s - ahead_s)
            case PrepareGang():
                return replace(
                    instruction, gang=self._in_cluster_time(instruction.gang), until_s=instruction.until_s - ahead_s
                )
            case SetResources():
                resources = instruction.resources
                return SetResources(
                    resources=tuple(
                        replace(each, lease_expires_at_s=each.lease_expires_at_s - ahead_s) for each in resources
                    )
                )
        return instruction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class SteppedWorld(World):
    """A world whose driver sees a wall clock."""

    def new_driver(self) -> Driver:
        self.wall = getattr(self, "wall", None) or WallClock(self.clock)
        self._of_cluster, self.clock = self.clock, self.wall
        whole, self.backend = self.backend, Translated(self, self.wall)  # type: ignore[assignment]
        try:
            return super().new_driver()
        finally:
            self.clock, self.backend = self._of_cluster, whole

    def submit(self, total_steps: int = 100, **spec: Any) -> str:
        self._of_cluster, self.clock = self.clock, self.wall
        try:
            return super().submit(total_steps, **spec)
        finally:
            self.clock = self._of_cluster

    def run_for_s(self, seconds: float) -> None:
        """Tick at least twice a second, as a service does, for so long by the clock of the cluster."""
        until_s = self.clock.now_s() + seconds
        while self.clock.now_s() < until_s:
            self.driver.tick()
            assert self.driver.halted is None, self.driver.halted
            self.clock.wait(min(self.clock.now_s() + 0.5, self.backend.next_event_at_s()))


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0, -10 * 365 * 86_400.0, -12.0, -4.0])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_step_costs_a_round_at_most(step_s: float, is_restarted: bool) -> None:
    """1 four jobs have the cluster for themselves, 2 the clock steps, 3 they end as they would have, a round later."""
    world = SteppedWorld(round_duration_s=ROUND_S)
    jobs = [world.submit(200) for _ in range(4)]
    world.run_for_s(12.0)
    world.wall.ahead_s += step_s
    if is_restarted:
        world.driver = world.new_driver()
    late = world.submit(10)
    world.run_for_s(ROUND_S + 1)
    assert all(world.job(job).state is not JobState.QUEUED for job in jobs), [world.job(job) for job in jobs]
    world.run_for_s(45 + 2 * ROUND_S)
    assert {world.job(job).state for job in (*jobs, late)} == {JobState.COMPLETED}


def test_a_job_that_comes_after_a_step_starts_in_the_round_in_force() -> None:
    """The amended round is stored as its own clock wrote it: a store refuses one whose start is another."""
    world = SteppedWorld(round_duration_s=ROUND_S)
    job = world.submit(1000)
    world.run_for_s(2.0)
    world.wall.ahead_s -= 3600.0
    late = world.submit(10)
    world.run_for_s(1.0)
    assert (world.driver.skipped, world.job(late).state) == ("", JobState.LEASED)
    world.run_for_s(2 * ROUND_S)
    assert (world.job(late).state, world.job(job).state) == (JobState.COMPLETED, JobState.LEASED)


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0, -1e8, -70.0, 70.0])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_session_has_what_it_was_granted_whatever_the_clock_does(step_s: float, is_restarted: bool) -> None:
    """By the clock of the cluster it starts at 0 and ends at 35, though an hour is missing or is there twice."""
    world = SteppedWorld(round_duration_s=ROUND_S)
    session = world.submit(10**9, preemptible=False, longest_s=35.0)
    world.run_for_s(12.0)
    world.wall.ahead_s += step_s
    if is_restarted:
        world.driver = world.new_driver()
    world.run_for_s(22.0)
    assert world.job(session).state is JobState.LEASED
    world.run_for_s(4.0)
    assert world.job(session).state is JobState.COMPLETED


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_session_that_had_another_gang_is_granted_no_hour_more(is_paused: bool) -> None:
    """When its first gang started nobody can measure any more: it has its time at most once more from now on."""
    world = SteppedWorld(round_duration_s=ROUND_S)
    session = world.submit(10**9, preemptible=False, longest_s=35.0)
    world.run_for_s(5.0)
    world.store.request_pause(session, is_paused=True, now_s=world.wall.now_s())
    world.run_for_s(2.0)
    world.wall.ahead_s -= 3600.0
    world.store.request_pause(session, is_paused=is_paused, now_s=world.wall.now_s())
    world.run_for_s(32.0)
    assert not world.job(session).state.is_terminal
    world.run_for_s(5.0)
    assert world.job(session).state is JobState.COMPLETED


@pytest.mark.parametrize("step_s", [-3600.0, 15.0, 3600.0, -1e8])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_time_that_a_gang_holds_its_workers_is_accounted_for_once(step_s: float, is_restarted: bool) -> None:
    """After a step back it was not, while the clock was behind; after one ahead some of it was a second time."""
    world = SteppedWorld(round_duration_s=ROUND_S)
    job = world.submit(1000)
    world.run_for_s(42.0)
    world.wall.ahead_s += step_s
    if is_restarted:
        world.driver = world.new_driver()
    world.run_for_s(20.0)
    assert sum(world.job(job).received_s.values()) == pytest.approx(62.0, abs=6.0)


def a_round(round_index: int, starts_at_s: float) -> RoundRecord:
    record = round_record(round_index, parent=round_index - 1)
    return replace(record, plan=replace(record.plan, starts_at_s=starts_at_s, duration_s=ROUND_S, leases=()))


def test_rounds_of_a_clock_that_is_ahead_are_taken_one_after_the_other() -> None:
    """Two rounds, with a pause between them in which nobody led. The first one is not taken again for the second."""
    records, now_s = (a_round(1, 3600.0), a_round(2, 3620.0)), 0.0
    step = step_of(records, now_s, ClockStep())
    assert [each.plan.starts_at_s for each in after_step(records, now_s, step)] == [0.0, 20.0]
    assert step_of(records, now_s + 9.0, step) == step
    then = step_of(records, now_s + 11.0, step)
    assert [each.plan.starts_at_s for each in after_step(records, now_s + 11.0, then)] == [-9.0, 11.0]
    assert step_of(records, now_s + 22.0, then) == then, "both are over: the next round is planned"


@settings(max_examples=12 if IS_FULL else 4, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    steps=st.lists(st.tuples(st.floats(0.5, 15.0), st.sampled_from([-3600.0, 3600.0, -7.0, 7.0, -1e8])), max_size=4),
    is_restarted=st.booleans(),
)
def test_every_job_ends_whatever_the_clock_does(steps: list[tuple[float, float]], is_restarted: bool) -> None:
    world = SteppedWorld(round_duration_s=ROUND_S)
    jobs = [world.submit(100) for _ in range(5)]
    for after_s, step_s in steps:
        world.run_for_s(after_s)
        world.wall.ahead_s += step_s
        if is_restarted:
            world.driver = world.new_driver()
    world.run_for_s(60 + 2 * ROUND_S * (1 + len(steps)))
    assert {world.job(job).state for job in jobs} == {JobState.COMPLETED}
