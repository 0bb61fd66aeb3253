"""The greatest total by prices against its linear program."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.policies import registry
from gavel.policies.fast import totals
from gavel.types import AllocationProblem
from tests.policies.instances import an_instance, seeds

SPECS = ("max_total_throughput", "max_total_relative_speed", "min_cost", "rank_weighted_speed")


def instances(few: int, full: int) -> list[AllocationProblem]:
    return [an_instance(seed, jobs=3 + seed % 40, types=2 + seed % 4) for seed in seeds(few, full)]


@pytest.mark.parametrize("spec", SPECS)
def test_prices_find_the_total_of_the_program(spec: str) -> None:
    policy = registry.load(spec)
    for problem in instances(20, 500):
        ours, theirs = policy.allocate(problem), policy.program(problem)  # type: ignore[attr-defined]
        assert ours.solver == totals.SOLVER
        worth = [policy.objective(problem, each)[0] for each in (ours, theirs)]  # type: ignore[attr-defined]
        assert worth[0] == pytest.approx(worth[1], rel=1e-7)


@pytest.mark.parametrize("spec", SPECS)
def test_prices_improved_by_cutting_planes_lead_to_the_same_total(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = registry.load(spec)
    problems = instances(10, 200)
    whole = [policy.objective(each, policy.allocate(each))[0] for each in problems]  # type: ignore[attr-defined]
    monkeypatch.setattr(totals, "SAMPLE", 4)
    sampled = [policy.objective(each, policy.allocate(each))[0] for each in problems]  # type: ignore[attr-defined]
    assert sampled == pytest.approx(whole, rel=1e-7)


def test_of_many_jobs_that_are_late_few_are_left_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What late jobs hold moves the prices, and at these the choice of nearly each of them is clear, too."""
    monkeypatch.setattr(totals, "MOST_BY_SIMPLEX", totals.SAMPLE)
    policy = registry.load("rank_weighted_speed")
    for seed in seeds(2, 30):
        problem = an_instance(seed, jobs=3_000)
        problem = replace(problem, capacity_workers=problem.capacity_workers * 150)
        assert (policy.least_speed(problem) > 0).sum() > 2 * totals.SAMPLE  # type: ignore[attr-defined]
        ours, theirs = policy.allocate(problem), policy.program(problem)  # type: ignore[attr-defined]
        assert ours.solver == totals.SOLVER
        worth = [policy.objective(problem, each)[0] for each in (ours, theirs)]  # type: ignore[attr-defined]
        assert worth[0] == pytest.approx(worth[1], rel=1e-7)


def test_prices_that_are_wrong_show_in_the_distance_and_the_program_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = totals._placed

    def overpriced(*given: object) -> object:
        answer = placed(*given)  # type: ignore[arg-type]
        return answer and (answer[0], answer[1] + 0.1)

    monkeypatch.setattr(totals, "_placed", overpriced)
    problem = an_instance(2, jobs=12)
    policy = registry.load("max_total_throughput")
    allocation = policy.allocate(problem)
    assert allocation.solver != totals.SOLVER
    assert np.array_equal(allocation.time_fraction, policy.program(problem).time_fraction)  # type: ignore[attr-defined]
