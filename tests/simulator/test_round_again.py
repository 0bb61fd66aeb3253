"""Every round of real runs comes out the same when it is decided again from what is stored with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gavel.config import Settings
from gavel.errors import NotFound
from gavel.ports import Changes
from gavel.simulator.round_again import Verdict, decided_again, stored_round
from gavel.store.memory import MemoryStore
from gavel.store.sql import SqlStore
from gavel.types import JobState, RoundRecord, Tier
from tests.mechanism.world import World

SETTINGS = Settings(state_dir=Path("unused"))
JOBS: list[dict[str, Any]] = [
    {"total_steps": 400},
    {"total_steps": 900, "scale_factor": 2},
    {"total_steps": 150, "kind": "cnn"},
    {"total_steps": 600, "priority": 1},
    {"total_steps": 300, "preemptible": False},
    {"total_steps": 250},
]


def a_run(**settings: Any) -> World:
    """Jobs that come one after the other, until all have completed."""
    world = World(**settings)
    ids = []
    for each in JOBS:
        ids.append(world.submit(**each))
        asked = world.clock.now_s()
        world.run(lambda asked=asked: world.clock.now_s() > asked + 7)
    world.run(lambda: all(world.store.job(job_id).state is JobState.COMPLETED for job_id in ids))
    return world


def again(read: Any, index: int) -> Verdict:
    return decided_again(stored_round(read, index, SETTINGS))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"switch_cost_s": 0.3},
        {"planner": "published_shuffled"},
        {"minimum_run_s": 15.0},
        {"policy": "weighted_priority?workers=-1"},
    ],
    ids=str,
)
def test_every_round_of_a_run_comes_out_the_same(settings: dict[str, Any]) -> None:
    store = a_run(**settings).store
    newest = store.round().plan.round_index
    assert newest > 5
    for index in range(1, newest + 1):
        verdict = again(store.round, index)
        assert verdict.is_same and not verdict.missing and not verdict.extra, verdict
        assert (verdict.largest_difference is None) == (verdict.solver_outcome != "solved")
        assert "leases are not compared" not in verdict.note


def test_a_round_under_a_policy_that_is_not_that_of_the_settings_comes_out_the_same() -> None:
    """An operator set other parameters of the policy: the round was decided by these, and so it is again."""
    automatic = MemoryStore()
    automatic.put_tier(Tier(name="default", objective="auto"), expected_version=1, by="op", now_s=0.0)
    store = a_run(policy="hierarchical?objectives=default:shortest_job_first", store=automatic).store
    solved = [each for each in range(2, 8) if store.round(each).solver_outcome == "solved"]
    verdict = again(store.round, solved[0])
    assert verdict.policy == "hierarchical?objectives=default:shortest_job_first" and verdict.is_same


def test_a_round_is_read_back_from_the_database_with_all_it_takes(tmp_path: Path) -> None:
    world, kept = a_run(switch_cost_s=0.3), SqlStore(f"sqlite:///{tmp_path}/rounds.db")
    for index in range(1, 7):
        kept.commit(index - 1, Changes(round=world.store.round(index)))
    assert all(again(kept.round, index).is_same for index in range(1, 7))
    assert any(again(kept.round, index).leases for index in range(1, 7))
    kept.close()


def tampered(store: Any, index: int, **over: Any) -> Verdict:
    def read(which: int) -> RoundRecord:
        record: RoundRecord = store.round(which)
        return replace(record, **over) if which == index else record

    return again(read, index)


def test_a_round_that_was_tampered_with_is_found_out() -> None:
    store = a_run().store
    solved = [
        each for each in range(2, 8) if store.round(each).solver_outcome == "solved" and store.round(each).plan.leases
    ]
    record = store.round(solved[0])
    other = replace(record.allocation, time_fraction=record.allocation.time_fraction * 0.5)
    verdict = tampered(store, solved[0], allocation=other)
    assert not verdict.is_same and verdict.largest_difference and verdict.largest_difference > 0.1
    first, *rest = record.plan.leases
    verdict = tampered(store, solved[0], plan=replace(record.plan, leases=tuple(rest)))
    assert not verdict.is_same and [lease.job_id for lease in verdict.extra] == [first.job_id] and not verdict.missing
    moved = replace(first, worker_ids=("nowhere",))
    verdict = tampered(store, solved[0], plan=replace(record.plan, leases=(moved, *rest)))
    assert [lease.worker_ids for lease in verdict.missing] == [("nowhere",)]
    fewer = replace(record.allocation, combinations=(), time_fraction=np.zeros((0, 2)))
    assert tampered(store, solved[0], allocation=fewer, inputs=None).largest_difference == float("inf")


def test_what_cannot_be_compared_is_said() -> None:
    store = a_run().store
    old = tampered(store, 4, inputs=None)
    assert old.is_same and "were not stored for this round" in old.note

    def read(index: int) -> RoundRecord:
        if index < 4:
            raise NotFound(f"no round {index}")
        return store.round(index)

    assert "the round before it is no longer kept" in again(read, 4).note
    with pytest.raises(NotFound):
        again(read, 3)
