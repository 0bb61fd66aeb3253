"""A training beside a session on its accelerators, where both fit and the training keeps enough of its speed."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.mechanism.planning.guests import TRIED_AGAIN_ROUNDS
from gavel.mechanism.planning.replanning import differences, planned_again
from gavel.simulator.cluster import program
from gavel.types import Cluster, Job, JobSpec, JobState, Lease, Node, RoundPlan, RoundRecord, Tier, Worker, worker_s_of
from tests.conftest import IS_FULL
from tests.mechanism.world import World

ENDLESS = 10**9
SILENT = 1e-9  # steps/s of a notebook, which reports none
RATES = {
    ("notebook", 1, "fast"): SILENT,
    ("notebook", 2, "fast"): SILENT,
    ("steps", 1, "fast"): 10.0,
    ("steps", 2, "fast"): 15.0,
    ("mlp", 1, "fast"): 10.0,
    ("mlp", 2, "fast"): 15.0,
}
CORES = 10


def a_machine(workers: int = 1, memory_bytes: int = 16, cpu_cores: int = 0) -> Cluster:
    there = tuple(
        Worker(id=f"fast-{index}", node="n", accelerator_type="fast", memory_bytes=memory_bytes)
        for index in range(workers)
    )
    return Cluster(nodes=(Node(name="n", cpu_cores=cpu_cores),), workers=there)


def kept(training: float, kind: str = "notebook", session: float = 1.0) -> dict[tuple[str, str, int, str], float]:
    """The rates of pairs in which a training, and a session of a kind, keep such a part of theirs."""
    rates = {}
    for size in (1, 2):
        rates["mlp", kind, size, "fast"] = training * RATES["mlp", size, "fast"]
        rates["mlp", "mlp", size, "fast"] = 0.4 * RATES["mlp", size, "fast"]
        rates[kind, "mlp", size, "fast"] = session * RATES[kind, size, "fast"]
        rates[kind, kind, size, "fast"] = RATES[kind, size, "fast"]
    return rates


class Desk:
    """A world with one accelerator, on which a session is once it was opened."""

    def __init__(self, cluster: Cluster | None = None, **world: Any) -> None:
        self.world = World(cluster=cluster or a_machine(), rates=RATES, **world)

    def open(self, longest_s: float = 1000.0, share: float = 0.5, kind: str = "notebook", **spec: Any) -> str:
        fields = {"preemptible": False, "longest_s": longest_s, "accelerator_share": share, "priority": 1}
        own = {"kind": kind, "argv": program(kind), "accelerator_memory_bytes": 8}
        return self.world.submit(ENDLESS, **fields | own | spec)

    def train(self, steps: int = ENDLESS, **spec: Any) -> str:
        return self.world.submit(steps, **{"user": "bob", "accelerator_memory_bytes": 4} | spec)

    def opened(self, **spec: Any) -> str:
        session = self.open(**spec)
        self.world.run(lambda: self.runs(session))
        return session

    def job(self, job_id: str) -> Job:
        return self.world.job(job_id)

    def runs(self, *job_ids: str) -> bool:
        return all(self.job(each).state is JobState.LEASED for each in job_ids)

    def records(self) -> list[RoundRecord]:
        """All rounds, the first one first."""
        plans = reversed(self.world.store.rounds(limit=1000))
        return [self.world.store.round(plan.round_index) for plan in plans]


def guests_of(plan: RoundPlan, jobs: Mapping[str, Job]) -> list[tuple[Lease, Lease]]:
    """Each lease of a training that is a pair with a session, and that of the session."""
    lease_of = {lease.job_id: lease for lease in plan.leases}
    pairs = [(each, lease_of[each.combination[0]]) for each in plan.leases if len(each.combination) == 2]
    is_session = {job_id: job.spec.is_interactive for job_id, job in jobs.items()}
    return [(own, host) for own, host in pairs if is_session[host.job_id] and not is_session[own.job_id]]


def test_a_training_that_would_wait_does_its_steps_beside_the_session() -> None:
    desk = Desk()
    session = desk.opened()
    training = desk.train(300)
    desk.world.run(lambda: desk.job(training).state is JobState.COMPLETED)
    assert desk.runs(session)
    job, host = desk.job(training), desk.job(session)
    assert (job.attempt, job.preemptions) == (1, 0), "it stays where it is from round to round"
    assert (host.generation, host.attempt, host.preemptions) == (1, 1, 0)
    assert desk.world.leases_of(training)[-1].combination == (session, training)
    assert desk.world.leases_of(session)[-1].worker_ids == desk.world.leases_of(training)[-1].worker_ids


def test_both_are_charged_half_while_they_share() -> None:
    desk = Desk()
    session, training = desk.opened(), desk.train(300)
    desk.world.run(lambda: desk.job(training).state is JobState.COMPLETED)
    job = desk.job(training)
    ran_s = (job.finished_at_s or 0.0) - (job.started_at_s or 0.0)
    assert sum(worker_s_of(job).values()) == pytest.approx(ran_s / 2, rel=0.05)
    assert sum(desk.job(session).shared_s.values()) == pytest.approx(ran_s, rel=0.05)


@pytest.mark.parametrize(
    ("session", "training", "world"),
    [
        ({"share": 1.0}, {}, {}),
        ({"accelerator_memory_bytes": 0}, {}, {}),
        ({}, {"accelerator_memory_bytes": 0}, {}),
        ({}, {"accelerator_memory_bytes": 9}, {}),
        ({}, {"accelerator_types": ("!fast",)}, {}),
        ({}, {"preemptible": False}, {}),
        ({}, {"scale_factor": 2}, {}),
        ({}, {}, {"space_sharing": False}),
        ({}, {"topology_label": "rack"}, {}),
        ({"cpu_cores": 5}, {"cpu_cores": 4}, {"cluster": a_machine(cpu_cores=8)}),
        ({}, {"tier": "small"}, {}),
    ],
)
def test_it_waits_where_it_may_not_share_or_both_do_not_fit(
    session: dict[str, Any], training: dict[str, Any], world: dict[str, Any]
) -> None:
    desk = Desk(**world)
    desk.world.store.put_tier(Tier(name="small", cap=0.5), expected_version=None, by="op", now_s=0.0)
    desk.opened(**session)
    waiting = desk.train(**training)
    desk.world.run_until_s(60.0)
    assert desk.job(waiting).state is JobState.QUEUED


def test_a_session_that_joins_comes_first_and_the_guest_leaves_with_a_checkpoint() -> None:
    desk = Desk()
    first, training = desk.opened(), desk.train()
    desk.world.run(lambda: desk.runs(training))
    second = desk.open(longest_s=30.0)
    desk.world.run(lambda: desk.runs(second))
    left = desk.job(training)
    assert left.state is JobState.QUEUED and left.steps_done > 0 and left.preemptions == 1
    assert desk.world.leases_of(second)[-1].combination == (first, second)
    desk.world.run(lambda: desk.job(second).state.is_terminal)
    desk.world.run(lambda: desk.runs(training))
    assert desk.job(training).steps_done >= left.steps_done
    assert desk.job(first).preemptions == desk.job(second).preemptions == 0


def test_the_guest_goes_on_in_place_once_the_session_has_ended() -> None:
    desk = Desk()
    desk.opened(longest_s=35.0)
    training = desk.train(900)
    desk.world.run(lambda: desk.job(training).state is JobState.COMPLETED)
    assert (desk.job(training).attempt, desk.job(training).preemptions) == (1, 0)


def test_a_session_with_a_guest_counts_whole_among_jobs_that_may_not_be_preempted() -> None:
    """A guest may leave at any time: with 1 worker for sessions of the tier another has no room beside it elsewhere."""
    desk = Desk(a_machine(2))
    desk.world.store.put_tier(Tier(name="lab", non_preemptible_workers=1), expected_version=None, by="op", now_s=0.0)
    desk.opened(tier="lab")
    trainings = [desk.train() for _ in range(2)]
    desk.world.run(lambda: desk.runs(*trainings))
    other = desk.open(tier="lab", share=1.0)
    desk.world.run_until_s(100.0)
    assert desk.job(other).state is JobState.QUEUED
    assert "hold 1 of the 1 workers" in desk.job(other).message


def test_a_training_that_keeps_too_little_leaves_and_is_tried_again_once_in_a_while() -> None:
    desk = Desk(a_machine(2), colocated=kept(0.3))
    desk.opened()
    trainings = [desk.train() for _ in range(2)]  # one of them waits, in turns: the kind is measured alone, too
    desk.world.run_until_s(10.0 * 3 * TRIED_AGAIN_ROUNDS + 5.0)
    jobs = desk.world.store.snapshot().jobs
    rounds = [record.plan.round_index for record in desk.records() if guests_of(record.plan, jobs)]
    late = [each for each in rounds if each > TRIED_AGAIN_ROUNDS / 2]
    assert rounds and late and all(each % TRIED_AGAIN_ROUNDS == 0 for each in late)
    assert all(desk.job(each).steps_reported > 0 for each in trainings)


def test_a_training_that_keeps_enough_goes_on_beside_the_kind_of_session() -> None:
    desk = Desk(a_machine(2), colocated=kept(0.7))
    desk.opened()
    trainings = [desk.train() for _ in range(2)]
    desk.world.run_until_s(300.0)
    assert desk.runs(*trainings)
    rows = {(row.kind, row.partner) for row in desk.world.store.throughputs()}
    assert ("mlp", "notebook") in rows


def test_a_session_that_reports_steps_and_loses_too_many_of_them_has_no_guest_again() -> None:
    desk = Desk(colocated=kept(0.9, kind="steps", session=0.3))
    session = desk.opened(kind="steps")
    desk.world.run_until_s(30.0)
    training = desk.train()
    desk.world.run(lambda: desk.runs(training))
    desk.world.run(lambda: not desk.runs(training))
    desk.world.run_until_s(30.0 + 10.0 * 2 * TRIED_AGAIN_ROUNDS)
    assert desk.job(training).attempt == 1
    assert desk.job(session).preemptions == 0


def test_the_guest_stays_and_one_of_higher_priority_takes_its_place() -> None:
    desk = Desk()
    desk.opened()
    first, second = desk.train(), desk.train()
    desk.world.run_until_s(100.0)
    assert (desk.job(first).attempt, desk.job(second).attempt) == (1, 0)
    urgent = desk.train(priority=1)
    desk.world.run(lambda: desk.runs(urgent))
    assert not desk.runs(first)


def test_a_restart_changes_nothing_and_each_round_can_be_verified() -> None:
    desk = Desk(a_machine(2))
    session, trainings = desk.opened(), [desk.train() for _ in range(3)]
    desk.world.run(lambda: desk.runs(*trainings))
    desk.world.driver = desk.world.new_driver()
    desk.world.run_until_s(100.0)
    assert desk.job(session).generation == 1
    jobs = desk.world.store.snapshot().jobs
    assert any(guests_of(record.plan, jobs) for record in desk.records())
    for before, record in pairwise(desk.records()):
        again = planned_again(record, before.lag_rounds)
        assert again is not None and differences(record.plan, again) == ((), ())


@settings(max_examples=100 if IS_FULL else 8, deadline=None)
@given(
    sessions=st.lists(
        st.tuples(st.integers(2, 12), st.sampled_from([0.5, 1.0]), st.integers(1, 2), st.sampled_from([0, 4, 8, 12])),
        max_size=5,
    ),
    trainings=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 2), st.sampled_from([0, 4, 8]), st.integers(1, 5)), max_size=6
    ),
    fractions=st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.sampled_from([0.2, 1.0])),
    restart_s=st.integers(5, 100),
)
def test_guests_are_beyond_nothing_and_in_nobodys_way(
    sessions: list[tuple[int, float, int, int]],
    trainings: list[tuple[int, int, int, int]],
    fractions: tuple[float, float],
    restart_s: int,
) -> None:
    """All sessions have their time and all trainings their end; every stored round is checked."""
    desk = Desk(a_machine(2, cpu_cores=CORES), colocated=kept(fractions[0], session=fractions[1]))
    ids = [
        desk.open(10.0 * tens, share, scale_factor=size, accelerator_memory_bytes=memory)
        for tens, share, size, memory in sessions
    ]
    others = [
        desk.train(10 * tens, scale_factor=size, accelerator_memory_bytes=memory, cpu_cores=cores)
        for tens, size, memory, cores in trainings
    ]
    jobs = dict(desk.world.store.snapshot().jobs)
    desk.world.run_until_s(float(restart_s))
    desk.world.driver = desk.world.new_driver()
    desk.world.run(lambda: desk.world.is_done(*ids, *others), ticks=6000)
    assert all((desk.job(each).preemptions, desk.job(each).attempt) == (0, 1) for each in ids)
    records = desk.records()
    started = {lease.job_id for record in records[:1] for lease in record.plan.leases}
    for before, record in pairwise(records):
        check(record, before, jobs)
        started |= {lease.job_id for lease in record.plan.leases}
        joinable = [jobs[host.job_id].spec for _, host in guests_of(record.plan, jobs)]
        assert not any(joins(jobs[each].spec, spec) for each in ids if each not in started for spec in joinable)


def joins(session: JobSpec, host: JobSpec) -> bool:
    """Whether a session that waits might be on the accelerators of the other one."""
    is_small = session.accelerator_memory_bytes + host.accelerator_memory_bytes <= 16
    return is_small and session.accelerator_share < 1 and session.scale_factor == host.scale_factor


def check(record: RoundRecord, before: RoundRecord, jobs: Mapping[str, Job]) -> None:
    """What holds of every round: room for both, hosts and planned gangs as without guests, sessions that join first."""
    pairs = guests_of(record.plan, jobs)
    for own, host in pairs:
        guest, session = jobs[own.job_id].spec, jobs[host.job_id].spec
        assert session.is_interactive and session.accelerator_share < 1
        assert 0 < guest.accelerator_memory_bytes <= 16 - session.accelerator_memory_bytes < 16
        assert own.worker_ids == host.worker_ids and own.expires_at_s == host.expires_at_s
        alike = [each for each in before.plan.leases if each.job_id == host.job_id]
        assert all((each.generation, each.worker_ids) == (host.generation, host.worker_ids) for each in alike)
    cores: dict[str, int] = {}
    for lease in (each for each in record.plan.leases if each.starts_at_s is None):
        for worker in lease.worker_ids:
            stated = jobs[lease.job_id].spec.cpu_cores
            cores[worker] = cores.get(worker, 0) + (stated if stated > 1 else 0)
    assert sum(max(1, each) for each in cores.values()) <= CORES
    assert record.inputs is not None
    without = planned_again(replace(record, inputs=replace(record.inputs, guests=())), before.lag_rounds)
    assert without is not None
    given = {(each.job_id, each.generation, each.worker_ids) for each in record.plan.leases if each.starts_at_s is None}
    planned = {(each.job_id, each.generation, each.worker_ids) for each in without.leases}
    assert given == planned | {(own.job_id, own.generation, own.worker_ids) for own, _ in pairs}
