"""Each invariant refuses a plan or an allocation that breaks it, and what only looks like it passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.errors import InvariantViolated
from gavel.mechanism.planning.invariants import check_allocation, check_plan
from gavel.types import Allocation, Certificate, ExecutionPlan, Lease, RoundPlan
from tests.builders import a_cluster, a_job

JOBS = {name: a_job(name) for name in "abc"} | {"two": a_job("two", spec={"scale_factor": 2})}
CLUSTER = a_cluster(fast=3, slow=1)


def a_lease(job_id: str, *workers: str, **over: Any) -> Lease:
    fields: dict[str, Any] = {
        "generation": 1,
        "combination": (job_id,),
        "accelerator_type": "fast",
        "round_index": 1,
        "expires_at_s": 10.0,
    }
    return Lease(job_id=job_id, worker_ids=workers, **(fields | over))


def a_plan(*leases: Lease, **over: Any) -> RoundPlan:
    fields: dict[str, Any] = {"round_index": 1, "parent_round_index": 0, "starts_at_s": 0.0, "duration_s": 10.0}
    return RoundPlan(leases=leases, policy="test", allocation_digest="", **(fields | over))


def check(*leases: Lease, parent: RoundPlan | None = None, now_s: float | None = None, **over: Any) -> None:
    check_plan(a_plan(*leases, **over), cluster=CLUSTER, jobs=JOBS, parent=parent, now_s=now_s)


def test_a_packed_pair_holds_the_same_workers() -> None:
    check(*(a_lease(name, "fast-0", combination=("a", "b")) for name in "ab"), a_lease("c", "fast-1"))


@pytest.mark.parametrize(
    ("name", "leases"),
    [
        ("one_combination_per_worker", [a_lease("a", "fast-0"), a_lease("b", "fast-0")]),
        ("one_lease_per_job", [a_lease("a", "fast-0"), a_lease("a", "fast-1", generation=2)]),
        ("pairs_share_their_workers", [a_lease("a", "fast-0", combination=("a", "b"))]),
        ("pairs_share_their_workers", [a_lease("a", "fast-0", combination=("b",))]),
        (
            "pairs_share_their_workers",
            [a_lease("a", "fast-0", combination=("a", "b")), a_lease("b", "fast-1", combination=("a", "b"))],
        ),
        (
            "pairs_share_their_workers",
            [a_lease(name, "fast-0", combination=("a", "b", "c")) for name in "abc"],
        ),
        ("whole_gangs_of_one_type", [a_lease("two", "fast-0")]),
        ("whole_gangs_of_one_type", [a_lease("two", "fast-0", "fast-0")]),
        ("whole_gangs_of_one_type", [a_lease("two", "fast-0", "slow-0")]),
        ("whole_gangs_of_one_type", [a_lease("a", "nowhere")]),
        ("whole_gangs_of_one_type", [a_lease("nobody", "fast-0")]),
        ("generations_grow", [a_lease("a", "fast-0", generation=0)]),
    ],
)
def test_a_plan_that_breaks_an_invariant_is_refused_by_its_name(name: str, leases: list[Lease]) -> None:
    with pytest.raises(InvariantViolated) as refused:
        check(*leases)
    assert refused.value.name == name


def test_a_gang_that_moves_needs_a_larger_token() -> None:
    parent = a_plan(a_lease("a", "fast-0"))
    check(a_lease("a", "fast-1", generation=2), parent=parent, round_index=2, parent_round_index=1)
    with pytest.raises(InvariantViolated, match="generations_grow"):
        check(a_lease("a", "fast-1"), parent=parent, round_index=2, parent_round_index=1)


@pytest.mark.parametrize("over", [{"round_index": 3}, {"parent_round_index": 0}, {"starts_at_s": -1.0}], ids=str)
def test_rounds_follow_each_other(over: dict[str, Any]) -> None:
    with pytest.raises(InvariantViolated, match="rounds_increase"):
        check(parent=a_plan(), **({"round_index": 2, "parent_round_index": 1} | over))


def test_workers_that_are_handed_on_within_a_round_hold_one_gang_after_the_other() -> None:
    """1. Job a, gone since, ended at 4 s. 2. Job b has its worker from then on; at 3 s it would have been too early."""
    ended = a_lease("gone", "fast-0", expires_at_s=4.0)
    check(ended, a_lease("b", "fast-0", starts_at_s=4.0), now_s=4.0)
    with pytest.raises(InvariantViolated, match="one_combination_per_worker"):
        check(ended, a_lease("b", "fast-0", starts_at_s=3.0), now_s=4.0)


def an_allocation(combinations: list[tuple[str, ...]], fractions: Any) -> Allocation:
    x = np.asarray(fractions, dtype=float)
    certificate = Certificate(primal_violation=0.0)
    return Allocation(
        combinations=tuple(combinations),
        accelerator_types=("fast", "slow"),
        time_fraction=x,
        certificate=certificate,
        policy="test",
        solver="none",
    )


def test_nobody_is_promised_more_than_all_its_time_alone_and_packed() -> None:
    fair = an_allocation([("a",), ("b",), ("a", "b")], [[0.5, 0.0], [0.0, 0.25], [0.5, 0.0]])
    check_allocation(fair)
    for bad in ([[0.6, 0.0], [0.0, 0.25], [0.5, 0.0]], [[-0.1, 0], [0, 0], [0, 0]], [[np.nan, 0], [0, 0], [0, 0]]):
        with pytest.raises(InvariantViolated, match="allocation_is_fractions"):
            check_allocation(replace(fair, time_fraction=np.array(bad)))


def test_a_gang_has_one_of_the_plans_of_its_job_and_another_plan_is_another_generation() -> None:
    own = tuple(ExecutionPlan(name=name, kind=f"net[{name}]", sizes=(size,)) for name, size in (("a", 1), ("b", 2)))
    jobs = {"j1": a_job("j1", spec={"plans": own, "plan": "a"}), "j2": a_job("j2")}
    cluster, parent = a_cluster(fast=4), a_plan(a_lease("j1", "fast-0", plan="a"), round_index=0, parent_round_index=-1)
    check_plan(a_plan(a_lease("j1", "fast-0", plan="a")), cluster=cluster, jobs=jobs, parent=parent)
    for wrong in (
        a_lease("j1", "fast-0", plan="c"),
        a_lease("j1", "fast-0", plan="b"),
        a_lease("j2", "fast-0", plan="a"),
    ):
        with pytest.raises(InvariantViolated, match="plans_hold"):
            check_plan(a_plan(wrong), cluster=cluster, jobs=jobs, parent=None)
    both = {"j1": a_job("j1", spec={"plans": (own[0], replace(own[1], sizes=(1,))), "plan": "a"})}
    with pytest.raises(InvariantViolated, match="generations_grow"):
        check_plan(a_plan(a_lease("j1", "fast-0", plan="b")), cluster=cluster, jobs=both, parent=parent)
