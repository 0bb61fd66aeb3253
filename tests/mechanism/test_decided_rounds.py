"""A round that is decided: what its record holds, and all that its plan was made from."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from gavel.config import Settings
from gavel.mechanism.planning.decision import Decider
from gavel.mechanism.tick import Tick
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import Snapshot
from gavel.simulator.oracle import OracleThroughputs
from gavel.types import (
    Allocation,
    AllocationProblem,
    Cluster,
    GangSeen,
    GangState,
    Job,
    JobState,
    Lease,
    Observation,
    RoundRecord,
    StartupTimes,
    Tier,
)
from tests.builders import a_cluster, a_job
from tests.mechanism.test_backfill import a_gang, a_lease
from tests.mechanism.world import RATES

ESTIMATOR = OracleThroughputs({**RATES, ("net[a]", 1, "fast"): 3.0, ("net[b]", 1, "fast"): 9.0})
CLUSTER = a_cluster(fast=2)


class Runner(InlineRunner):
    """Keeps what it is asked; it may be cold, or fail with an error."""

    def __init__(self, *, is_warm: bool = True, error: Exception | None = None) -> None:
        super().__init__()
        self.is_ready, self.error = is_warm, error
        self.asked: list[tuple[str, AllocationProblem, float]] = []

    def warm(self) -> bool:
        return self.is_ready and super().warm()

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        self.asked.append((policy, problem, time_limit_s))
        if self.error:
            raise self.error
        return super().allocate(policy, problem, time_limit_s)


def a_decider(runner: Runner | None = None, **settings: Any) -> Decider:
    given: dict[str, Any] = {"policy": "max_min_fairness", "round_duration_s": 10.0} | settings
    return Decider(runner=runner or Runner(), fallback=EqualShare(), settings=Settings(**given))


def a_tick(
    *jobs: Job,
    records: Sequence[RoundRecord] = (),
    cluster: Cluster = CLUSTER,
    now_s: float = 100.0,
    gangs: Sequence[GangSeen] = (),
    snapshot: dict[str, Any] | None = None,
    **over: Any,
) -> Tick:
    seen = Observation(observed_at_s=now_s, cluster=cluster, gangs=tuple(gangs))
    by_id, tiers = {job.id: job for job in jobs}, {"gold": Tier(name="gold"), "low": Tier(name="low")}
    given: dict[str, Any] = {"version": 1, "jobs": by_id, "tiers": tiers, "round_records": tuple(records)} | (
        snapshot or {}
    )
    tick = Tick.of(now_s, seen, Snapshot(**given))
    for name, value in over.items():
        setattr(tick, name, value)
    return tick


def decided(
    *jobs: Job, decider: Decider | None = None, starts_at_s: float = 101.0, estimator: Any = ESTIMATOR, **tick: Any
) -> RoundRecord:
    return (decider or a_decider()).decide(a_tick(*jobs, **tick), jobs, starts_at_s, estimator)


def served(record: RoundRecord) -> dict[str, tuple[str, ...]]:
    return {lease.job_id: lease.worker_ids for lease in record.plan.leases}


def lease(job_id: str, *workers: str, generation: int = 1, **over: Any) -> Lease:
    """Of the first round, [101, 111)."""
    return a_lease(job_id, generation, *workers, **{"round_index": 1, "expires_at_s": 111.0} | over)


def running(job_id: str, generation: int = 1, **over: Any) -> Job:
    given: dict[str, Any] = {"state": JobState.LEASED, "generation": generation}
    return a_job(job_id, **given | over)


A, B = a_job("a", submitted_at_s=1.0), a_job("b", submitted_at_s=2.0)


# --- a record -----------------------------------------------------------------------------------------------------


def test_the_first_round_has_its_plan_its_problem_and_the_answer_of_the_policy() -> None:
    runner = Runner()
    record = decided(A, B, decider=a_decider(runner))
    assert record.plan.leases == (lease("a", "fast-0"), lease("b", "fast-1"))
    assert (record.plan.round_index, record.plan.starts_at_s, record.plan.duration_s) == (1, 101.0, 10.0)
    assert record.plan.policy == record.allocation.policy and record.allocation.time_fraction.tolist() == [[1.0], [1.0]]
    assert (record.solver_outcome, record.lag_rounds) == ("solved", {})
    assert (record.switch_cost_s, record.unreported_s) == ({}, {})
    ((policy, problem, limit_s),) = runner.asked
    assert (policy, limit_s) == ("max_min_fairness", 2.0) and problem is record.problem
    assert (problem.now_s, problem.round_duration_s, problem.job_ids) == (100.0, 10.0, ("a", "b"))
    assert problem.throughput_steps_per_s[:, 0].tolist() == [[10.0], [10.0]] and problem.warm_start == {}
    assert [tier.name for tier in problem.tiers] == ["gold", "low"] and problem.configurations is None


def test_the_inputs_of_a_round_are_all_that_its_plan_was_made_from() -> None:
    settings: dict[str, Any] = {"profiling_workers_fraction": 0.25, "planner": "published", "minimum_run_s": 7.0}
    record = decided(running("a"), B, decider=a_decider(**settings), gangs=(a_gang("a", 1, ["fast-0"]),))
    inputs = record.inputs
    assert inputs is not None
    values = {each.name: getattr(inputs, each.name) for each in fields(inputs) if each.name != "jobs"}
    assert values == {
        "policy": "max_min_fairness",
        "cluster": CLUSTER,
        "parent": None,
        "starts_at_s": 101.0,
        "duration_s": 10.0,
        "kept": (),
        "used": {},
        "to_profile": (),
        "profiling_workers_fraction": 0.25,
        "planner": "published",
        "is_new_allocation": True,
        "switch_cost_s": {},
        "minimum_run_s": 7.0,
        "started_at_s": {},
        "starting": ("a",),
        "plan_on": {},
        "late": (),
        "guests": (),
    }
    assert (inputs.jobs.kinds, inputs.jobs.generation.tolist()) == (("mlp",), [1, 0])
    assert inputs.jobs.is_leased.tolist() == [True, False]


@pytest.mark.parametrize(("minimum_s", "expected"), [(0.0, {}), (0.5, {"a": 90.0}), (7.0, {"a": 90.0})])
def test_when_gangs_were_started_counts_where_they_have_to_run_for_a_minimum(
    minimum_s: float, expected: dict[str, float]
) -> None:
    gangs = [
        replace(a_gang("a", 1, ["fast-0"]), started_at_s=90.0),
        replace(a_gang("b", 1, ["fast-1"]), started_at_s=80.0, state=GangState.ENDED),
        a_gang("c", 1, ["fast-1"]),
    ]
    record = decided(running("a"), B, a_job("c"), decider=a_decider(minimum_run_s=minimum_s), gangs=gangs)
    assert record.inputs is not None and record.inputs.started_at_s == expected


# --- from round to round ------------------------------------------------------------------------------------------


def followed(record: RoundRecord, *jobs: Job) -> list[Job]:
    """The jobs as they are once the round is in force."""
    generation = {each.job_id: each.generation for each in record.plan.leases}
    return [
        replace(job, state=JobState.LEASED, generation=generation[job.id]) if job.id in generation else job
        for job in jobs
    ]


def test_a_round_goes_on_from_the_leases_and_lags_of_the_one_before() -> None:
    decider = a_decider(solve_on="event")
    one = a_cluster(fast=1)
    first = decided(A, B, decider=decider, cluster=one)
    jobs = followed(first, A, B)
    second = decided(*jobs, decider=decider, cluster=one, records=(first,), now_s=108.0, starts_at_s=111.0)
    assert first.lag_rounds == {("a", "fast"): -0.5, ("b", "fast"): 0.5}
    assert (second.plan.round_index, served(second)) == (2, {"b": ("fast-0",)})
    assert second.inputs is not None and second.inputs.parent == first.plan
    assert (second.solver_outcome, second.inputs.is_new_allocation, second.lag_rounds) == ("reused", False, {})


def test_leases_that_ended_in_the_round_before_are_no_part_of_what_it_goes_on_from() -> None:
    first = decided(A, B)
    cut = replace(first.plan.leases[0], expires_at_s=105.0)
    record = replace(first, plan=replace(first.plan, leases=(cut, first.plan.leases[1])))
    second = decided(*followed(first, A, B), records=(record,), now_s=108.0, starts_at_s=111.0)
    assert second.inputs is not None and second.inputs.parent is not None
    assert second.inputs.parent.leases == first.plan.leases[1:]


def test_the_answer_before_warms_the_next_one() -> None:
    first = decided(A)
    first = replace(first, allocation=replace(first.allocation, warm_start={"x": 1}))
    assert decided(A, B, records=(first,), now_s=108.0, starts_at_s=111.0).problem.warm_start == {"x": 1}


def test_a_round_ends_when_a_reservation_begins() -> None:
    spec = {"reserved_at_s": 105.0, "reserved_type": "fast", "longest_s": 60.0, "preemptible": False}
    session = a_job("s", spec=spec)
    record = decided(A, decider=a_decider(), estimator=ESTIMATOR)
    assert record.plan.duration_s == 10.0
    tick = a_tick(A, session)
    short = a_decider().decide(tick, [A], 101.0, ESTIMATOR)
    assert (short.plan.duration_s, short.plan.leases[0].expires_at_s) == (4.0, 105.0)


# --- who stays ----------------------------------------------------------------------------------------------------

STAYS = running("s", spec={"preemptible": False, "tier": "low"})


def the_round_after(kept: Job, *others: Job, **over: Any) -> RoundRecord:
    """One in which the job had the second worker in the round before."""
    first = decided(A)
    record = replace(first, plan=replace(first.plan, leases=(lease(kept.id, "fast-1"),)))
    given: dict[str, Any] = {"records": (record,), "now_s": 108.0, "starts_at_s": 111.0}
    return decided(kept, *others, **(given | over))


def test_a_gang_that_may_not_be_preempted_stays_and_the_others_share_what_it_leaves() -> None:
    record = the_round_after(STAYS, A, B)
    kept = replace(lease("s", "fast-1"), round_index=2, expires_at_s=121.0)
    assert record.plan.leases[0] == kept and served(record) == {"s": ("fast-1",), "a": ("fast-0",)}
    assert record.inputs is not None and record.inputs.kept == (kept,)
    assert [worker.id for worker in record.inputs.cluster.workers] == ["fast-0"]
    assert record.problem.job_ids == ("a", "b") and record.problem.capacity_workers.tolist() == [1]
    assert record.problem.staying_workers.tolist() == [[0.0], [1.0]]
    assert [lag for (job_id, _), lag in record.lag_rounds.items() if job_id == "s"] == []


def test_cores_that_it_holds_are_left_out_where_anybody_needs_them() -> None:
    """The node has two cores."""
    large = replace(A, spec=replace(A.spec, cpu_cores=2))
    record = the_round_after(STAYS, large, B)
    assert record.inputs is not None
    assert {node: (used.workers, used.cpu_cores) for node, used in record.inputs.used.items()} == {"node-0": (1, 1)}
    assert served(record) == {"s": ("fast-1",), "b": ("fast-0",)}
    hungry = replace(STAYS, spec=replace(STAYS.spec, cpu_cores=2))
    assert served(the_round_after(hungry, A)) == {"s": ("fast-1",)}


# --- what moves cost ----------------------------------------------------------------------------------------------


def test_costs_of_moves_are_those_of_the_last_round_until_one_is_measured() -> None:
    decider = a_decider()
    first = replace(decided(A), switch_cost_s={"mlp": 2.0, "": 4.0})
    assert decider.switch_cost_s(a_tick(A)) == {}
    assert decider.switch_cost_s(a_tick(A, records=(first,))) == {"mlp": 2.0, "": 4.0}
    tick = a_tick(A, records=(first,), switch_cost_s=[("mlp", 12.0), ("cnn", 1.0)])
    decider.learn_costs(tick)
    expected = {"mlp": pytest.approx(5.0), "cnn": 1.0, "": pytest.approx(6.4 + 0.3 * (1.0 - 6.4))}
    assert decider.switch_cost_s(a_tick(A)) == expected
    times = (StartupTimes(kind="gan", accelerator_type="fast", startup_s=(9.0,)),)
    assert decider.switch_cost_s(a_tick(A, startup_times=times)) == expected | {"gan": 9.0}
    record = decided(A, decider=decider, startup_times=times)
    assert record.switch_cost_s == expected
    assert record.inputs is not None and record.inputs.switch_cost_s == expected | {"gan": 9.0}


def test_moves_have_no_price_where_an_operator_says_so() -> None:
    decider = a_decider(price_moves=False)
    decider.learn_costs(a_tick(A, switch_cost_s=[("mlp", 12.0)]))
    record = decided(A, decider=decider)
    assert record.inputs is not None and record.inputs.switch_cost_s == {} and record.switch_cost_s["mlp"] == 12.0


def test_time_without_a_report_is_charged_once_and_a_tenth_of_what_passes_is_taken_off() -> None:
    decider = a_decider(start_limit_s=20.0)
    for more_s in (3.0, 4.0):
        decider.learn_costs(a_tick(A, unreported=[("ann", more_s)]))
    first = decided(A, decider=decider)
    assert first.unreported_s == {"ann": 7.0}
    second = decided(A, decider=decider, records=(first,), now_s=108.0, starts_at_s=111.0)
    assert second.unreported_s == {"ann": 6.0}
    gangs = (a_gang("a", 1, ["fast-0"]),)
    for limit_s, expected in ((20.0, ("a",)), (15.0, ())):
        heavy = replace(first, unreported_s={"ann": 12.0})
        again = decided(
            running("a", accounted_until_s=100.0),
            decider=a_decider(start_limit_s=limit_s),
            records=(heavy,),
            gangs=gangs,
            now_s=108.0,
            starts_at_s=111.0,
        )
        assert again.inputs is not None and again.inputs.starting == expected


def test_nothing_is_asked_about_workers_that_are_not_there() -> None:
    record = decided(A, cluster=Cluster())
    assert record.plan.leases == () and record.problem.accelerator_types == ()
    assert np.array_equal(record.allocation.time_fraction, np.zeros((1, 0)))
