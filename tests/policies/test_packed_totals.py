"""Pairs that enter as they pay give the same total as the linear program over every pair by name."""

import numpy as np
import pytest

from gavel.policies import measures, named_pairs
from gavel.policies.fast import packed_totals
from gavel.policies.max_total_relative_speed import MaxTotalRelativeSpeed
from gavel.types import AllocationProblem, PairRates
from tests.builders import a_problem

POLICY = MaxTotalRelativeSpeed(ageing="none")


def a_packable_problem(seed: int, jobs: int = 9, kinds: int = 5, types: int = 3) -> AllocationProblem:
    """Few workers for many jobs of a few kinds, of one, two or four workers; some rates 0, some jobs never packed."""
    draw = np.random.default_rng(seed)
    kind = draw.integers(0, kinds, jobs)
    size = np.array([1, 1, 1, 2, 4])[np.arange(kinds) % 5]
    alone = draw.uniform(1, 9, (kinds, types)) * (draw.random((kinds, types)) > 0.1)
    alone[:, 0] = np.maximum(alone[:, 0], 1.0)
    colocated = alone[:, None, :] * draw.uniform(0.2, 0.95, (kinds, kinds, types))
    colocated *= (draw.random((kinds, kinds, types)) > 0.1) & (size[:, None] == size)[:, :, None]
    kind_of_job = np.where(draw.random(jobs) > 0.1, kind, -1)
    return a_problem(
        alone[kind],
        draw.integers(1, 5, types).tolist(),
        scale_factor=size[kind].tolist(),
        weight=draw.uniform(0.5, 3.0, jobs).tolist(),
        pair_rates=PairRates(kind_of_job=kind_of_job, steps_per_s=colocated),
    )


def total(problem: AllocationProblem) -> tuple[float, float]:
    """The total by priced pairs, and that of the program over all pairs by name."""
    allocation = POLICY.allocate(problem)
    assert allocation.solver == packed_totals.SOLVER
    assert allocation.certificate.dual_gap is not None and allocation.certificate.dual_gap < 1e-9
    named = named_pairs(problem)
    among = named_pairs(problem, allocation.combinations)
    assert measures.violation(among, allocation.time_fraction) < 1e-9
    ours = float(POLICY.objective(among, allocation)[0])
    return ours, float(POLICY.objective(named, POLICY.program(named))[0])


@pytest.mark.parametrize("seed", range(8))
def test_the_total_is_that_of_the_program_over_all_named_pairs(seed: int) -> None:
    ours, by_program = total(a_packable_problem(seed))
    assert ours == pytest.approx(by_program, rel=1e-7)


def test_pairs_listed_block_by_block_give_the_same_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_totals, "KEPT_JOBS", 4)
    monkeypatch.setattr(packed_totals, "BLOCK", 4)
    ours, by_program = total(a_packable_problem(3, jobs=14))
    assert ours == pytest.approx(by_program, rel=1e-7)


def test_packing_is_worth_at_least_as_much_as_running_alone() -> None:
    problem = a_packable_problem(1)
    alone = POLICY.allocate(
        a_problem(
            problem.throughput_steps_per_s[:, 0],
            problem.capacity_workers.tolist(),
            scale_factor=problem.scale_factor.tolist(),
            weight=problem.weight.tolist(),
        )
    )
    ours, _ = total(problem)
    assert ours > float(POLICY.objective(problem, alone)[0])


def test_named_pairs_go_the_same_way() -> None:
    named = named_pairs(a_packable_problem(5))
    allocation = POLICY.allocate(named)
    assert allocation.solver == packed_totals.SOLVER and len(allocation.combinations) == len(named.combinations)
    assert float(POLICY.objective(named, allocation)[0]) == pytest.approx(
        float(POLICY.objective(named, POLICY.program(named))[0]), rel=1e-7
    )
