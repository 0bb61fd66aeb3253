"""Each invariant refuses a plan or an allocation that breaks it, and what only looks like it passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.errors import InvariantViolated
from gavel.mechanism.planning.invariants import check_allocation, check_plan, needs_are_met
from gavel.types import Allocation, Certificate, Cluster, ExecutionPlan, Job, Lease, Node, RoundPlan, Worker
from tests.builders import a_cluster, a_job
from tests.refusals import refused

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


PAIR = {"combination": ("a", "b")}


@pytest.mark.parametrize(
    ("sentence", "leases"),
    [
        (
            "one_combination_per_worker: round 1 leases fast-0 to a and to b at once",
            [a_lease("a", "fast-0"), a_lease("b", "fast-0")],
        ),
        (
            "one_lease_per_job: round 1 leases to job a twice at once",
            [a_lease("a", "fast-0"), a_lease("a", "fast-1", generation=2)],
        ),
        (
            "pairs_share_their_workers: job a got ('fast-0',) beside ('a', 'b')",
            [a_lease("c", "fast-1"), a_lease("a", "fast-0", **PAIR)],
        ),
        (
            "pairs_share_their_workers: job a got ('fast-0',) beside ('b',)",
            [a_lease("a", "fast-0", combination=("b",))],
        ),
        (
            "pairs_share_their_workers: job a got ('fast-0',) beside ('a', 'b')",
            [a_lease("a", "fast-0", **PAIR), a_lease("b", "fast-1", **PAIR)],
        ),
        (
            "pairs_share_their_workers: job a got ('fast-0',) beside ('a', 'b', 'c')",
            [a_lease(name, "fast-0", combination=("a", "b", "c")) for name in "abc"],
        ),
        ("whole_gangs_of_one_type: job two got ('fast-0',) of ['fast']", [a_lease("two", "fast-0")]),
        ("whole_gangs_of_one_type: job two got ('fast-0', 'fast-0') of ['fast']", [a_lease("two", "fast-0", "fast-0")]),
        (
            "whole_gangs_of_one_type: job two got ('fast-0', 'slow-0') of ['fast', 'slow']",
            [a_lease("two", "fast-0", "slow-0")],
        ),
        ("whole_gangs_of_one_type: job a got ('nowhere',) of [None]", [a_lease("a", "nowhere")]),
        ("whole_gangs_of_one_type: job nobody got ('fast-0',) of ['fast']", [a_lease("nobody", "fast-0")]),
        ("generations_grow: job a was given generation 0 again", [a_lease("a", "fast-0", generation=0)]),
    ],
)
def test_a_plan_that_breaks_an_invariant_is_refused_with_what_breaks_it(sentence: str, leases: list[Lease]) -> None:
    with refused(InvariantViolated, sentence):
        check(*leases)


def test_a_gang_that_moves_needs_a_larger_token() -> None:
    parent = a_plan(a_lease("a", "fast-0"))
    check(a_lease("a", "fast-1", generation=2), parent=parent, round_index=2, parent_round_index=1)
    with pytest.raises(InvariantViolated, match="generations_grow"):
        check(a_lease("a", "fast-1"), parent=parent, round_index=2, parent_round_index=1)


@pytest.mark.parametrize("over", [{"round_index": 3}, {"parent_round_index": 0}, {"starts_at_s": -1.0}], ids=str)
def test_rounds_follow_each_other(over: dict[str, Any]) -> None:
    wrong = {"round_index": 2, "parent_round_index": 1} | over
    with refused(InvariantViolated, f"rounds_increase: round {wrong['round_index']} cannot follow round 1"):
        check(parent=a_plan(), **wrong)


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
        is_refused(replace(fair, time_fraction=np.array(bad)))


def is_refused(allocation: Allocation) -> None:
    sentence = f"allocation_is_fractions: policy test gave {allocation.time_fraction!r}"
    with refused(InvariantViolated, sentence):
        check_allocation(allocation)


def test_the_time_of_a_job_is_that_of_all_its_pairs_and_that_of_one_alone_is_that_on_all_types() -> None:
    check_allocation(an_allocation([("a", "b"), ("a", "c")], [[0.5, 0.0], [0.25, 0.25]]))
    is_refused(an_allocation([("a", "b"), ("a", "c")], [[0.5, 0.0], [0.25, 0.5]]))
    check_allocation(an_allocation([("a",), ("b",)], [[0.5, 0.5], [1.0, 0.0]]))
    is_refused(an_allocation([("a",), ("b",)], [[0.5, 0.0], [0.75, 0.5]]))


def test_fractions_may_be_beyond_their_bounds_by_a_millionth() -> None:
    check_allocation(an_allocation([("a",)], [[-1e-6, 1.0]]))
    check_allocation(an_allocation([("a",)], [[1.0 + 1e-6, 0.0]]))
    is_refused(an_allocation([("a",)], [[-1.1e-6, 1.0]]))
    is_refused(an_allocation([("a",)], [[1.0 + 1.1e-6, 0.0]]))


def test_a_gang_has_one_of_the_plans_of_its_job_and_another_plan_is_another_generation() -> None:
    own = tuple(ExecutionPlan(name=name, kind=f"net[{name}]", sizes=(size,)) for name, size in (("a", 1), ("b", 2)))
    jobs = {"j1": a_job("j1", spec={"plans": own, "plan": "a"}), "j2": a_job("j2"), "j3": a_job("j3")}
    cluster, parent = a_cluster(fast=4), a_plan(a_lease("j1", "fast-0", plan="a"), round_index=0, parent_round_index=-1)
    check_plan(a_plan(a_lease("j1", "fast-0", plan="a")), cluster=cluster, jobs=jobs, parent=parent)
    for job_id, plan in (("j1", "c"), ("j1", "b"), ("j2", "a")):
        wrong = a_plan(a_lease("j3", "fast-1"), a_lease(job_id, "fast-0", plan=plan))
        with refused(InvariantViolated, f"plans_hold: job {job_id} got plan '{plan}' for 1 workers"):
            check_plan(wrong, cluster=cluster, jobs=jobs, parent=None)
    both = {"j1": a_job("j1", spec={"plans": (own[0], replace(own[1], sizes=(1,))), "plan": "a"})}
    with pytest.raises(InvariantViolated, match="generations_grow"):
        check_plan(a_plan(a_lease("j1", "fast-0", plan="b")), cluster=cluster, jobs=both, parent=parent)


SMALL = Node(name="small", cpu_cores=4, memory_bytes=8)
LARGE = Node(name="large", cpu_cores=16, memory_bytes=64, labels={"rack": "r1"})
NODES = Cluster(
    nodes=(SMALL, LARGE),
    workers=tuple(
        Worker(id=f"{node}-{index}", node=node, accelerator_type="fast")
        for node in ("small", "large", "unnamed")
        for index in range(2)
    ),
)


def needing(**needs: Any) -> dict[str, Job]:
    """Job a needs this, and so does b; c needs nothing."""
    return {"a": a_job("a", spec=needs), "b": a_job("b", spec=needs), "c": a_job("c")}


@pytest.mark.parametrize(
    ("needs", "worker", "allowed"),
    [
        ({"node_labels": {"rack": "r1"}}, "small-0", "large-0"),
        ({"node_labels": {"rack": "r1"}}, "unnamed-0", "large-1"),
        ({"memory_bytes": 9}, "small-1", "unnamed-1"),
        ({"accelerator_types": ("slow",)}, "large-0", None),
    ],
)
def test_a_gang_is_where_each_rank_has_what_it_needs(needs: dict[str, Any], worker: str, allowed: str | None) -> None:
    jobs, wrong, other = needing(**needs), a_lease("a", worker), a_lease("c", "large-1")
    sentence = f"needs_are_met: job a may not run on {worker} of {worker.partition('-')[0]}"
    with refused(InvariantViolated, sentence):
        needs_are_met([wrong], [other, wrong], NODES, jobs)
    needs_are_met([other], [other, wrong], NODES, jobs)
    if allowed:
        right = a_lease("a", allowed)
        needs_are_met([right], [right], NODES, jobs)


def test_the_gangs_on_a_node_have_its_cores_and_memory_together() -> None:
    for needs in ({"cpu_cores": 3}, {"memory_bytes": 5}):
        jobs, one, other = needing(**needs), a_lease("a", "small-0"), a_lease("b", "small-1")
        with refused(InvariantViolated, "needs_are_met: gangs on node small need more cores or memory than it has"):
            needs_are_met([one], [one, other], NODES, jobs)
        needs_are_met([one], [one, a_lease("b", "large-0"), a_lease("gone", "small-1")], NODES, jobs)


def test_a_node_that_is_overfull_already_concerns_only_who_is_put_there_now() -> None:
    """It has lost memory since its gangs were started, say, and these stay."""
    jobs, stay = needing(memory_bytes=5), [a_lease("a", "small-0"), a_lease("b", "small-1")]
    given = a_lease("c", "large-0")
    needs_are_met([given], [*stay, given], NODES, jobs)
    needs_are_met([], stay, NODES, jobs)
    with refused(InvariantViolated, "needs_are_met: gangs on node small need more cores or memory than it has"):
        needs_are_met(stay[1:], stay, NODES, jobs)
