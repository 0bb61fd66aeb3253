"""Minimum makespan against closed forms, an independent linear program and level-by-level brute force."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import measures
from gavel.policies.makespan import Makespan
from gavel.types import Tier
from tests.builders import a_problem
from tests.policies.instances import an_instance, idle_pairs, seeds
from tests.policies.oracles import Oracle, filled_by_tiers


def test_jobs_on_one_worker_share_it_so_that_they_end_together() -> None:
    problem = a_problem([[2.0], [2.0]], [1], steps_remaining=[100.0, 300.0])
    assert Makespan().allocate(problem).time_fraction[:, 0] == pytest.approx([0.25, 0.75])


def test_the_slowest_job_fixes_the_makespan_and_backfill_still_uses_what_is_left() -> None:
    problem = a_problem([[1.0], [1.0], [1.0]], [2], steps_remaining=[1000.0, 10.0, 10.0])
    with_backfill, without = (Makespan(backfill=each).allocate(problem) for each in (True, False))
    assert with_backfill.time_fraction[:, 0] == pytest.approx([1.0, 0.5, 0.5])
    assert without.time_fraction[0, 0] == pytest.approx(1.0)
    assert Makespan(backfill=False).objective(problem, without) == pytest.approx([1.0])


@pytest.mark.parametrize("seed", seeds(20, 200))
def test_it_agrees_with_an_independent_linear_program_and_between_solvers(seed: int) -> None:
    problem = an_instance(seed, jobs=2 + seed % 5, types=2 + seed % 2)
    oracle = Oracle(problem)
    assert (oracle.equal > 0).any(), "nobody can run: this instance proves nothing"
    longest_s = (problem.steps_remaining / np.where(oracle.equal > 0, oracle.rates.max(axis=1), np.inf)).max()
    wanted = oracle.worst_served(np.where(oracle.unit > 0, oracle.unit * problem.steps_remaining / longest_s, 1.0))
    for policy in (Makespan(), Makespan(backfill=False)):  # the one solved by HiGHS, the other by Clarabel
        allocation = policy.allocate(problem)
        assert policy.objective(problem, allocation)[0] == pytest.approx(wanted, rel=1e-5)
    assert not idle_pairs(problem, Makespan().allocate(problem)).any()


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_with_backfill_every_end_is_as_early_as_brute_force_makes_it(seed: int) -> None:
    problem = an_instance(seed, jobs=3 + seed % 3, types=2)
    problem = replace(problem, tiers=(Tier(name="all"),), tier_of_job=np.zeros(len(problem.job_ids), dtype=np.int64))
    unit = Oracle(problem).unit
    weight = np.where(unit > 0, unit * problem.steps_remaining, 1.0)
    service = filled_by_tiers(replace(problem, weight=weight / weight.mean()))
    got = measures.service(problem, Makespan().allocate(problem).time_fraction)
    assert got == pytest.approx(service, abs=1e-4)
