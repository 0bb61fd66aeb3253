"""What a problem says of jobs and cluster, field by field, and when an answer to an earlier one is used again."""

from dataclasses import fields, replace
from math import inf
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.planning.problem import (
    ClusterColumns,
    Solved,
    as_known,
    attained_service_s,
    deadline_or_inf,
    problem_from,
    rates_of,
    restricted,
    reused,
    schedulable,
    with_new_jobs,
    with_staying,
)
from gavel.ports import ThroughputMatrix
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import (
    Allocation,
    AllocationProblem,
    Certificate,
    Cluster,
    Configurations,
    Job,
    JobState,
    Node,
    PairRates,
    Tier,
    Worker,
)
from tests.builders import a_cluster, a_job, a_problem, a_spec

TIERS = {"silver": Tier(name="silver"), "gold": Tier(name="gold")}
PAIRS = PairRates(kind_of_job=np.zeros(2, dtype=np.int64), steps_per_s=np.ones((1, 1, 2)))


def believing(specs: Any, types: Any) -> ThroughputMatrix:
    """Two jobs on two types."""
    return ThroughputMatrix(
        steps_per_s=np.array([[3.0, 2.0], [5.0, 7.0]])[: len(specs), : len(types)],
        relative_error=np.array([[0.3, 0.2], [0.1, 0.4]])[: len(specs), : len(types)],
        is_worth_measuring=np.zeros((len(specs), len(types)), dtype=bool),
    )


def the_problem(jobs: list[Job], cluster: Cluster, **over: Any) -> AllocationProblem:
    given: dict[str, Any] = {
        "feasibility": Feasibility(cluster),
        "tiers": TIERS,
        "matrix": believing,
        "now_s": 100.0,
        "round_duration_s": 60.0,
        "pair_rates": PAIRS,
        "warm_start": {"x": 1},
    }
    return problem_from(jobs, **(given | over))


def columns(problem: Any) -> dict[str, Any]:
    """Its fields, arrays as lists."""
    values = {each.name: getattr(problem, each.name) for each in fields(problem)}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


# --- a problem ----------------------------------------------------------------------------------------------------


def test_a_problem_says_of_each_job_and_type_what_policies_read() -> None:
    """The second job does not fit on the slow type, which has one worker, and is known by no length."""
    cluster = Cluster(
        nodes=(Node(name="n0", cpu_cores=4, memory_bytes=100), Node(name="n1", cpu_cores=8, memory_bytes=50)),
        workers=(
            Worker(id="f0", node="n0", accelerator_type="fast", price_usd_per_hour=2.0),
            Worker(id="f1", node="n1", accelerator_type="fast", price_usd_per_hour=4.0),
            Worker(id="s0", node="n1", accelerator_type="slow", price_usd_per_hour=1.0),
        ),
    )
    spec = {"user": "bob", "tier": "silver", "weight": 3.0, "priority": 2, "deadline_at_s": 500.0, "total_steps": 50}
    large = {"scale_factor": 2, "cpu_cores": 3, "memory_bytes": 10, "total_steps": None}
    leased = {"state": JobState.LEASED, "accounted_until_s": 97.0}
    jobs = [
        a_job("a", spec=spec, steps_reported=20, submitted_at_s=40.0, isolated_time_s=5.0, received_s={"fast": 8.0}),
        a_job("b", spec=large, submitted_at_s=130.0, received_s={"fast": 1.0, "slow": 2.0}, **leased),
    ]
    problem = the_problem(jobs, cluster)
    assert columns(problem) == {
        "now_s": 100.0,
        "round_duration_s": 60.0,
        "job_ids": ("a", "b"),
        "combinations": ((0,), (1,)),
        "accelerator_types": ("fast", "slow"),
        "throughput_steps_per_s": [[[3.0, 2.0], [0.0, 0.0]], [[5.0, 0.0], [0.0, 0.0]]],
        "capacity_workers": [2, 1],
        "price_usd_per_hour": [3.0, 1.0],
        "scale_factor": [1, 2],
        "weight": [12.0, 1.0],
        "steps_remaining": [30.0, 50.0],
        "age_s": [60.0, 0.0],
        "attained_service_s": [8.0, 12.0],
        "isolated_time_s": [5.0, 0.0],
        "deadline_at_s": [500.0, inf],
        "tiers": (TIERS["gold"], TIERS["silver"]),
        "tier_of_job": [1, 0],
        "users": ("bob", "ann"),
        "cpu_cores": [1.0, 6.0],
        "memory_bytes": [0.0, 20.0],
        "length_error": [0.3, 1.0],
        "cluster_cpu_cores": 12.0,
        "cluster_memory_bytes": 150.0,
        "pair_rates": PAIRS,
        "warm_start": {"x": 1},
        "configurations": None,
        "staying_workers": [],
        "combination_workers": [],
    }
    assert {problem.capacity_workers.dtype, problem.scale_factor.dtype, problem.tier_of_job.dtype} == {
        np.dtype("int64")
    }


def test_a_job_has_a_step_left_at_least_and_its_length_is_as_sure_as_the_rate_of_its_fastest_type() -> None:
    jobs = [a_job("a", steps_reported=100), a_job("b", steps_reported=99)]
    problem = the_problem(jobs, a_cluster(fast=1, slow=1))
    assert problem.steps_remaining.tolist() == [1.0, 1.0] and problem.length_error.tolist() == [0.3, 0.4]
    unknown = replace(jobs[0], spec=replace(jobs[0].spec, total_steps=None, kind="other"))
    hours = the_problem([unknown, jobs[1]], a_cluster(fast=1, slow=1)).steps_remaining
    assert hours.tolist() == [3.0 * 3600, 1.0]


def test_without_workers_a_problem_has_no_types_and_its_jobs_no_errors() -> None:
    problem = the_problem([a_job("a")], Cluster())
    assert (problem.accelerator_types, problem.throughput_steps_per_s.shape) == ((), (1, 2, 0))
    assert problem.length_error.tolist() == [0.0] and problem.cluster_cpu_cores == inf == problem.cluster_memory_bytes


def test_a_cluster_has_as_much_as_its_nodes_say_unless_one_does_not() -> None:
    nodes = (Node(name="a", cpu_cores=4, memory_bytes=100), Node(name="b", cpu_cores=8))
    cluster = ClusterColumns.of(replace(a_cluster(fast=2), nodes=nodes))
    assert (cluster.cpu_cores, cluster.memory_bytes) == (12.0, inf)
    assert cluster.capacity_workers.dtype == np.int64 and cluster.capacity_workers.tolist() == [2]


def test_what_gangs_hold_that_stay_is_counted_by_tier_and_type() -> None:
    problem = the_problem([a_job("a")], a_cluster(fast=1, slow=1))
    staying = [("silver", "fast", 1.5), ("silver", "fast", 1.0), ("gold", "slow", 0.5), ("gold", "gone", 4.0)]
    after = with_staying(problem, staying)
    assert columns(after) == columns(problem) | {"staying_workers": [[0.0, 0.5], [2.5, 0.0]]}
    assert with_staying(problem, [("gold", "gone", 4.0)]) is problem is with_staying(problem, [])


# --- jobs ---------------------------------------------------------------------------------------------------------


def test_rounds_serve_who_waits_or_runs_by_priority_and_then_by_arrival() -> None:
    jobs = [
        a_job("late", submitted_at_s=9.0),
        a_job("early", submitted_at_s=1.0),
        a_job("urgent", spec={"priority": 1}, submitted_at_s=9.0),
        a_job("paused", pause_requested=True),
        a_job("soon", retry_at_s=20.0),
    ]
    assert [job.id for job in schedulable(jobs, 10.0)] == ["urgent", "early", "late"]
    assert [job.id for job in schedulable(jobs, 20.0)] == ["urgent", "soon", "early", "late"]


class OfOwnKinds(OracleThroughputs):
    """Job a has a kind of its own."""

    def kind_of(self, job: Job) -> str:
        return "own" if job.id == "a" else job.spec.kind


def test_a_job_is_known_by_its_own_kind_where_it_has_one() -> None:
    one, other = a_job("a"), a_job("b")
    assert as_known(one, OfOwnKinds({})) == replace(one, spec=replace(one.spec, kind="own"))
    assert as_known(other, OfOwnKinds({})) is other


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({}, 6.0),
        ({"state": JobState.LEASED, "accounted_until_s": 90.0}, 26.0),
        ({"state": JobState.LEASED, "accounted_until_s": 110.0}, 6.0),
        ({"accounted_until_s": 90.0}, 6.0),
    ],
)
def test_a_gang_has_had_what_was_accounted_and_what_it_holds_since(over: dict[str, Any], expected: float) -> None:
    job = a_job("a", spec={"scale_factor": 2}, received_s={"fast": 1.0, "slow": 2.0}, **over)
    assert attained_service_s(job, 100.0) == expected


def test_a_job_without_a_deadline_has_one_that_never_comes() -> None:
    assert (deadline_or_inf(a_spec()), deadline_or_inf(a_spec(deadline_at_s=3.0))) == (inf, 3.0)


def test_rates_are_zero_where_a_gang_cannot_run() -> None:
    estimate = OracleThroughputs({("mlp", 1, "fast"): 3.0, ("mlp", 1, "slow"): 2.0, ("mlp", 2, "fast"): 5.0}).estimate
    specs = [a_spec(), a_spec(scale_factor=2), a_spec(accelerator_types=("slow",))]
    feasibility = Feasibility(a_cluster(fast=2, slow=1))
    assert rates_of(specs, feasibility, estimate).tolist() == [[3.0, 2.0], [5.0, 0.0], [0.0, 2.0]]
    assert rates_of([], feasibility, estimate).shape == (0, 2)


# --- an answer that is used again ---------------------------------------------------------------------------------

PROBLEM = a_problem([[1.0, 2.0], [2.0, 1.0]], [1, 1], job_ids=("a", "b"))


def an_answer(fractions: Any, combinations: Any = (("a",), ("b",)), **over: Any) -> Allocation:
    given: dict[str, Any] = {
        "combinations": combinations,
        "accelerator_types": ("t0", "t1"),
        "time_fraction": np.array(fractions),
        "certificate": Certificate(primal_violation=0.0),
        "policy": "test",
        "solver": "none",
        "solve_time_s": 3.0,
    }
    return Allocation(**given | over)


ANSWER = an_answer([[0.5, 0.25], [0.0, 0.75]])


@pytest.mark.parametrize(
    ("later", "over", "expected"),
    [
        ({}, {}, True),
        ({"now_s": 1.0}, {}, False),
        ({"now_s": 1.0}, {"interval_s": 1.5}, True),
        ({"now_s": 1.5}, {"interval_s": 1.5}, False),
        ({"now_s": 1.0}, {"solve_on": "event"}, True),
        ({"steps_remaining": np.array([1.0, 2.0])}, {"solve_on": "event"}, True),
        ({"weight": np.array([1.0, 2.0])}, {"solve_on": "event"}, False),
        ({"weight": np.array([1.0, 2.0])}, {"interval_s": 1.0}, True),
        ({"accelerator_types": ("t0", "t2")}, {"interval_s": 1.0}, False),
        ({"warm_start": {"x": 2}}, {}, True),
        ({"pair_rates": PAIRS}, {}, False),
    ],
)
def test_an_answer_serves_while_all_that_counts_is_the_same_or_for_a_time(
    later: dict[str, Any], over: dict[str, Any], expected: bool
) -> None:
    solved = Solved(problem=PROBLEM, allocation=ANSWER)
    assert solved.serves(replace(PROBLEM, **later), **({"solve_on": "change", "interval_s": 0.0} | over)) is expected


def test_an_answer_of_a_policy_that_reads_little_serves_longer() -> None:
    solved = Solved(problem=PROBLEM, allocation=replace(ANSWER, reads=("weight", "age_s")))
    over: dict[str, Any] = {"solve_on": "change", "interval_s": 0.0}
    assert solved.serves(replace(PROBLEM, now_s=9.0), **over)
    late = replace(solved, problem=replace(PROBLEM, now_s=100.0))
    heavier = replace(PROBLEM, now_s=101.0, weight=np.array([1.0, 2.0]))
    assert late.serves(heavier, solve_on="change", interval_s=1.5)
    assert not solved.serves(replace(PROBLEM, age_s=PROBLEM.age_s + 1), **over)
    assert solved.serves(replace(PROBLEM, age_s=PROBLEM.age_s + 1), **(over | {"solve_on": "event"}))


@pytest.mark.parametrize(
    ("reads", "over", "expected"),
    [
        (None, {}, False),
        (None, {"solve_on": "event"}, True),
        (("weight",), {}, True),
        (("weight", "age_s"), {}, False),
        (None, {"interval_s": 5.1}, True),
        (None, {"interval_s": 5.0}, False),
    ],
)
def test_an_answer_serves_after_progress_where_progress_does_not_count(
    reads: tuple[str, ...] | None, over: dict[str, Any], expected: bool
) -> None:
    solved = Solved(problem=replace(PROBLEM, now_s=100.0), allocation=replace(ANSWER, reads=reads))
    given: dict[str, Any] = {"solve_on": "change", "interval_s": 0.0} | over
    assert solved.serves_after_progress(105.0, **given) is expected


def test_rates_of_pairs_and_configurations_count_by_what_they_hold() -> None:
    sizes = Configurations(jobs=np.array([0]), sizes=np.array([1, 2]), steps_per_s=np.ones((1, 2, 2)))
    with_both = replace(PROBLEM, pair_rates=PAIRS, configurations=sizes)
    solved = Solved(problem=with_both, allocation=ANSWER)

    def serves(**later: Any) -> bool:
        return solved.serves(replace(with_both, **later), solve_on="change", interval_s=0.0)

    assert serves(pair_rates=replace(PAIRS, steps_per_s=np.ones((1, 1, 2))))
    assert serves(configurations=replace(sizes, sizes=np.array([1, 2])))
    assert not serves(pair_rates=replace(PAIRS, steps_per_s=np.full((1, 1, 2), 2.0)))
    assert not serves(configurations=replace(sizes, sizes=np.array([1, 4])))
    assert not serves(pair_rates=None) and not serves(configurations=PAIRS)


def test_an_answer_is_unchanged_for_the_same_jobs_and_else_restricted_to_those_that_are_there() -> None:
    solved = Solved(problem=PROBLEM, allocation=ANSWER)
    assert reused(solved, replace(PROBLEM, now_s=50.0)) is ANSWER
    swapped = reused(solved, replace(PROBLEM, job_ids=("b", "c")))
    assert (swapped.combinations, swapped.time_fraction.tolist()) == ((("b",), ("c",)), [[0.0, 0.75], [0.0, 0.0]])
    assert (swapped.is_fallback, swapped.solve_time_s, swapped.policy) == (False, 0.0, "test")
    pairs = reused(
        solved, replace(PROBLEM, combinations=((0,),), throughput_steps_per_s=PROBLEM.throughput_steps_per_s[:1])
    )
    assert pairs.combinations == (("a",),)


def test_the_last_allocation_counts_for_those_that_are_there_where_they_can_still_run() -> None:
    last = an_answer([[0.5, 0.25], [0.0, 0.75], [0.25, 0.0], [0.125, 0.0]], (("a",), ("b",), ("a", "b"), ("a", "gone")))
    problem = a_problem([[1.0], [0.0], [1.0]], [1], job_ids=("b", "a", "new"), accelerator_types=("t1",))
    kept = restricted(last, problem)
    assert (kept.combinations, kept.accelerator_types) == ((("b",), ("a",), ("new",)), ("t1",))
    assert kept.time_fraction.tolist() == [[0.75], [0.0], [0.0]] and (kept.is_fallback, kept.solve_time_s) == (
        True,
        0.0,
    )
    paired = replace(a_problem([[1.0, 1.0], [1.0, 1.0]], [1, 1], job_ids=("b", "a")), pair_rates=PAIRS)
    both = restricted(last, paired)
    assert both.combinations == (("b",), ("a",), ("a", "b"))
    assert both.time_fraction.tolist() == [[0.0, 0.75], [0.5, 0.25], [0.25, 0.0]]


def test_new_jobs_have_their_equal_share_beside_the_last_allocation_but_no_user_more_than_a_part() -> None:
    """Of three users ann has two new jobs and one that was there, which together are to have a third."""
    last = an_answer([[0.5, 0.5], [1.0, 0.0]], (("a",), ("b",)))
    names = (("a",), ("b",), ("c",), ("d",), ("e",), ("f",))
    kept = an_answer([[0.5, 0.5], [1.0, 0.0], *[[0.0, 0.0]] * 4], names)
    shared = an_answer([*[[0.25, 0.25]] * 5, [0.0, 0.0]], names)
    users = {"a": "ann", "b": "bob", "c": "ann", "d": "ann", "e": "cid", "f": "dan"}
    after = with_new_jobs(kept, last, shared, users)
    part = (5 / 9 + 5 / 9 + 1) / 5
    own = 0.25 * 5 / 9
    expected = [[0.5 - 0.5 * part] * 2, [1 - part, 0.0], [own] * 2, [own] * 2, [0.25] * 2, [0.0] * 2]
    assert after.time_fraction.tolist() == [pytest.approx(row) for row in expected]
    assert (
        with_new_jobs(kept, last, replace(shared, combinations=names[:2], time_fraction=np.ones((2, 2))), users) is kept
    )
