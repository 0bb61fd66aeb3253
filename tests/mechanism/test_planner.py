"""Numbered scenarios and properties of plans; no clock, no backend."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvariantViolated
from gavel.mechanism.planning.invariants import check_plan
from gavel.mechanism.planning.planner import Shares, pinned_rows
from gavel.types import Allocation, Certificate, Cluster, Job, JobState, Node, RoundPlan, Worker
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.planning import Planning


def an_allocation(jobs: list[Job], types: tuple[str, ...], fractions: Any) -> Allocation:
    return Allocation(
        combinations=tuple((job.id,) for job in jobs),
        accelerator_types=types,
        time_fraction=np.asarray(fractions, dtype=float).reshape(len(jobs), len(types)),
        certificate=Certificate(primal_violation=0.0),
        policy="test",
        solver="none",
    )


def a_view(jobs: list[Job], cluster: Cluster, fractions: Any, rates: Any = None, **over: Any) -> Planning:
    types = cluster.accelerator_types
    sizes = [job.spec.scale_factor for job in jobs]
    capacity = [cluster.capacity_workers()[name] for name in types]
    rates = np.ones((len(jobs), len(types))) if rates is None else np.asarray(rates, dtype=float)
    rates = np.where(np.array(capacity)[None, :] >= np.array(sizes)[:, None], rates, 0.0)
    problem = a_problem(
        rates.tolist(), capacity, job_ids=tuple(j.id for j in jobs), accelerator_types=types, scale_factor=sizes
    )
    fields: dict[str, Any] = {
        "jobs": jobs,
        "cluster": cluster,
        "problem": problem,
        "allocation": an_allocation(jobs, types, fractions),
        "lag_rounds": {},
        "parent": None,
        "starts_at_s": 0.0,
        "duration_s": 10.0,
    }
    return Planning(**(fields | over))


def follow(view: Planning, rounds: int) -> tuple[list[RoundPlan], dict[tuple[str, str], float]]:
    """Plans `rounds` rounds of an unchanging allocation, every job leased and still wanting more."""
    plans: list[RoundPlan] = []
    lag: dict[tuple[str, str], float] = {}
    for index in range(rounds):
        plan, lag = view.plan()
        check_plan(plan, cluster=view.cluster, jobs={j.id: j for j in view.jobs}, parent=view.parent)
        generations = {lease.job_id: lease.generation for lease in plan.leases}
        jobs = [
            replace(
                j,
                generation=generations.get(j.id, j.generation),
                state=JobState.LEASED if j.id in generations else JobState.QUEUED,
            )
            for j in view.jobs
        ]
        view = replace(view, jobs=jobs, parent=plan, lag_rounds=lag, starts_at_s=(index + 1) * 10.0)
        plans.append(plan)
    return plans, lag


def test_two_jobs_that_share_one_worker_take_turns_and_among_equals_nobody_moves() -> None:
    jobs = [a_job("a"), a_job("b")]
    plans, _ = follow(a_view(jobs, a_cluster(fast=1), [[0.5], [0.5]]), 6)
    assert "".join(plan.leases[0].job_id for plan in plans) == "abbaab"


def test_fractions_are_received_over_rounds() -> None:
    """1. Three jobs have target fractions of 1/2, 1/3, 1/6. 2. After 60 rounds each has its part within one round."""
    jobs = [a_job("a"), a_job("b"), a_job("c")]
    plans, _ = follow(a_view(jobs, a_cluster(fast=1), [[1 / 2], [1 / 3], [1 / 6]]), 60)
    got = [sum(plan.leases[0].job_id == name for plan in plans) for name in "abc"]
    assert np.abs(np.array(got) - [30, 20, 10]).max() <= 1


def test_a_gang_that_stays_keeps_its_workers_and_its_token() -> None:
    plans, _ = follow(a_view([a_job("a")], a_cluster(fast=2), [[1.0]]), 3)
    assert {(plan.leases[0].generation, plan.leases[0].worker_ids) for plan in plans} == {(1, ("fast-0",))}


def test_a_gang_that_moves_gets_a_new_token() -> None:
    view = a_view([a_job("a")], a_cluster(fast=1, slow=1), [[0.5, 0.5]])
    plans, _ = follow(view, 4)
    leases = [plan.leases[0] for plan in plans]
    assert [(lease.accelerator_type, lease.generation) for lease in leases] == [
        ("fast", 1),
        ("slow", 2),
        ("slow", 2),
        ("fast", 3),
    ]


def test_a_gang_whose_job_was_preempted_meanwhile_starts_under_a_new_token() -> None:
    view = a_view([a_job("a")], a_cluster(fast=1), [[1.0]])
    plan, lag = view.plan()
    gone = [a_job("a", generation=1, state=JobState.QUEUED)]
    again, _ = replace(view, jobs=gone, parent=plan, lag_rounds=lag, starts_at_s=10.0).plan()
    assert again.leases[0].generation == 2


def test_free_workers_go_to_waiting_jobs_on_their_fastest_type() -> None:
    jobs = [a_job("a"), a_job("b")]
    view = a_view(jobs, a_cluster(fast=1, slow=1), [[0.0, 0.0], [0.0, 0.0]], rates=[[5, 1], [5, 1]])
    plan, _ = view.plan()
    assert {lease.job_id: lease.accelerator_type for lease in plan.leases} == {"a": "fast", "b": "slow"}


def test_a_gang_is_never_split_nor_placed_where_it_cannot_fit() -> None:
    jobs = [a_job("a", spec={"scale_factor": 2}), a_job("b")]
    view = a_view(jobs, a_cluster(big=2, small=1), [[1.0, 0.0], [0.0, 1.0]])
    plan, _ = view.plan()
    leases = {lease.job_id: lease for lease in plan.leases}
    assert leases["a"].worker_ids == ("big-0", "big-1") and leases["b"].accelerator_type == "small"


def test_profiling_comes_first_once_per_kind_and_within_its_budget() -> None:
    """1. Three jobs of one kind, nobody measured it. 2. One of them profiles; the others go where they lag."""
    jobs = [a_job("a"), a_job("b"), a_job("c")]
    to_profile = [(job.id, "slow") for job in jobs]
    view = a_view(jobs, a_cluster(fast=2, slow=2), [[1, 0], [1, 0], [0, 0]], to_profile=to_profile)
    plan, _ = view.plan()
    assert [lease.job_id for lease in plan.leases if lease.is_profiling] == ["a"]
    assert {lease.job_id for lease in plan.leases} == {"a", "b", "c"}


def test_a_gang_as_large_as_its_type_can_still_be_profiled() -> None:
    jobs = [a_job("a", spec={"scale_factor": 2})]
    plan, _ = a_view(jobs, a_cluster(fast=2), [[0.0]], to_profile=[("a", "fast")]).plan()
    assert plan.leases[0].is_profiling


def test_a_plan_that_leases_a_worker_twice_is_refused() -> None:
    jobs = {"a": a_job("a"), "b": a_job("b")}
    plan, _ = a_view(list(jobs.values()), a_cluster(fast=2), [[1.0], [1.0]]).plan()
    twice = replace(plan, leases=tuple(replace(lease, worker_ids=("fast-0",)) for lease in plan.leases))
    with pytest.raises(InvariantViolated, match="fast-0"):
        check_plan(twice, cluster=a_cluster(fast=2), jobs=jobs, parent=None)


def packed(view: Planning, shares: dict[tuple[str, ...], list[float]]) -> Planning:
    """The view with an allocation that names jobs and pairs."""
    allocation = replace(
        view.allocation, combinations=tuple(shares), time_fraction=np.array(list(shares.values()), dtype=float)
    )
    return replace(view, allocation=allocation)


def next_view(view: Planning, plan: RoundPlan, lag: dict[tuple[str, str], float]) -> Planning:
    generations = {lease.job_id: lease.generation for lease in plan.leases}
    jobs = [
        replace(
            job,
            generation=generations.get(job.id, job.generation),
            state=JobState.LEASED if job.id in generations else JobState.QUEUED,
        )
        for job in view.jobs
    ]
    return replace(view, jobs=jobs, parent=plan, lag_rounds=lag, starts_at_s=plan.ends_at_s)


def test_a_packed_pair_gets_two_leases_on_the_same_workers() -> None:
    jobs = [a_job(name, spec={"scale_factor": 2}) for name in "ab"]
    view = packed(a_view(jobs, a_cluster(fast=2), [[0.0], [0.0]]), {("a", "b"): [1.0]})
    plan, lag = view.plan()
    check_plan(plan, cluster=view.cluster, jobs={j.id: j for j in jobs}, parent=None)
    assert [(x.job_id, x.combination, x.worker_ids) for x in plan.leases] == [
        ("a", ("a", "b"), ("fast-0", "fast-1")),
        ("b", ("a", "b"), ("fast-0", "fast-1")),
    ]
    assert lag == {}


def test_a_gang_goes_on_in_place_when_a_partner_comes_and_when_it_leaves() -> None:
    jobs = [a_job("a"), a_job("b")]
    alone = a_view(jobs, a_cluster(fast=1), [[1.0], [0.0]])
    plan, lag = alone.plan()
    both = packed(next_view(alone, plan, lag), {("a", "b"): [1.0]})
    second, lag = both.plan()
    again = replace(next_view(both, second, lag), allocation=alone.allocation)
    third, _ = again.plan()
    leases = [lease for each in (plan, second, third) for lease in each.leases if lease.job_id == "a"]
    assert {(lease.generation, lease.worker_ids) for lease in leases} == {(1, ("fast-0",))}
    assert [lease.combination for lease in leases] == [("a",), ("a", "b"), ("a",)]
    check_plan(third, cluster=again.cluster, jobs={j.id: j for j in again.jobs}, parent=second)


def test_a_gang_that_was_just_started_stays_for_the_minimum() -> None:
    """1. Job a starts at 0 s and may not stop before 25 s. 2. All is promised to b. 3. Job a goes at 30 s."""
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[1.0], [0.0]], minimum_run_s=25.0)
    served = []
    for _ in range(4):
        plan, lag = view.plan()
        served.append(plan.leases[0].job_id)
        view = next_view(view, plan, lag)
        allocation = replace(view.allocation, time_fraction=np.array([[0.0], [1.0]]))
        view = replace(view, allocation=allocation, started_at_s={"a": 0.0})
    assert served == ["a", "a", "a", "b"]


def test_a_pair_that_was_just_started_stays_whole_whatever_it_is_promised() -> None:
    jobs = [a_job(name) for name in "abc"]
    view = packed(a_view(jobs, a_cluster(fast=1), [[0.0]] * 3, minimum_run_s=25.0), {("a", "b"): [1.0]})
    plan, lag = view.plan()
    view = packed(replace(next_view(view, plan, lag), started_at_s={"a": 0.0, "b": 0.0}), {("c",): [1.0]})
    second, _ = view.plan()
    assert [(lease.job_id, lease.combination) for lease in second.leases] == [("a", ("a", "b")), ("b", ("a", "b"))]


def test_moves_that_cost_much_are_made_less_often() -> None:
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[0.5], [0.5]])
    moves = []
    for costs in ({}, {"mlp": 20.0}, {"": 20.0}, {"other": 20.0}):
        served = [plan.leases[0].job_id for plan in follow(replace(view, switch_cost_s=costs), 40)[0]]
        moves.append(sum(one != other for one, other in pairwise(served)))
    assert moves[0] == moves[3] > 2 * moves[1] == 2 * moves[2] > 10


def test_a_gang_that_runs_over_two_nodes_moves_to_one_as_soon_as_there_is_room() -> None:
    nodes = tuple(Node(name=name) for name in ("m", "n"))
    workers = tuple(Worker(id=f"{n}{i}", node=n, accelerator_type="fast") for n in "mn" for i in range(2))
    cluster = Cluster(nodes=nodes, workers=workers)
    jobs = [a_job("a"), a_job("b", spec={"scale_factor": 2}), a_job("c")]
    view = a_view(jobs, cluster, [[1.0], [1.0], [1.0]])
    plan, lag = view.plan()
    spread = tuple(
        replace(lease, worker_ids=ids) for lease, ids in zip(plan.leases, (("m0",), ("m1", "n0"), ("n1",)), strict=True)
    )
    view = next_view(view, replace(plan, leases=spread), lag)
    full, _ = view.plan()
    assert {lease.worker_ids for lease in full.leases} == {("m0",), ("m1", "n0"), ("n1",)}
    fewer = a_view(list(view.jobs)[:2], cluster, [[1.0], [1.0]], parent=view.parent, starts_at_s=10.0)
    gathered, _ = fewer.plan()
    assert {lease.job_id: lease.worker_ids for lease in gathered.leases}["b"] == ("n0", "n1")
    dear, _ = replace(fewer, switch_cost_s={"mlp": 5.0}).plan()
    assert {lease.job_id: lease.worker_ids for lease in dear.leases}["b"] == ("m1", "n0")


@settings(max_examples=60)
@given(data=st.data())
def test_any_allocation_gives_valid_plans_that_waste_no_worker(data: st.DataObject) -> None:
    """Whole gangs, no worker twice, generations grow; a worker is idle only if no waiting gang fits its type."""
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=8))
    cluster = a_cluster(**{name: data.draw(st.integers(1, 4)) for name in ("fast", "slow")})
    rates = data.draw(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=2, max_size=2), min_size=8, max_size=8)
    )
    raw = np.array(data.draw(st.lists(st.floats(0, 1), min_size=16, max_size=16))).reshape(8, 2)[: len(sizes)]
    fractions = raw / np.maximum(1.0, raw.sum(axis=1, keepdims=True))
    jobs = [a_job(f"j{i}", spec={"scale_factor": size}) for i, size in enumerate(sizes)]
    view = a_view(jobs, cluster, fractions, rates=rates[: len(sizes)])
    for plan in follow(view, 5)[0]:
        served = {lease.job_id for lease in plan.leases}
        free = cluster.capacity_workers()
        for lease in plan.leases:
            free[lease.accelerator_type] -= len(lease.worker_ids)
        for row, job in enumerate(jobs):
            if job.id not in served:
                for column, name in enumerate(cluster.accelerator_types):
                    can_run = view.problem.throughput_steps_per_s[row, 0, column] > 0
                    assert not can_run or free[name] < job.spec.scale_factor


def test_gangs_that_still_start_are_pinned_also_while_no_node_is_there() -> None:
    """The cluster then has no accelerator type, and nobody gets any time."""
    shares = Shares(of_job=np.zeros((1, 0)), pairs=[], of_pair=np.zeros((0, 0)))
    pinned, rows = pinned_rows([(0,)], shares, 1)
    assert rows == (0,)
    assert pinned.of_pair.shape == (0, 0)
