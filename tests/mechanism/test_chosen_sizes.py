"""Sizes and plans of a round, compared whole: what they follow from, who goes first, and what a job keeps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gavel.mechanism.planning.behind import served_first
from gavel.mechanism.planning.configurations import SizeInputs
from gavel.mechanism.planning.sizes import ConfiguredJobs, PlansOnTypes, in_their_sizes
from gavel.ports import ThroughputMatrix
from gavel.types import Allocation, AllocationProblem, Certificate, Configurations, InfeasibleType, Job
from tests.builders import a_cluster, a_job, a_problem
from tests.mechanism.planning import size_inputs
from tests.mechanism.test_plans import TYPES, believing, planned, plans
from tests.mechanism.test_plans import elastic as elastic_with_plans
from tests.mechanism.test_sizes import all_measured, elastic, measured_up_to

RATE = {size: 10.0 * size**0.8 for size in (1, 2, 4, 8)}


def sized(jobs: list[Job], inputs: SizeInputs | None = None, **over: Any) -> ConfiguredJobs:
    """On four workers of a fast and two of a slow type, where all speeds are known."""
    return in_their_sizes(jobs, inputs or size_inputs(all_measured, a_cluster(fast=4, slow=2), **over))


def sizes(*jobs: Job, **over: Any) -> list[int]:
    return [job.spec.scale_factor for job in sized(list(jobs), **over).jobs]


def on(workers: int, **over: Any) -> SizeInputs:
    """On workers of one type."""
    return size_inputs(all_measured, a_cluster(fast=workers), **over)


# --- sizes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "cluster"),
    [
        ([a_job("r"), a_job("s", spec={"scale_factor": 2})], a_cluster(fast=2)),
        ([elastic("j")], a_cluster()),
        ([], None),
    ],
    ids=["no job has a choice", "no type", "no jobs"],
)
def test_jobs_are_as_they_were_where_there_is_nothing_to_choose(jobs: list[Job], cluster: Any) -> None:
    chosen = sized(jobs, size_inputs(all_measured, cluster or a_cluster(fast=2)))
    assert (chosen.jobs, chosen.plans, chosen.configurations, chosen.late) == (jobs, {}, None, ())
    assert all(one is other for one, other in zip(chosen.jobs, jobs, strict=True))


def test_elastic_jobs_have_a_size_and_rigid_ones_their_own_and_speeds_are_those_that_may_be_given() -> None:
    """No size is larger than its type."""
    jobs = [elastic("j", sizes=(1, 2, 4)), a_job("r", spec={"scale_factor": 2}), elastic("k", sizes=(2, 8))]
    chosen = sized(jobs)
    assert [job.spec.scale_factor for job in chosen.jobs] == [2, 2, 2]
    assert chosen.jobs[1] is jobs[1] and chosen.plans == {} and chosen.late == ()
    assert chosen.configurations is not None
    assert chosen.configurations.jobs.tolist() == [0, 2]
    assert chosen.configurations.sizes.tolist() == [1, 2, 4, 8]
    assert chosen.configurations.steps_per_s.tolist() == [
        [[RATE[1], RATE[2], RATE[4], 0.0], [RATE[1], RATE[2], 0.0, 0.0]],
        [[0.0, RATE[2], 0.0, 0.0], [0.0, RATE[2], 0.0, 0.0]],
    ]


def test_no_size_is_given_beyond_twice_what_was_measured_or_is_held() -> None:
    job = elastic("j")
    for held, most in (({}, 2), ({"j": ("fast", 4)}, 4), ({"j": ("gone", 4)}, 2)):
        inputs = size_inputs(measured_up_to(1), a_cluster(fast=8), held=held)
        speeds = sized([job], inputs).configurations
        assert speeds is not None and (speeds.steps_per_s[0, 0] > 0).tolist() == [each <= most for each in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("held", "expected"),
    [({}, 2), ({"j": ("fast", 4)}, 4), ({"j": ("gone", 4)}, 2), ({"j": ("fast", 3)}, 2)],
    ids=["it has no gang", "its gang", "a gang on a type that is gone", "a gang of a size that it has no more"],
)
def test_a_job_that_is_given_nothing_keeps_its_size_or_has_the_smallest(
    held: dict[str, tuple[str, int]], expected: int
) -> None:
    """It is the policy that says who runs."""
    rigid = [a_job(f"r{row}", spec={"weight": 1000.0}) for row in range(4)]
    assert [job.spec.scale_factor for job in sized([*rigid, elastic("j", sizes=(2, 4))], on(4, held=held)).jobs] == [
        1,
        1,
        1,
        1,
        expected,
    ]


def test_a_job_that_fits_in_none_of_its_sizes_has_the_smallest() -> None:
    assert sized([elastic("j", sizes=(4, 8)), a_job("r")], on(2)).jobs[0].spec.scale_factor == 4


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"restart_s": {"": 400.0}}, 2),
        ({"restart_s": {"": 500.0}}, 1),
        ({"restart_s": {"mlp": 400.0, "": 500.0}}, 2),
        ({"restart_s": {"mlp": 500.0, "": 400.0}}, 1),
        ({"restart_s": {}, "round_duration_s": 4000.0}, 2),
        ({"restart_s": {}, "round_duration_s": 5000.0}, 1),
        ({"restart_s": {"": 1.0}, "staying": ("j",)}, 1),
        ({"restart_s": {"": 1.0}, "staying": ("k",)}, 2),
        ({"restart_s": {"": 1.0}, "staying": ("j",), "held": {}}, 2),
    ],
    ids=[
        "it pays",
        "it does not",
        "by its kind it does",
        "by its kind it does not",
        "a tenth of a round pays",
        "a tenth of a round does not",
        "it has to stay",
        "another has to stay",
        "it starts",
    ],
)
def test_a_gang_grows_where_what_it_gains_in_ten_minutes_pays_for_a_restart(
    over: dict[str, Any], expected: int
) -> None:
    """Two workers make 1.74 times as many steps as one."""
    inputs = on(2, **({"held": {"j": ("fast", 1)}} | over))
    assert sized([elastic("j", sizes=(1, 2))], inputs).jobs[0].spec.scale_factor == expected


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (elastic("j", 1_000, (1, 2)), 2),
        (elastic("j", 500, (1, 2)), 1),
        (replace(elastic("j", 1_000, (1, 2)), steps_reported=500), 1),
        (replace(elastic("j", 1_000, (1, 2)), steps_reported=1_000), 1),
    ],
    ids=["long", "short", "nearly done", "done"],
)
def test_a_gang_grows_only_where_enough_is_left_of_its_job(job: Job, expected: int) -> None:
    """A restart takes 30 s; 500 steps take 29 s on two workers."""
    inputs = on(2, held={"j": ("fast", 1)}, restart_s={"": 30.0})
    assert sized([job], inputs).jobs[0].spec.scale_factor == expected


def test_a_job_of_unknown_length_grows_as_one_of_an_hour() -> None:
    job = elastic("j", sizes=(1, 2))
    unknown = replace(job, spec=replace(job.spec, total_steps=None))
    inputs = on(2, held={"j": ("fast", 1)}, restart_s={"": 400.0})
    assert sized([unknown], inputs).jobs[0].spec.scale_factor == 2
    short = a_job("k", spec={"total_steps": 30})
    assert sized([unknown, short], on(3, held={"j": ("fast", 1)}, restart_s={"": 400.0})).jobs[0].spec.scale_factor == 1


@pytest.mark.parametrize(
    ("spec", "expected"),
    [({}, [2, 1]), ({"weight": 3.0}, [1, 2]), ({"priority": 2}, [1, 2]), ({"weight": 3.0, "priority": -3}, [2, 1])],
)
def test_workers_go_where_they_count_more(spec: dict[str, Any], expected: list[int]) -> None:
    """Three workers for two jobs."""
    other = elastic("k", sizes=(1, 2))
    jobs = [elastic("j", sizes=(1, 2)), replace(other, spec=replace(other.spec, **spec))]
    assert [job.spec.scale_factor for job in sized(jobs, on(3)).jobs] == expected


def test_a_job_far_behind_has_a_size_first_and_a_place_on_its_type() -> None:
    """Each could end in 58 s at its isolated speed."""
    jobs = [elastic("j", 1_000, (1, 2)), replace(elastic("k", 1_000, (1, 2)), submitted_at_s=500.0)]
    assert sized(jobs, on(3, now_s=100.0)).late == ()
    late = sized(jobs, on(3, now_s=600.0))
    assert (late.late, [job.spec.scale_factor for job in late.jobs]) == ((("j", "fast"),), [2, 1])
    other = sized(list(reversed(jobs)), size_inputs(all_measured, a_cluster(slow=2, fast=1), now_s=600.0))
    assert (other.late, [job.spec.scale_factor for job in other.jobs]) == ((("j", "slow"),), [1, 2])


def test_a_job_far_behind_goes_before_one_of_high_priority() -> None:
    other = elastic("k", 1_000, (1, 2))
    urgent = replace(other, submitted_at_s=500.0, spec=replace(other.spec, priority=5))
    late = sized([elastic("j", 1_000, (1, 2)), urgent], on(3, now_s=600.0))
    assert (late.late, [job.spec.scale_factor for job in late.jobs]) == ((("j", "fast"),), [2, 1])


def test_a_job_that_ends_late_counts_more_before_it_is_far_behind() -> None:
    jobs = [replace(elastic("k", 1_000, (1, 2)), submitted_at_s=200.0), elastic("j", 1_000, (1, 2))]
    chosen = sized(jobs, on(3, now_s=200.0))
    assert (chosen.late, [job.spec.scale_factor for job in chosen.jobs]) == ((), [1, 2])


def slower(specs: Any, types: Any) -> ThroughputMatrix:
    """Speeds of less than a step per second, of which none was measured."""
    believed = measured_up_to(0)(specs, types)
    return replace(believed, steps_per_s=believed.steps_per_s / 100)


@pytest.mark.parametrize("matrix", [measured_up_to(0), slower])
def test_a_job_of_which_nothing_was_measured_may_have_its_own_smallest_size(matrix: Any) -> None:
    """Another job has smaller ones."""
    jobs = [elastic("k", sizes=(1, 2)), elastic("j", sizes=(4, 8))]
    speeds = sized(jobs, size_inputs(matrix, a_cluster(fast=8))).configurations
    assert speeds is not None
    assert (speeds.steps_per_s[:, 0] > 0).tolist() == [[True, False, False, False], [False, False, True, False]]


def test_a_job_that_is_given_nothing_has_the_smallest_size_in_which_it_fits() -> None:
    mark = InfeasibleType(
        user="ann", kind="mlp", scale_factor=1, accelerator_type="fast", evidence="e", job_id="x", at_s=0.0
    )
    rigid = [a_job(f"r{row}", spec={"weight": 1000.0, "kind": "cnn"}) for row in range(4)]
    assert sized([*rigid, elastic("j", sizes=(1, 2, 4))], on(4, marks=(mark,))).jobs[4].spec.scale_factor == 2


# --- plans --------------------------------------------------------------------------------------------------------


def plans_on(names: tuple[str, ...], held: tuple[str, str] = ("", ""), **over: Any) -> PlansOnTypes:
    believed = {"steps_per_s": [[2.0, 3.0, 0.0]], "is_worth_measuring": [[True, False, True]]} | over
    matrix = ThroughputMatrix(
        steps_per_s=np.array(believed["steps_per_s"]),
        relative_error=np.full((1, 3), 0.1),
        is_worth_measuring=np.array(believed["is_worth_measuring"]),
    )
    return PlansOnTypes(types=("fast", "slow", "tiny"), plans=names, believed=matrix, held=held)


def test_a_job_measures_its_plan_on_types_where_it_can_run_and_nobody_has() -> None:
    each = plans_on(("a", "b", ""))
    assert (each.by_type, each.to_measure) == ({"fast": "a", "slow": "b"}, ["fast"])
    everywhere = plans_on(("a", "b", "c"), steps_per_s=[[2.0, 3.0, 0.5]], is_worth_measuring=[[True, True, True]])
    assert everywhere.to_measure == ["fast", "slow", "tiny"]


@pytest.mark.parametrize(
    ("held", "received", "expected"),
    [
        (("", ""), {}, ["fast", "slow"]),
        (("", ""), {"fast": 1}, ["slow"]),
        (("", ""), {"fast": 0, "slow": 2}, ["fast"]),
        (("fast", "a"), {"fast": 1, "slow": 1}, []),
        (("fast", "b"), {"fast": 1, "slow": 1}, ["fast"]),
        (("slow", "a"), {"fast": 1, "slow": 1}, ["slow"]),
        (("tiny", "a"), {"fast": 1, "slow": 1}, []),
    ],
    ids=["nowhere yet", "one type", "the other", "the same plan", "another plan", "elsewhere", "no plan there"],
)
def test_a_plan_is_due_where_the_job_has_not_been_and_where_its_gang_is_to_try_another_one(
    held: tuple[str, str], received: dict[str, int], expected: list[str]
) -> None:
    two = plans_on(("a", "b", ""), held, is_worth_measuring=[[True, True, True]])
    assert two.due(received) == expected


def test_a_job_with_plans_is_told_all_of_each_type_and_has_the_plan_of_the_one_that_is_chosen() -> None:
    """Nothing is known of plan a on the slow type, and b does not hold there."""
    own = (*plans("a"), *plans("b", accelerator_types=("!slow",)))
    rates = {("a", 1, "fast"): 10.0, ("b", 1, "fast"): 20.0, ("a", 1, "slow"): 4.0}
    job = planned("j", own)
    chosen = sized([job], size_inputs(believing(rates), a_cluster(fast=4, slow=4)))
    each = chosen.plans["j"]
    assert (each.types, each.plans, each.held) == (("fast", "slow"), ("b", "a"), ("", ""))
    assert each.believed.steps_per_s.tolist() == [[20.0, 4.0]]
    assert each.believed.relative_error.tolist() == [[0.01, 0.01]]
    assert each.believed.is_worth_measuring.tolist() == [[False, False]]
    assert (chosen.jobs[0].spec.plan, chosen.jobs[0].spec.kind) == ("b", "net[b]")
    assert chosen.plan_on == {"j": {"fast": "b", "slow": "a"}}


def test_a_type_on_which_no_plan_holds_has_none_and_nothing_to_measure() -> None:
    own = plans("a", accelerator_types=("!fast",))
    chosen = sized([planned("j", own)], size_inputs(believing({}), a_cluster(fast=4, slow=4)))
    each = chosen.plans["j"]
    assert (each.plans, each.believed.steps_per_s.tolist()) == (("", "a"), [[0.0, 1.0]])
    assert each.believed.is_worth_measuring.tolist() == [[False, True]] and each.to_measure == ["slow"]
    assert chosen.jobs[0].spec.plan == "a"


def test_a_job_whose_plans_hold_nowhere_keeps_the_one_that_it_has() -> None:
    own = plans("a", accelerator_types=("!fast", "!slow"))
    job = planned("j", own)
    chosen = sized([job], size_inputs(believing({}), a_cluster(fast=4, slow=4)))
    assert chosen.jobs == [job] and chosen.plan_on == {"j": {}}


def test_a_gang_has_the_plan_of_its_type_and_what_it_holds_is_told() -> None:
    rates = {("a", 1, t): 1.0 for t in TYPES} | {("b", 1, t): 1.01 for t in TYPES}
    over = {"held": {"j": ("slow", 1)}, "plan_held": {"j": "a"}}
    chosen = sized([planned("j", plans("a", "b"))], size_inputs(believing(rates), a_cluster(fast=4, slow=4), **over))
    assert chosen.plan_on == {"j": {"fast": "b", "slow": "a"}} and chosen.plans["j"].held == ("slow", "a")
    assert chosen.jobs[0].spec.plan == "a"


def test_a_job_that_is_given_nothing_has_the_plan_of_the_type_on_which_it_is_fastest() -> None:
    own = (*plans("a", sizes=(1, 2)), *plans("b", sizes=(1, 2)))
    rates = {("a", 1, "fast"): 0.5, ("b", 1, "fast"): 0.4, ("a", 1, "slow"): 0.6, ("b", 1, "slow"): 0.9}
    rates |= {("", 1, name): 9.0 for name in TYPES}
    rigid = [a_job(f"r{row}", spec={"weight": 1000.0}) for row in range(2)]
    inputs = size_inputs(believing(rates), a_cluster(fast=1, slow=1))
    job = sized([*rigid, elastic_with_plans("j", own, (1, 2))], inputs).jobs[2]
    assert (job.spec.scale_factor, job.spec.plan) == (1, "b")


def test_an_elastic_gang_has_the_plan_of_the_type_that_it_is_on() -> None:
    own = (*plans("a", sizes=(1, 2)), *plans("b", sizes=(1, 2)))
    rates = {("a", size, "slow"): 5.0 for size in (1, 2)} | {("b", size, "slow"): 1.0 for size in (1, 2)}
    rates |= {("a", size, "fast"): 1.0 for size in (1, 2)} | {("b", size, "fast"): 5.0 for size in (1, 2)}
    over = {"held": {"j": ("slow", 1)}, "plan_held": {"j": "a"}, "staying": ("j",)}
    inputs = size_inputs(believing(rates), a_cluster(fast=4, slow=4), **over)
    job = sized([elastic_with_plans("j", own, (1, 2))], inputs).jobs[0]
    assert (job.spec.scale_factor, job.spec.plan) == (1, "a")


def test_a_gang_that_changes_its_plan_restarts_anyway_and_may_as_well_change_its_size() -> None:
    """Without a restart it would stay as large as it is."""
    own = (*plans("a", sizes=(1, 2)), *plans("b", sizes=(1, 2)))
    rates = {("a", 1, "fast"): 1.0, ("b", 1, "fast"): 1.6, ("a", 2, "fast"): 1.1, ("b", 2, "fast"): 1.7}
    over = {"held": {"j": ("fast", 1)}, "plan_held": {"j": "a"}, "restart_s": {"": 300.0}}
    inputs = size_inputs(believing(rates), a_cluster(fast=4), **over)
    job = sized([elastic_with_plans("j", own, (1, 2))], inputs).jobs[0]
    assert (job.spec.scale_factor, job.spec.plan) == (2, "b")


def test_an_elastic_job_with_plans_has_the_best_one_of_its_size() -> None:
    own = (*plans("a", sizes=(1, 2)), *plans("b", sizes=(2,)))
    rates = {("a", 1, t): 1.0 for t in TYPES} | {("a", 2, t): 1.5 for t in TYPES} | {("b", 2, t): 1.9 for t in TYPES}
    inputs = size_inputs(believing(rates), a_cluster(fast=4, slow=4), of_own_kind=lambda job: replace(job, version=7))
    chosen = sized([elastic_with_plans("j", own, (1, 2))], inputs)
    (job,) = chosen.jobs
    assert (job.spec.scale_factor, job.size, job.spec.plan, job.version) == (2, 2, "b", 7)
    assert chosen.plans["j"].believed.steps_per_s.tolist() == [[1.9, 1.9]]


def test_estimates_of_jobs_with_plans_are_those_of_the_plans_and_of_others_as_they_were() -> None:
    """Also where the types are asked for in another order."""
    own = (*plans("a"), *plans("b", accelerator_types=("!slow",)))
    rates = {("a", 1, "fast"): 10.0, ("b", 1, "fast"): 20.0, ("", 1, "fast"): 7.0, ("", 1, "slow"): 3.0}
    jobs = [a_job("r"), planned("j", own)]
    chosen = sized(jobs, size_inputs(believing(rates), a_cluster(fast=4, slow=4)))
    matrix = chosen.with_plans(believing(rates))([job.spec for job in chosen.jobs], ("slow", "fast"))
    assert matrix.steps_per_s.tolist() == [[3.0, 7.0], [chosen.plans["j"].believed.steps_per_s[0, 1], 20.0]]
    assert matrix.relative_error.tolist() == [[0.01, 0.01], [0.5, 0.01]]
    assert matrix.is_worth_measuring.tolist() == [[False, False], [True, False]]
    assert sized([a_job("r")]).with_plans(all_measured) is all_measured


# --- who is served first ------------------------------------------------------------------------------------------

LATE = (("j0", "t0"), ("j1", "t1"))


def an_allocation(problem: AllocationProblem, fractions: list[list[float]]) -> Allocation:
    return Allocation(
        combinations=tuple((job_id,) for job_id in problem.job_ids),
        accelerator_types=problem.accelerator_types,
        time_fraction=np.array(fractions),
        certificate=Certificate(primal_violation=0.0),
        policy="test",
        solver="none",
    )


@pytest.mark.parametrize(
    ("fractions", "expected"),
    [
        ([[0.5, 0.0], [0.0, 0.5]], LATE),
        ([[0.49, 0.0], [0.0, 0.5]], LATE[1:]),
        ([[0.5, 0.0], [0.0, 0.49]], LATE[:1]),
        ([[0.4999999, 0.0], [0.0, 0.0]], LATE[:1]),
        ([[0.25, 0.5], [0.25, 0.0]], LATE[:1]),
    ],
)
def test_a_late_job_goes_first_where_the_policy_gives_it_its_isolated_speed(
    fractions: list[list[float]], expected: tuple[tuple[str, str], ...]
) -> None:
    """Three of four jobs can run; the isolated share of each is a third of both workers: five steps per second."""
    problem = a_problem([[10.0, 5.0], [5.0, 10.0], [1.0, 1.0], [0.0, 0.0]], [1, 1])
    assert served_first(LATE, problem, an_allocation(problem, [*fractions, [0.0, 0.0], [0.0, 0.0]])) == expected


def test_a_job_that_is_alone_has_the_whole_cluster_to_itself() -> None:
    problem = a_problem([[10.0]], [1])
    late = (("j0", "t0"),)
    assert served_first(late, problem, an_allocation(problem, [[0.9]])) == ()
    assert served_first(late, problem, an_allocation(problem, [[1.0]])) == late


def test_nobody_is_late_where_nobody_is_named_and_configurations_count() -> None:
    problem = a_problem([[10.0], [10.0]], [2])
    allocation = an_allocation(problem, [[1.0], [1.0]])
    late = (("j0", "t0"),)
    assert served_first((), problem, allocation) == () and served_first(late, problem, allocation) == late
    larger = Configurations(jobs=np.array([0]), sizes=np.array([1, 2]), steps_per_s=np.array([[[10.0, 30.0]]]))
    assert served_first(late, replace(problem, configurations=larger), allocation) == ()
