"""How many workers each tier holds: metrics, the live event, the overview and what-if agree for any round."""

import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import Metric

from api.live.events import allocation_news
from api.metrics import StoreCollector
from api.services import Services
from api.views.overview import shares
from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.ports import Changes
from gavel.simulator.what_if import workers_of_tiers
from gavel.store.sql import SqlStore
from gavel.types import Allocation, Certificate, Job, JobState, Lease, RoundPlan, RoundRecord, Tier, worker_s_of
from tests.builders import a_cluster, a_problem, a_spec

EXAMPLES = 100 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 8
NOW_S, ROUND_S = 1000.0, 10.0
TYPES = ("fast", "slow")
TIERS = (Tier(name="gold"), Tier(name="silver"))
CLUSTER = a_cluster(fast=4, slow=4)


@dataclass(frozen=True)
class Slot:
    """The same workers over a round: gangs one after the other, each alone or as a pair whose first may end early."""

    size: int  # workers of each gang
    cuts: tuple[float, ...]  # where one gang gives way to the next, in [0, 1]
    is_pair: tuple[bool, ...]
    parts: tuple[float, ...]  # of a pair's time: when its first member ends
    tiers: tuple[int, ...]
    is_profiling: bool = False
    waits: bool = False  # nobody holds the workers until the first cut


@dataclass
class Scene:
    """A plan, the allocation that has exactly its leases as targets, and the jobs."""

    leases: list[Lease] = field(default_factory=list)
    promises: list[tuple[tuple[str, ...], int, float]] = field(default_factory=list)  # combination, type, fraction
    jobs: dict[str, Job] = field(default_factory=dict)


slots = st.builds(
    Slot,
    size=st.integers(1, 2),
    cuts=st.lists(st.sampled_from([0.25, 0.5, 0.75]), max_size=2, unique=True).map(lambda cuts: tuple(sorted(cuts))),
    is_pair=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    parts=st.tuples(*[st.sampled_from([0.5, 1.0])] * 3),
    tiers=st.tuples(*[st.integers(0, 1)] * 6),
    is_profiling=st.booleans(),
    waits=st.booleans(),
)


def job_in(store: SqlStore, scene: Scene, tier: int, size: int) -> Job:
    spec = a_spec(tier=TIERS[tier].name, user=f"user-{tier}", scale_factor=size)
    job = store.submit(spec, key=None, body_hash="", now_s=NOW_S - 60).job
    scene.jobs[job.id] = job
    return job


def lay(store: SqlStore, scene: Scene, slot: Slot, column: int, workers: tuple[str, ...]) -> None:
    """Put the slot's gangs on these workers, one after the other."""
    edges = [0.0, *slot.cuts, 1.0]
    for turn, (first, last) in enumerate(itertools.pairwise(edges)):
        if slot.waits and turn == 0 and slot.cuts:
            continue
        tiers = slot.tiers[2 * turn : 2 * turn + 1 + slot.is_pair[turn]]
        members = tuple(job_in(store, scene, tier, slot.size).id for tier in tiers)
        middle = first + (last - first) * (slot.parts[turn] if len(members) > 1 else 1.0)
        scene.promises.append((members, column, middle - first))
        if middle < last:
            scene.promises.append((members[1:], column, last - middle))
        for place, job_id in enumerate(members):
            until = middle if place == 0 else last
            scene.leases.append(
                Lease(
                    job_id=job_id,
                    generation=1,
                    combination=members,
                    accelerator_type=TYPES[column],
                    worker_ids=workers,
                    round_index=1,
                    expires_at_s=NOW_S + ROUND_S * until,
                    starts_at_s=None if first == 0 else NOW_S + ROUND_S * first,
                    is_profiling=slot.is_profiling,
                )
            )


def a_scene(store: SqlStore, drawn: list[Slot]) -> Scene:
    scene, free = Scene(), {name: [f"{name}-{i}" for i in range(4)] for name in TYPES}
    for index, slot in enumerate(drawn):
        column = index % 2
        there = free[TYPES[column]]
        if len(there) >= slot.size:
            lay(store, scene, slot, column, tuple(there.pop(0) for _ in range(slot.size)))
    return scene


def record_of(scene: Scene) -> RoundRecord:
    ids = tuple(scene.jobs)
    targets: dict[tuple[str, ...], list[float]] = {(job_id,): [0.0, 0.0] for job_id in ids}
    for members, column, fraction in scene.promises:
        targets.setdefault(members, [0.0, 0.0])[column] += fraction
    plan = RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=NOW_S,
        duration_s=ROUND_S,
        leases=tuple(scene.leases),
        policy="test",
        allocation_digest="",
    )
    problem = a_problem(
        [[2.0, 1.0]] * len(ids),
        [4, 4],
        job_ids=ids,
        accelerator_types=TYPES,
        tiers=TIERS,
        tier_of_job=[[t.name for t in TIERS].index(scene.jobs[each].spec.tier) for each in ids],
        scale_factor=[scene.jobs[each].spec.scale_factor for each in ids],
    )
    allocation = Allocation(
        combinations=tuple(targets),
        accelerator_types=TYPES,
        time_fraction=np.array(list(targets.values()), dtype=float).reshape(len(targets), 2),
        certificate=Certificate(primal_violation=0.0),
        policy="test",
        solver="",
    )
    return RoundRecord(plan=plan, problem=problem, allocation=allocation)


def worker_seconds(leases: list[Lease], name: str) -> float:
    """Return the worker seconds held of a type, counted in quarters of a round."""
    moments = np.arange(0.0, 1.0, 1 / 16) + 1 / 32
    return sum(
        ROUND_S / 16
        for moment in moments
        for worker in CLUSTER.workers
        if worker.accelerator_type == name and holders(leases, worker.id, NOW_S + ROUND_S * moment)
    )


def holders(leases: list[Lease], worker: str, at_s: float) -> list[str]:
    return [
        each.job_id
        for each in leases
        if worker in each.worker_ids and (each.starts_at_s or NOW_S) <= at_s < each.expires_at_s
    ]


def samples(metrics: Iterator[Metric], name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in metrics
        if family.name == name
        for sample in family.samples
    }


TWO_SHORT_JOBS = Slot(1, (0.5,), (False, False, False), (1.0, 1.0, 1.0), (0, 0, 0, 1, 1, 1))
A_PAIR = Slot(1, (), (True, False, False), (1.0, 1.0, 1.0), (0, 1, 0, 0, 0, 0))
A_PAIR_WHOSE_FIRST_ENDS = Slot(2, (0.5,), (True, True, False), (0.5, 0.5, 1.0), (0, 1, 1, 1, 0, 0))


@settings(max_examples=EXAMPLES)
@given(drawn=st.lists(slots, max_size=8), at=st.sampled_from([0.1, 0.3, 0.6, 0.9]))
@example(drawn=[TWO_SHORT_JOBS], at=0.6)
@example(drawn=[A_PAIR], at=0.6)
@example(drawn=[A_PAIR_WHOSE_FIRST_ENDS, A_PAIR], at=0.3)
def test_all_outlets_count_the_workers_that_are_held(drawn: list[Slot], at: float) -> None:
    with TemporaryDirectory() as folder, closing(SqlStore(f"sqlite:///{folder}/gavel.db")) as store:
        check_all_outlets(store, drawn, at)


def check_all_outlets(store: SqlStore, drawn: list[Slot], at: float) -> None:
    for tier in TIERS:
        store.put_tier(tier, expected_version=None, by="test", now_s=0.0)
    scene = a_scene(store, drawn)
    record, at_s = record_of(scene), NOW_S + ROUND_S * at
    running = [
        replace(scene.jobs[each.job_id], state=JobState.LEASED, generation=1)
        for each in scene.leases
        if (each.starts_at_s or NOW_S) <= at_s < each.expires_at_s
    ]
    store.commit(store.snapshot().version, Changes(cluster=CLUSTER, jobs=tuple(running), round=record))
    services = Services(
        store=store,
        settings=Settings(),
        clock=ManualClock(at_s),
        read_log=lambda *_: (b"", 0),
        is_scheduler_alive=lambda: True,
    )
    metrics = list(StoreCollector(services).collect())

    # 1. now: by type, and by tier
    by_type, by_tier = (
        samples(iter(metrics), "gavel_workers_leased"),
        samples(iter(metrics), "gavel_tier_workers_leased"),
    )
    for name in TYPES:
        there = [w.id for w in CLUSTER.workers if w.accelerator_type == name and holders(scene.leases, w.id, at_s)]
        assert by_type[(name,)] == pytest.approx(len(there))
        assert sum(held for (of_type, _), held in by_tier.items() if of_type == name) == pytest.approx(len(there))

    # 2. over the round: metrics, live event and what-if by tier and type, the overview by tier
    event = allocation_news(record, store.snapshot())
    tried = workers_of_tiers(record.problem, record.allocation)
    target = samples(iter(metrics), "gavel_allocation_target_fraction")
    tier_of = {job.id: job.spec.tier for job in scene.jobs.values()}
    present = [worker.id for worker in CLUSTER.workers]
    overview = shares([record.plan], TIERS, tier_of, present, scene.jobs.values()).tiers
    for tier in (each.name for each in TIERS):
        for column, name in enumerate(TYPES):
            held = tried[tier][name]
            assert event.tiers.get(tier, [0.0, 0.0])[column] * 4 == pytest.approx(held)
            assert target.get((name, tier), 0.0) * 4 == pytest.approx(held)
        assert overview[tier][0] * len(CLUSTER.workers) == pytest.approx(sum(tried[tier].values()))
    for name in TYPES:
        held_s = ROUND_S * sum(of_type[name] for of_type in tried.values())
        assert held_s == pytest.approx(worker_seconds(scene.leases, name))
    assert all(0.0 <= part <= 1.0 for parts in overview.values() for part in parts)


def test_a_job_has_received_half_of_the_workers_that_it_shared() -> None:
    job: Any = Job(id="a", spec=a_spec(scale_factor=2), received_s={"fast": 10.0, "slow": 4.0}, shared_s={"fast": 6.0})
    assert worker_s_of(job) == {"fast": 14.0, "slow": 8.0}
