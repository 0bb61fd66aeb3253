"""Max-min fairness against the paper's example, closed forms, brute force and a second solver."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures, registry
from gavel.policies.fast import max_min
from gavel.policies.max_min_fairness import MaxMinFairness, plain
from gavel.policies.programs.program import Program
from gavel.policies.programs.variants import agnostic
from gavel.types import Tier
from tests.builders import a_problem
from tests.policies.instances import an_instance, few_examples, idle_pairs, seeds, workers_held
from tests.policies.oracles import Oracle, filled_by_tiers


def test_the_example_of_gavel_s_paper_gives_each_job_eight_elevenths_of_its_equal_share_rate() -> None:
    problem = a_problem([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]], [1, 1])
    allocation = MaxMinFairness().allocate(problem)
    assert measures.service(problem, allocation.time_fraction) == pytest.approx([8 / 11] * 3)
    assert allocation.time_fraction == pytest.approx(np.asarray([[5, 0], [5, 1], [1, 10]]) / 11, abs=1e-6)


def test_identical_jobs_on_one_type_share_it_by_weight() -> None:
    problem = a_problem([[2.0]] * 3, [1], weight=[1.0, 2.0, 5.0])
    allocation = MaxMinFairness().allocate(problem)
    assert allocation.time_fraction[:, 0] == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_a_gang_of_two_gets_as_many_workers_as_a_single_job() -> None:
    problem = a_problem([[2.0], [2.0]], [2], scale_factor=[1, 2])
    assert workers_held(problem, MaxMinFairness().allocate(problem)) == pytest.approx([2.0])
    assert MaxMinFairness().allocate(problem).time_fraction[:, 0] == pytest.approx([1.0, 0.5])


def test_without_water_filling_what_is_left_goes_where_the_total_service_is_greatest() -> None:
    problem = a_problem([[1.0, 0.5], [4.0, 1.0], [4.0, 1.0], [4.0, 1.0]], [2, 2], weight=[5.0, 1.0, 1.0, 1.0])
    plain, filled = (MaxMinFairness(water_filling=each).allocate(problem) for each in (False, True))
    objective = MaxMinFairness(water_filling=False).objective
    (worst, total), (same, no_more) = (objective(problem, each) for each in (plain, filled))
    assert worst == pytest.approx(same)
    assert total >= no_more - 1e-6
    for each in (plain, filled):
        assert workers_held(problem, each).sum() == pytest.approx(4.0)


@few_examples
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 12), types=st.integers(1, 4), load=st.sampled_from([0.3, 1, 3]))
def test_the_plain_optimum_is_the_program_s_and_leaves_nobody_who_could_use_what_is_idle(
    seed: int, jobs: int, types: int, load: float
) -> None:
    problem, policy = an_instance(seed, jobs=jobs, types=types), MaxMinFairness(water_filling=False)
    workers = np.maximum(1, problem.capacity_workers * load).astype(np.int64)
    problem = replace(problem, capacity_workers=workers)
    ours, theirs = (policy.objective(problem, each) for each in (policy.allocate(problem), policy.program(problem)))
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    assert not idle_pairs(problem, policy.allocate(problem)).any()


@pytest.mark.parametrize("load", [0.25, 0.75, 2.0])
def test_hundreds_of_different_jobs_get_a_certified_total(load: float) -> None:
    draw = np.random.default_rng(5)
    workers = (load * 900 * np.asarray([0.2, 0.3, 0.5])).astype(np.int64)
    problem = a_problem(draw.lognormal(0, 1, (900, 3)).tolist(), workers, weight=draw.choice([1.0, 2.0, 5.0], 900))
    policy = MaxMinFairness(water_filling=False)
    allocation, filled = policy.allocate(problem), MaxMinFairness().allocate(problem)
    assert allocation.solver == "prices"
    assert (allocation.certificate.dual_gap or 0.0) <= 1e-6
    (worst, total), (same, no_more) = (policy.objective(problem, each) for each in (allocation, filled))
    assert worst == pytest.approx(same, rel=1e-6)
    assert total >= no_more * (1 - 1e-7)


def test_with_very_many_different_jobs_what_is_left_is_shared_by_water_filling(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = an_instance(3, jobs=12)
    problem = replace(problem, capacity_workers=problem.capacity_workers * 3)
    monkeypatch.setattr(max_min, "MOST_JOBS", 5)
    plain, filled = (MaxMinFairness(water_filling=each).allocate(problem) for each in (False, True))
    assert MaxMinFairness().objective(problem, plain) == pytest.approx(MaxMinFairness().objective(problem, filled))


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_the_plain_program_agrees_with_an_independent_linear_program_and_between_solvers(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 3, types=2 + seed % 2)
    policy = MaxMinFairness(water_filling=False)
    assert not Program(problem).is_idle, "nobody can run: this instance proves nothing"
    answers = (plain(Program(problem, solver="clarabel")), plain(Program(problem, solver="highs")))
    values = [policy.objective(problem, answer)[0] for answer in answers]
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    assert values[1] == pytest.approx(Oracle(problem).worst_served(problem.weight), rel=1e-6)


@pytest.mark.parametrize("seed", seeds(12, 120))
def test_water_filling_agrees_with_brute_force_job_by_job(seed: int) -> None:
    problem = an_instance(seed, jobs=3 + seed % 6, types=2 + seed % 2)
    jobs = np.zeros(len(problem.job_ids), dtype=np.int64)
    problem = replace(problem, tiers=(Tier(name="all"),), tier_of_job=jobs)
    got = measures.service(problem, MaxMinFairness().allocate(problem).time_fraction)
    assert got == pytest.approx(filled_by_tiers(problem), abs=1e-4)


@few_examples
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 12), types=st.integers(1, 4))
def test_no_job_has_time_to_spare_on_a_type_with_workers_to_spare(seed: int, jobs: int, types: int) -> None:
    problem = an_instance(seed, jobs=jobs, types=types)
    assert not idle_pairs(problem, MaxMinFairness().allocate(problem)).any()


def test_the_agnostic_variant_keeps_equal_shares_and_shares_time_alone() -> None:
    problem = a_problem([[40.0, 10.0], [12.0, 4.0], [100.0, 0.0]], [1, 3])
    blind = agnostic(problem)
    assert measures.equal_share_rate(blind) == pytest.approx(measures.equal_share_rate(problem))
    assert blind.throughput_steps_per_s[:, 0].tolist() == [[17.5, 17.5], [6.0, 6.0], [100.0, 0.0]]
    allocation = registry.load("max_min_fairness?agnostic=true").allocate(problem)
    assert allocation.policy == "max_min_fairness?agnostic=true"


def test_a_packed_pair_holds_its_workers_once_and_counts_for_both_members() -> None:
    alone = a_problem([[1.0], [1.0]], [1])
    rates = np.asarray([[[1.0], [0.0]], [[1.0], [0.0]], [[0.8], [0.8]]])
    packed = replace(alone, combinations=((0,), (1,), (0, 1)), throughput_steps_per_s=rates)
    allocation = MaxMinFairness().allocate(packed)
    assert allocation.combinations[2] == ("j0", "j1")
    assert allocation.time_fraction[:, 0] == pytest.approx([0.0, 0.0, 1.0])
    assert measures.effective_throughput(packed, allocation.time_fraction) == pytest.approx([0.8, 0.8])
