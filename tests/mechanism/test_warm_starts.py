"""Hints to start programs before their lease: only for gangs of the next round that can be preempted, and no more."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.cluster.warm_starts import preparations
from gavel.ports import Instruction, LaunchGang, PrepareGang
from gavel.types import GangState, Job, JobState, Observation
from tests.builders import a_job
from tests.mechanism.test_reconcile import CLUSTER, a_gang, a_lease, a_plan
from tests.mechanism.world import World, a_cluster_of_nodes

STATED = {"throughput_steps_per_s": {"fast": 10.0, "slow": 5.0}}


class HintedWorld(World):
    """A world that keeps the instructions to the backend, with the gangs that were there then."""

    def __init__(self, **over: object) -> None:
        super().__init__(cluster=a_cluster_of_nodes(n0="fast slow"), **over)
        self.instructions: list[tuple[float, Instruction, frozenset[tuple[str, int]]]] = []
        execute = self.backend.execute

        def listen(instructions: Sequence[Instruction]) -> None:
            there = frozenset(
                (gang.job_id, gang.generation) for gang in self.backend.seen.gangs if gang.state is not GangState.ENDED
            )
            self.instructions += [(self.clock.now_s(), each, there) for each in instructions]
            execute(instructions)

        self.backend.execute = listen  # type: ignore[method-assign]

    def hints(self) -> list[tuple[float, LaunchGang, frozenset[tuple[str, int]]]]:
        """Return each hint with its instant, and the gangs that were there."""
        return [(at_s, each.gang, there) for at_s, each, there in self.instructions if isinstance(each, PrepareGang)]


def hints_for(job: Job, *, generation: int = 2, kinds: set[str], at_s: float = 8.0) -> list[PrepareGang]:
    ahead = a_plan(a_lease(generation=generation, round_index=2), round_index=2)
    seen = Observation(observed_at_s=at_s, cluster=CLUSTER, gangs=(a_gang(),))
    return list(preparations(ahead, {job.id: job}, seen, reporting_kinds=kinds, lease_grace_s=5.0))


def test_a_gang_of_the_next_round_is_prepared_until_its_launch_is_overdue() -> None:
    job = a_job("a", generation=1, state=JobState.LEASED)
    (hint,) = hints_for(job, kinds={job.spec.kind})
    assert (hint.gang.job_id, hint.gang.generation, hint.until_s) == ("a", 2, 25.0)


def test_others_are_not() -> None:
    job = a_job("a", generation=1, state=JobState.LEASED)
    kinds = {job.spec.kind}
    assert hints_for(job, kinds={"another"}) == [], "a program that never reported might begin to work"
    assert hints_for(job, kinds=kinds, generation=1) == [], "it stays"
    assert hints_for(job, kinds=kinds, at_s=10.0) == [], "it is launched at once"
    assert hints_for(a_job("a", cancel_requested=True), kinds=kinds) == []


@settings(max_examples=4)
@given(steps=st.lists(st.integers(10, 900), min_size=3, max_size=5), startup_s=st.sampled_from([0.0, 2.0]))
def test_hints_change_no_plan_no_share_and_no_charge(steps: list[int], startup_s: float) -> None:
    """The same jobs with hints and without: the same rounds, and the same time held by each job."""
    with_hints, without = (HintedWorld(warm_starts=on, switch_cost_s=startup_s) for on in (True, False))
    for world in (with_hints, without):
        for count in steps:
            world.submit(count, **STATED)
        world.run_until_s(60.0)
    assert [plan.leases for plan in with_hints.store.rounds(limit=100)] == [
        plan.leases for plan in without.store.rounds(limit=100)
    ]
    received = [[job.received_s for job in world.store.snapshot().jobs.values()] for world in (with_hints, without)]
    assert received[0] == received[1]
    assert without.hints() == []


@settings(max_examples=4)
@given(steps=st.lists(st.integers(300, 900), min_size=3, max_size=5))
def test_a_hint_is_of_a_gang_that_is_not_there_and_its_launch_comes_after_the_gang_before(steps: list[int]) -> None:
    world = HintedWorld(switch_cost_s=1.0)
    for count in steps:
        world.submit(count, **STATED)
    world.run_until_s(60.0)
    hints = world.hints()
    assert hints, "gangs took turns"
    for at_s, hint, there in hints:
        assert (hint.job_id, hint.generation) not in there
        assert hint.lease_expires_at_s > at_s + 10.0, "of a round that has not begun"
    for at_s, each, there in world.instructions:
        if isinstance(each, LaunchGang):
            assert not [generation for job_id, generation in there if job_id == each.job_id], "one gang of a job"
            assert at_s < each.lease_expires_at_s
