"""Execution plans that are chosen for a round: a pure function of jobs, cluster and estimates."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.jobs.sizes import resized, under_plan, variants_of
from gavel.mechanism.planning.configurations import OPTIMISM
from gavel.mechanism.planning.sizes import ConfiguredJobs, in_their_sizes
from gavel.ports import ThroughputMatrix
from gavel.types import AcceleratorType, ExecutionPlan, InfeasibleType, Job, JobSpec
from tests.builders import a_cluster, a_job
from tests.mechanism.planning import size_inputs

TYPES = ("fast", "slow")
Rates = Mapping[tuple[str, int, str], float]  # by plan, size and type; what is missing was not measured


def plans(*names: str, sizes: Sequence[int] = (1,), **over: Any) -> tuple[ExecutionPlan, ...]:
    return tuple(ExecutionPlan(name=name, kind=f"net[{name}]", sizes=tuple(sizes), **over) for name in names)


def planned(job_id: str, own: Sequence[ExecutionPlan], **spec: Any) -> Job:
    spec = {"total_steps": 10**6, "plans": tuple(own), "plan": own[0].name, "kind": own[0].kind, **spec}
    return a_job(job_id, spec=spec)


def elastic(job_id: str, own: Sequence[ExecutionPlan], sizes: tuple[int, ...]) -> Job:
    return planned(job_id, own, sizes=sizes, global_batch=64, scale_factor=sizes[0])


def believing(rates: Rates) -> Any:
    def matrix(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        cells = [[rates.get((spec.plan, spec.scale_factor, name)) for name in types] for spec in specs]
        measured = {spec.plan for spec in specs if any(plan == spec.plan for plan, _, _ in rates)}
        rate = np.array([[1.0 if each is None else each for each in row] for row in cells])
        is_new = np.array([[each is None for each in row] for row in cells], dtype=bool)
        error = np.array([[0.5 if spec.plan in measured else 1.2] * len(types) for spec in specs])
        shape = len(specs), len(types)
        return ThroughputMatrix(
            steps_per_s=rate.reshape(shape),
            relative_error=np.where(is_new, error.reshape(shape), 0.01).reshape(shape),
            is_worth_measuring=is_new.reshape(shape),
        )

    return matrix


def chosen(jobs: Sequence[Job], rates: Rates, **over: Any) -> ConfiguredJobs:
    return in_their_sizes(jobs, size_inputs(believing(rates), a_cluster(fast=4, slow=4), **over))


def test_without_any_accelerator_type_jobs_are_as_they_were() -> None:
    """All nodes are away, and a gang that may not be preempted is still on one: the scheduler stopped there."""
    jobs = [planned("j", plans("a", "b")), elastic("k", plans("a", sizes=(1, 2)), (1, 2))]
    assert chosen(jobs, {}, feasibility=Feasibility(a_cluster())).jobs == jobs


rate = st.floats(0.1, 100.0)


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from((1, 2)), st.sampled_from(TYPES)), rate),
    st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from((1, 2)), st.sampled_from(TYPES))),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(((1,), (2,), (1, 2)))),
)
def test_the_plan_of_each_type_is_the_best_of_those_that_hold_there_and_zeros_are_respected(
    drawn: dict[tuple[str, int, str], float], zeros: set[tuple[str, int, str]], holds: dict[str, tuple[int, ...]]
) -> None:
    """1 all speeds are known, 2 some plans hold at one size only, 3 a few do not fit on a type: none of these is given,
    and the round sees the speed of the best of the others.
    """
    rates = {(p, s, t): drawn.get((p, s, t), 7.0) for p in "abc" for s in (1, 2) for t in TYPES}
    own = tuple(ExecutionPlan(name=p, kind=f"net[{p}]", sizes=holds.get(p, (1, 2))) for p in "abc")
    marks = tuple(
        InfeasibleType(
            user="ann", kind=f"net[{p}]", scale_factor=s, accelerator_type=t, evidence="e", job_id="x", at_s=0.0
        )
        for p, s, t in zeros
    )
    configured = chosen([elastic("j", own, (1, 2))], rates, marks=marks)
    (job,) = configured.jobs
    size = job.spec.scale_factor
    for name, plan in zip(TYPES, (configured.plans["j"].by_type.get(each) for each in TYPES), strict=True):
        possible = {
            p.name: rates[p.name, size, name] for p in own if size in p.sizes and (p.name, size, name) not in zeros
        }
        assert (plan is None) == (not possible)
        assert plan is None or possible[plan] == max(possible.values())
    matrix = configured.with_plans(believing(rates))([job.spec], TYPES)
    best = [
        max((rates[p.name, size, t] for p in own if size in p.sizes and (p.name, size, t) not in zeros), default=0)
        for t in TYPES
    ]
    assert matrix.steps_per_s.tolist() == [best]


def test_a_rigid_job_has_the_better_plan_on_each_type() -> None:
    rates = {("a", 1, "fast"): 10.0, ("a", 1, "slow"): 2.0, ("b", 1, "fast"): 5.0, ("b", 1, "slow"): 6.0}
    configured = chosen([planned("j", plans("a", "b")), a_job("r")], rates | {("", 1, t): 1.0 for t in TYPES})
    assert configured.plan_on == {"j": {"fast": "a", "slow": "b"}}
    assert configured.jobs[1].spec.plan == ""


def test_a_plan_is_given_only_where_its_user_says_that_it_holds() -> None:
    rates = {("a", 1, t): 1.0 for t in TYPES} | {("b", 1, t): 9.0 for t in TYPES}
    own = (*plans("a"), *plans("b", accelerator_types=("!slow",)))
    assert chosen([planned("j", own)], rates).plan_on == {"j": {"fast": "b", "slow": "a"}}
    large = (*plans("a"), *plans("b", accelerator_memory_bytes=1 << 50))
    assert chosen([planned("j", large)], rates).plan_on == {"j": {"fast": "a", "slow": "a"}}


@pytest.mark.parametrize(
    ("faster", "steps", "restart_s", "plan"),
    [(1.5, 10**6, 10.0, "b"), (1.01, 10**6, 10.0, "a"), (1.5, 10**6, 1000.0, "a"), (1.5, 10, 10.0, "a")],
)
def test_a_gang_changes_its_plan_only_if_that_pays_within_the_horizon(
    faster: float, steps: int, restart_s: float, plan: str
) -> None:
    rates = {("a", 1, t): 1.0 for t in TYPES} | {("b", 1, t): faster for t in TYPES}
    job = planned("j", plans("a", "b"), total_steps=steps)
    over = {"held": {"j": ("fast", 1)}, "plan_held": {"j": "a"}, "restart_s": {"": restart_s}}
    configured = chosen([job], rates, **over)
    assert configured.plan_on == {"j": {"fast": plan, "slow": "b"}}
    assert chosen([job], rates, **over, staying={"j"}).plan_on["j"]["fast"] == "a"


def test_a_plan_that_nobody_has_measured_is_tried_by_one_job_of_the_kind_and_only_if_it_may_pay() -> None:
    """1 two jobs run under the plan that is known, 2 one of them tries the other, 3 none does near its end."""
    rates = {("a", 1, t): 4.0 for t in TYPES}
    over = {"held": {"j": ("fast", 1), "k": ("fast", 1)}, "plan_held": {"j": "a", "k": "a"}}
    jobs = [planned(name, plans("a", "b")) for name in "jk"]
    configured = chosen(jobs, rates, **over)
    assert [configured.plan_on[name]["fast"] for name in "jk"] == ["b", "a"]
    assert configured.plans["j"].believed.steps_per_s[0, 0] == OPTIMISM * 4.0
    assert configured.plans["j"].to_measure == ["fast", "slow"] and configured.plans["k"].to_measure == []
    trying = over | {"plan_held": {"j": "a", "k": "b"}}
    assert [chosen(jobs, rates, **trying).plan_on[name]["fast"] for name in "jk"] == ["a", "b"]
    short = [planned(name, plans("a", "b"), total_steps=20) for name in "jk"]
    assert [chosen(short, rates, **over).plan_on[name]["fast"] for name in "jk"] == ["a", "a"]


def test_while_nothing_is_known_the_first_plan_of_the_list_comes_first_whatever_is_guessed() -> None:
    """What is known at another size, or of other kinds, makes the guesses differ."""

    def guessed(specs: Sequence[JobSpec], types: Sequence[AcceleratorType]) -> ThroughputMatrix:
        rate = np.array([[{"a": 0.8, "b": 1.0, "c": 1.1}[spec.plan]] * len(types) for spec in specs])
        return ThroughputMatrix(
            steps_per_s=rate, relative_error=np.full_like(rate, 1.1), is_worth_measuring=np.ones_like(rate, dtype=bool)
        )

    own = (*plans("a", accelerator_types=("fast",)), *plans("b", "c"))
    configured = in_their_sizes([planned("j", own)], size_inputs(guessed, a_cluster(fast=4, slow=4)))
    assert configured.plan_on == {"j": {"fast": "a", "slow": "b"}}
    assert configured.plans["j"].believed.steps_per_s[0].tolist() == [0.8, 1.0]


def test_each_plan_is_tried_once_on_each_type_and_then_the_best_stays() -> None:
    truth = {("a", "fast"): 10.0, ("b", "fast"): 5.0, ("c", "fast"): 20.0}
    truth |= {("a", "slow"): 1.0, ("b", "slow"): 8.0, ("c", "slow"): 2.0}
    rates: dict[tuple[str, int, str], float] = {}
    for name in TYPES:
        held: list[str] = []
        for _ in range(8):
            over = {"held": {"j": (name, 1)} if held else {}, "plan_held": {"j": held[-1]} if held else {}}
            plan = chosen([planned("j", plans("a", "b", "c"))], rates, **over).plan_on["j"][name]
            held.append(plan)
            rates[plan, 1, name] = truth[plan, name]
        best = max("abc", key=lambda plan: truth[plan, name])
        assert set(held[:4]) == set("abc") and set(held[4:]) == {best}, held


def test_a_larger_size_is_given_where_some_plan_was_measured_at_half_of_it() -> None:
    own = (*plans("a", sizes=(1, 2, 4)), *plans("b", sizes=(2, 4)))
    rates = {("a", 1, t): 1.0 for t in TYPES}
    assert chosen([elastic("j", own, (1, 2, 4))], rates).jobs[0].spec.scale_factor <= 2


def test_a_job_has_a_variant_for_each_size_and_plan_that_holds_there() -> None:
    own = (*plans("a", sizes=(1, 2)), *plans("b", sizes=(2,)))
    made = [(job.spec.scale_factor, job.spec.plan, job.spec.kind) for job in variants_of(elastic("j", own, (1, 2)))]
    assert made == [(1, "a", "net[a]"), (2, "a", "net[a]"), (2, "b", "net[b]")]
    assert variants_of(a_job("r"))[0].spec.plan == ""


@given(st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=6), st.sampled_from(("", "wide", "any")))
def test_the_plan_in_force_always_holds_at_the_size_in_force(sizes: list[int], plan: str) -> None:
    own = (*plans("wide", sizes=(2, 4)), *plans("any", sizes=(1, 2, 4)))
    job = under_plan(elastic("j", (own[1], own[0]), (1, 2, 4)), plan) if plan else elastic("j", own[::-1], (1, 2, 4))
    for size in sizes:
        job = resized(job, size)
        in_force = job.spec.plan_in_force
        assert in_force is not None and size in in_force.sizes and job.spec.kind == in_force.kind
