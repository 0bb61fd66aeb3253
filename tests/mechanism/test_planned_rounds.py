"""Plans of rounds, compared whole: leases, ledger, how an allocation is read, and what is profiled."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.planner import digest, plan_round, shares_of, stay_rounds, time_per_job
from gavel.types import Job, JobState, Lease, Needs, RoundPlan, Tier, Used
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.planning import Planning
from tests.mechanism.test_planner import a_view, packed

Ledger = dict[tuple[str, str], float]


def a_lease(job_id: str, generation: int, *workers: str, **over: Any) -> Lease:
    """A lease of round 7, [20, 30)."""
    fields: dict[str, Any] = {"combination": (job_id,), "accelerator_type": workers[0].split("-")[0], "round_index": 7}
    return Lease(
        **fields | {"job_id": job_id, "generation": generation, "worker_ids": workers, "expires_at_s": 30.0} | over
    )


def a_parent(*leases: Lease) -> RoundPlan:
    return RoundPlan(
        round_index=7,
        parent_round_index=6,
        starts_at_s=20.0,
        duration_s=10.0,
        leases=leases,
        policy="p",
        allocation_digest="d",
    )


def following(view: Planning, *leases: Lease) -> Planning:
    """The round after one with these leases."""
    return replace(view, parent=a_parent(*leases), starts_at_s=30.0)


def planned(view: Planning, lag_rounds: Ledger | None = None, **inputs: Any) -> tuple[RoundPlan, Ledger]:
    return plan_round(
        replace(view.inputs, **inputs), problem=view.problem, allocation=view.allocation, lag_rounds=lag_rounds or {}
    )


def leases(view: Planning, lag_rounds: Ledger | None = None, **inputs: Any) -> list[Lease]:
    return list(planned(view, lag_rounds, **inputs)[0].leases)


def leased(job_id: str, generation: int = 1, **over: Any) -> Job:
    return a_job(job_id, generation=generation, state=JobState.LEASED, **over)


def now(job_id: str, generation: int, *workers: str, **over: Any) -> Lease:
    """A lease of the round that follows, [30, 40)."""
    return a_lease(job_id, generation, *workers, round_index=8, expires_at_s=40.0, **over)


# --- whole rounds -------------------------------------------------------------------------------------------------


def test_the_first_round_has_all_that_a_plan_tells_and_charges_what_it_gives() -> None:
    jobs = [a_job("a"), a_job("b", generation=4), a_job("c")]
    view = a_view(jobs, a_cluster(fast=1, slow=1), [[0.75, 0.0], [0.0, 0.5], [0.25, 0.0]])
    plan, lag = planned(view, {("c", "fast"): 0.25, ("gone", "fast"): 2.0, ("c", "gone"): 3.0})
    first = {"round_index": 1, "expires_at_s": 10.0}
    assert plan == RoundPlan(
        round_index=1,
        parent_round_index=0,
        starts_at_s=0.0,
        duration_s=10.0,
        leases=(a_lease("a", 1, "fast-0", **first), a_lease("b", 5, "slow-0", **first)),
        policy="test",
        allocation_digest=digest(view.allocation),
    )
    assert lag == {("a", "fast"): -0.25, ("b", "slow"): -0.5, ("c", "fast"): 0.5}


def test_a_round_follows_its_parent_and_leases_end_with_it() -> None:
    view = following(a_view([leased("a", 3)], a_cluster(fast=1), [[1.0]]), a_lease("a", 3, "fast-0"))
    plan, _ = planned(view)
    assert (plan.round_index, plan.parent_round_index, plan.leases) == (8, 7, (now("a", 3, "fast-0"),))


def test_by_the_published_rule_rounds_count_from_the_last_solve() -> None:
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[0.5], [0.5]])
    received = {("a", "fast"): 2.0}
    assert planned(view, received, planner="published")[1] == {("a", "fast"): 1.0}
    again = planned(view, received, planner="published", is_new_allocation=False)[1]
    assert again == {("a", "fast"): 2.0, ("b", "fast"): 1.0}


def test_a_pair_and_a_job_alone_have_leases_in_the_order_of_jobs_and_then_pairs() -> None:
    view = packed(
        a_view([a_job(name) for name in "abc"], a_cluster(fast=2), [[0.0]] * 3), {("a", "c"): [1.0], ("b",): [1.0]}
    )
    first: dict[str, Any] = {"round_index": 1, "expires_at_s": 10.0}
    pair = first | {"combination": ("a", "c")}
    assert leases(view) == [
        a_lease("b", 1, "fast-0", **first),
        a_lease("a", 1, "fast-1", **pair),
        a_lease("c", 1, "fast-1", **pair),
    ]


def test_cores_that_others_hold_and_that_a_rank_needs_are_counted() -> None:
    """The node has as many cores as workers."""
    jobs = [a_job("a", spec={"cpu_cores": 2}), a_job("b")]
    view = a_view(jobs, a_cluster(fast=2), [[1.0], [1.0]])
    assert [lease.job_id for lease in leases(view)] == ["a"]
    used = {"node-0": Used(workers=0, cpu_cores=1, memory_bytes=0)}
    assert [lease.job_id for lease in leases(view, used=used)] == ["b"]
    layout = Layout(view.cluster, used)
    plan, _ = plan_round(view.inputs, problem=view.problem, allocation=view.allocation, lag_rounds={}, layout=layout)
    assert [lease.job_id for lease in plan.leases] == ["b"]
    assert jobs[0].spec.needs == Needs(cpu_cores=2)


def test_a_tier_with_a_cap_gets_nothing_beyond_its_time() -> None:
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=2), [[0.0], [0.0]])
    tiers = (Tier(name="capped", cap=0.5), Tier(name="default"))
    problem = a_problem(
        [[1.0], [1.0]], [2], job_ids=("a", "b"), accelerator_types=("fast",), tiers=tiers, tier_of_job=[0, 1]
    )
    assert [lease.job_id for lease in leases(replace(view, problem=problem))] == ["b"]


def test_who_is_late_goes_first() -> None:
    view = a_view([a_job("a"), a_job("b")], a_cluster(fast=1, slow=1), [[1.0, 0.0], [0.0, 0.0]])
    first = {"round_index": 1, "expires_at_s": 10.0}
    assert leases(view, late=(("b", "fast"),)) == [
        a_lease("a", 1, "slow-0", **first),
        a_lease("b", 1, "fast-0", **first),
    ]


def test_a_job_that_may_only_run_in_a_pair_takes_nothing_that_is_left() -> None:
    """The problem names job b only together with a; the rates of combinations are not in the order of jobs."""
    view = packed(
        a_view([a_job(name) for name in "abc"], a_cluster(fast=1, slow=1), [[0.0, 0.0]] * 3), {("a",): [0, 0]}
    )
    rates = np.array([[[4.0, 9.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [[9.0, 4.0], [0.0, 0.0]]])
    problem = replace(view.problem, combinations=((2,), (0, 1), (0,)), throughput_steps_per_s=rates)
    first = {"round_index": 1, "expires_at_s": 10.0}
    assert leases(replace(view, problem=problem)) == [
        a_lease("a", 1, "fast-0", **first),
        a_lease("c", 1, "slow-0", **first),
    ]


@pytest.mark.parametrize(
    ("combinations", "rates", "expected"),
    [
        (((0,), (0, 1), (2,)), [[4.0, 9.0], [1.0, 1.0], [9.0, 4.0]], [("a", "slow"), ("c", "fast")]),
        (((1,), (2,), (0,)), [[4.0, 9.0], [0.0, 0.0], [9.0, 4.0]], [("a", "fast"), ("b", "slow")]),
    ],
    ids=["a pair", "in another order"],
)
def test_each_job_has_the_speeds_of_the_combination_that_it_is_alone_in(
    combinations: tuple[tuple[int, ...], ...], rates: list[list[float]], expected: list[tuple[str, str]]
) -> None:
    view = packed(
        a_view([a_job(name) for name in "abc"], a_cluster(fast=1, slow=1), [[0.0, 0.0]] * 3), {("a",): [0, 0]}
    )
    both = np.zeros((3, 2, 2))
    both[:, 0] = rates
    problem = replace(view.problem, combinations=combinations, throughput_steps_per_s=both)
    assert [(lease.job_id, lease.accelerator_type) for lease in leases(replace(view, problem=problem))] == expected


# --- allocations --------------------------------------------------------------------------------------------------


def test_the_price_of_a_move_is_that_of_the_kind_or_of_any_other() -> None:
    costs = {"a": 5.0, "b": 0.0, "": 20.0}
    assert stay_rounds(["b", "a", "c", "a"], costs, 10.0).tolist() == [0.0, 1.0, 2.0, 1.0]
    assert stay_rounds(["a", "c"], {"a": 5.0}, 10.0).tolist() == [1.0, 0.0]
    assert stay_rounds(["a"], {}, 10.0).shape == (0,)


def test_an_allocation_has_the_same_digest_in_every_release_and_another_one_where_it_differs() -> None:
    allocation = a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[0.25], [0.5]]).allocation
    assert digest(allocation) == "4d977089fe1889c5"
    rounding = replace(allocation, time_fraction=allocation.time_fraction + 1e-10)
    more = replace(allocation, time_fraction=allocation.time_fraction + 1e-9)
    other = replace(allocation, combinations=(("a",), ("c",)))
    digests = [digest(each) for each in (rounding, more, other)]
    assert digests[0] == digest(allocation) and len({digest(allocation), *digests}) == 3


def test_the_time_of_a_job_is_that_alone_and_in_pairs_and_pairs_with_no_time_are_left_out() -> None:
    view = packed(
        a_view([a_job(name) for name in "abc"], a_cluster(fast=1, slow=1), [[0.0, 0.0]] * 3),
        {("a",): [0.25, 0.0], ("a", "b"): [0.5, 0.0], ("c", "b"): [0.0, 0.25], ("a", "c"): [1e-9, 0.0]},
    )
    shares = shares_of(view.allocation, view.problem)
    assert shares.of_job.tolist() == [[0.75 + 1e-9, 0.0], [0.5, 0.25], [1e-9, 0.25]]
    assert (shares.pairs, shares.of_pair.tolist()) == ([(0, 1), (2, 1)], [[0.5, 0.0], [0.0, 0.25]])
    assert time_per_job(view.allocation, view.problem).tolist() == shares.of_job.tolist()


def test_an_allocation_in_another_order_is_read_by_the_names_of_jobs() -> None:
    view = packed(a_view([a_job("a"), a_job("b")], a_cluster(fast=1), [[0.0]] * 2), {("b",): [0.75], ("a",): [0.25]})
    shares = shares_of(view.allocation, view.problem)
    assert (shares.of_job.tolist(), shares.pairs, shares.of_pair.shape) == ([[0.25], [0.75]], [], (0, 1))
    alone = a_view([a_job("a"), a_job("b")], a_cluster(fast=1, slow=1), [[0.25, 0.0], [0.75, 0.0]])
    shares = shares_of(alone.allocation, alone.problem)
    assert (shares.of_job.tolist(), shares.pairs, shares.of_pair.shape) == ([[0.25, 0.0], [0.75, 0.0]], [], (0, 2))


# --- profiling ----------------------------------------------------------------------------------------------------


def profiled(view: Planning, to_profile: Sequence[tuple[str, str]], **inputs: Any) -> list[tuple[str, str]]:
    """Job and type of each gang that profiles."""
    given = leases(view, to_profile=tuple(to_profile), **inputs)
    return [(lease.job_id, lease.accelerator_type) for lease in given if lease.is_profiling]


@pytest.mark.parametrize(
    ("specs", "fraction", "expected"),
    [
        ([{}, {"kind": "cnn"}, {"kind": "gan"}], 0.5, [("a", "fast"), ("b", "fast")]),
        ([{}, {"kind": "cnn"}, {"kind": "gan"}], 0.25, [("a", "fast")]),
        ([{}, {"kind": "cnn"}, {"kind": "gan"}], 0.75, [("a", "fast"), ("b", "fast"), ("c", "fast")]),
        ([{}, {}, {"kind": "gan"}], 0.75, [("a", "fast"), ("c", "fast")]),
        ([{}, {"scale_factor": 2}, {}], 0.75, [("a", "fast"), ("b", "fast")]),
        ([{"scale_factor": 4}, {}, {}], 0.5, [("a", "fast")]),
        ([{"scale_factor": 4}, {}, {}], 0.0, [("a", "fast")]),
        ([{"scale_factor": 3}, {"kind": "cnn"}, {}], 0.75, [("a", "fast")]),
        ([{"scale_factor": 2}, {"kind": "cnn"}, {}], 0.75, [("a", "fast"), ("b", "fast")]),
        ([{"scale_factor": 3}, {"scale_factor": 2}, {}], 1.0, [("a", "fast"), ("c", "fast")]),
    ],
    ids=[
        "half of the workers",
        "a quarter",
        "three quarters",
        "a kind once",
        "each size once",
        "a large gang",
        "at least one",
        "all is spent",
        "some is left",
        "one that does not fit",
    ],
)
def test_what_nobody_measured_is_profiled_once_each_on_a_part_of_the_workers(
    specs: list[dict[str, Any]], fraction: float, expected: list[tuple[str, str]]
) -> None:
    """On four workers."""
    jobs = [a_job(name, spec=spec) for name, spec in zip("abc", specs, strict=True)]
    view = a_view(jobs, a_cluster(fast=4), [[0.0]] * 3)
    assert profiled(view, [(name, "fast") for name in "abc"], profiling_workers_fraction=fraction) == expected


def test_each_type_has_a_budget_of_its_own_and_a_kind_is_profiled_on_each() -> None:
    jobs = [a_job("a"), a_job("b"), a_job("c", spec={"kind": "cnn"})]
    view = a_view(jobs, a_cluster(fast=1, slow=2), [[0.0, 0.0]] * 3)
    wanted = [("a", "slow"), ("b", "fast"), ("b", "slow"), ("c", "slow")]
    assert profiled(view, wanted) == [("a", "slow"), ("b", "fast")]
    assert profiled(view, wanted, profiling_workers_fraction=1.0) == [("a", "slow"), ("b", "fast"), ("c", "slow")]


def test_a_gang_elsewhere_than_where_it_was_to_be_profiled_does_not_profile() -> None:
    """A gang that is pinned stays on the other type."""
    view = following(
        a_view([leased("a")], a_cluster(fast=1, slow=1), [[0.0, 0.0]], minimum_run_s=30.0), a_lease("a", 1, "slow-0")
    )
    view = replace(view, started_at_s={"a": 20.0}, to_profile=(("a", "fast"),))
    assert leases(view) == [now("a", 1, "slow-0")]
