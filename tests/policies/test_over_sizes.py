"""Policies that share out sizes: the fast ways answer as the programs do, and nobody is below the isolated speed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.errors import InvalidProblem, SolveFailed
from gavel.policies import measures, over_sizes, registry
from gavel.policies.conformance import a_small_problem
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.programs.program import MOST_VIOLATION
from gavel.types import AllocationProblem, Configurations, Tier
from tests.conftest import IS_FULL

SIZES = np.array([1, 2, 4])
EXAMPLES = 60 if IS_FULL else 8
BY_PRICES = (
    "max_min_fairness",
    "max_min_fairness?water_filling=false",
    "finish_time_fairness",
    "finish_time_fairness?backfill=false",
    "makespan",
    "max_total_relative_speed",
    "max_total_throughput",
    "rank_weighted_speed",
    "min_cost",
)
OBJECTIVES = ("fairness", "speed", "fifo", "shortest_job_first", "throughput", "deadline")


def a_problem(seed: int, jobs: int = 7, rigid: int = 2, types: int = 2, workers: int = 5) -> AllocationProblem:
    """Jobs whose speeds grow with the size by less and less, the last `rigid` of them of one size."""
    draw = np.random.default_rng(seed)
    plain = a_small_problem(seed, jobs=jobs, types=types)
    growth = SIZES ** draw.uniform(0.3, 1.0, (jobs, types, 1))
    speed = plain.throughput_steps_per_s[:, 0, :, None] * growth * (draw.random((jobs, types, 3)) < 0.9)
    elastic = np.arange(jobs - rigid)
    capacity = draw.integers(2, workers + 1, types)
    choice = Configurations(jobs=elastic, sizes=SIZES, steps_per_s=speed[elastic])
    return replace(plain, configurations=choice, capacity_workers=capacity)


def many_alike(seed: int, jobs: int) -> AllocationProblem:
    """The same with many jobs of a few kinds."""
    draw = np.random.default_rng(seed)
    kinds = a_problem(seed, jobs=12, rigid=3, types=3)
    of_job = np.sort(draw.integers(0, 12, jobs))
    assert kinds.configurations is not None
    elastic = np.flatnonzero(of_job < 9)
    speed = kinds.configurations.steps_per_s[of_job[elastic]]
    plain = a_small_problem(seed, jobs=jobs, types=3)
    return replace(
        plain,
        throughput_steps_per_s=kinds.throughput_steps_per_s[of_job],
        scale_factor=kinds.scale_factor[of_job],
        capacity_workers=np.full(3, max(4, jobs // 4)),
        configurations=Configurations(jobs=elastic, sizes=SIZES, steps_per_s=speed),
    )


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(BY_PRICES))
def test_the_fast_way_gives_the_objective_of_the_program(seed: int, name: str) -> None:
    problem, policy = over_sizes(a_problem(seed)), registry.load(name)
    fast, defined = policy.allocate(problem), policy.program(problem)  # type: ignore[attr-defined]
    ours, theirs = (policy.objective(problem, each) for each in (fast, defined))  # type: ignore[attr-defined]
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7)
    assert measures.violation(problem, fast.time_fraction) <= MOST_VIOLATION
    assert fast.certificate.dual_gap is None or fast.certificate.dual_gap <= 1e-4


@pytest.mark.parametrize("name", [each for each in BY_PRICES if each != "rank_weighted_speed"])
def test_many_jobs_of_few_kinds_are_answered_by_prices(name: str) -> None:
    problem = over_sizes(many_alike(3, 400))
    answer = registry.load(name).allocate(problem)
    assert answer.solver == "prices" and (answer.certificate.dual_gap or 0.0) <= 1e-6


def in_tiers(problem: AllocationProblem, seed: int) -> AllocationProblem:
    """The jobs in three tiers with guarantees and caps, one of them below another, of three users."""
    draw = np.random.default_rng(seed)

    def a_tier(name: str, guarantees: tuple[float, ...], caps: tuple[float, ...], parent: str | None = None) -> Tier:
        return Tier(
            name=name,
            parent=parent,
            weight=draw.choice([1.0, 2.0]),
            guarantee=draw.choice(guarantees),
            cap=draw.choice(caps),
            objective=str(draw.choice(OBJECTIVES)),
            within_user=str(draw.choice(["fast", "equal", "fifo"])),
        )

    tiers = (
        a_tier("a", (0.0, 0.3), (1.0, 0.5)),
        a_tier("b", (0.2, 0.5), (1.0, 0.6)),
        a_tier("c", (0.0, 0.1), (1.0,), "b"),
    )
    jobs = len(problem.job_ids)
    users = tuple(f"user-{index % 3}" for index in range(jobs))
    return replace(problem, tiers=tiers, tier_of_job=draw.integers(0, 3, jobs), users=users)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**6))
def test_tiers_with_guarantees_and_caps_have_what_their_program_gives_them(seed: int) -> None:
    problem, policy = over_sizes(in_tiers(a_problem(seed), seed)), Hierarchical()
    fast = policy.allocate(problem)
    try:
        defined = policy.program(problem)
    except SolveFailed:  # the solver of the definition gives up on one of some hundreds
        return
    assert policy.objective(problem, fast) == pytest.approx(policy.objective(problem, defined), rel=1e-3, abs=1e-3)
    is_of_first = problem.tier_of_job[measures.member_of(problem)[:, 0]] == 0
    held = (fast.time_fraction * problem.combination_workers[:, None])[is_of_first].sum(axis=0)
    assert (held <= problem.tiers[0].cap * problem.capacity_workers + 1e-6).all()


@pytest.mark.parametrize("jobs", [400, 1500])
def test_many_jobs_in_tiers_are_answered_by_prices(jobs: int) -> None:
    for seed in range(3):
        answer = Hierarchical().allocate(over_sizes(in_tiers(many_alike(seed, jobs), seed)))
        assert answer.solver == "prices" and (answer.certificate.dual_gap or 0.0) <= 1e-6


def test_shares_of_greatest_product_are_answered_by_their_program() -> None:
    problem = over_sizes(a_problem(1))
    answer = registry.load("proportional_fairness").allocate(problem)
    assert answer.solver == "clarabel" and answer.combinations[0] == (problem.job_ids[0],)
    assert measures.violation(problem, answer.time_fraction) <= MOST_VIOLATION


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([name for name in BY_PRICES if "rank" not in name]))
def test_a_rigid_job_is_the_case_of_one_size(seed: int, name: str) -> None:
    plain, policy = a_small_problem(seed, jobs=6), registry.load(name)
    one_size = over_sizes(plain)
    ours = policy.objective(one_size, policy.allocate(one_size))  # type: ignore[attr-defined]
    assert ours == pytest.approx(policy.objective(plain, policy.allocate(plain)), rel=1e-5)  # type: ignore[attr-defined]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6))
def test_nobody_falls_below_the_isolated_speed_whatever_sizes_another_lists(seed: int, liar: int) -> None:
    problem = a_problem(seed, rigid=0)
    problem = replace(problem, weight=np.ones(len(problem.job_ids)))
    assert problem.configurations is not None
    fewer = problem.configurations.steps_per_s.copy()
    fewer[liar, :, 1:] = 0.0  # only its smallest size
    for speeds in (problem.configurations.steps_per_s, fewer):
        listed = replace(problem, configurations=replace(problem.configurations, steps_per_s=speeds))
        asked = over_sizes(listed)
        answer = registry.load("max_min_fairness").allocate(asked)
        speed = measures.effective_throughput(asked, answer.time_fraction)
        isolated = measures.isolated_rate(asked, measures.even_share(asked))
        assert (speed >= isolated * (1 - 1e-5)).all()


def test_sizes_that_cannot_be_are_refused_with_the_field() -> None:
    problem = a_problem(0)
    assert problem.configurations is not None
    asked, choice = over_sizes(problem), problem.configurations
    for wrong, field in (
        (replace(asked, combination_workers=asked.combination_workers[1:]), "combination_workers"),
        (replace(asked, combination_workers=np.ones_like(asked.combination_workers)), "combination_workers"),
        (replace(problem, configurations=replace(choice, sizes=SIZES[::-1])), "configurations"),
        (replace(problem, configurations=replace(choice, sizes=SIZES[:2])), "configurations"),
        (replace(problem, configurations=replace(choice, steps_per_s=-choice.steps_per_s)), "configurations"),
        (replace(problem, configurations=replace(choice, jobs=choice.jobs + 4)), "configurations"),
    ):
        with pytest.raises(InvalidProblem) as error:
            registry.load("max_min_fairness").allocate(wrong)
        assert error.value.field == field


@pytest.mark.parametrize("name", ["equal_share", "gandiva", "allox", "partial_allocation", "fair_by_cores"])
def test_policies_for_gangs_of_one_size_say_so(name: str) -> None:
    with pytest.raises(InvalidProblem, match="jobs of one size"):
        registry.load(name).allocate(over_sizes(a_problem(0)))


def test_the_example_of_the_documentation_runs_and_gives_elastic_jobs_their_isolated_speed() -> None:
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text().split("## Sizes as well")[1]
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    assert (names["got"] >= names["least"] * (1 - 1e-6))[:2].all()
    assert len(names["answer"].combinations) == 3 + 3 + 1
