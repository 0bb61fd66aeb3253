"""Pairs that enter as they pay give the same total as the linear program over every pair by name."""

import numpy as np
import pytest

from gavel.policies import measures, named_pairs
from gavel.policies.fast import packed_totals
from gavel.policies.fast.paying_pairs import PairPrices, Pairs
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


@pytest.mark.parametrize("kinds", [1, 40])
@pytest.mark.parametrize("seed", range(4))
def test_the_total_is_the_same_where_all_jobs_are_of_one_kind_or_each_of_its_own(seed: int, kinds: int) -> None:
    ours, by_program = total(a_packable_problem(seed, jobs=14, kinds=kinds))
    assert ours == pytest.approx(by_program, rel=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_pairs_pay_if_any_does_and_those_that_gain_most_are_among_them(seed: int) -> None:
    """Against all pairs, listed one by one."""
    draw, problem = np.random.default_rng(seed), a_packable_problem(seed, jobs=12)
    pair_rates, jobs = problem.pair_rates, len(problem.job_ids)
    assert pair_rates is not None
    prices = PairPrices(draw.random(jobs), draw.exponential(4.0, jobs), draw.exponential(1.0, 3))
    named = named_pairs(problem)
    gains = {}
    for row, members in enumerate(named.combinations):
        if len(members) == 2:
            a, b = members
            each = prices.step[[a, b]] @ named.throughput_steps_per_s[row] - prices.time[a] - prices.time[b]
            runs = (named.throughput_steps_per_s[row] > 0).all(axis=0)
            gains |= {(a, b, t): each[t] - problem.scale_factor[a] * prices.worker[t] for t in np.flatnonzero(runs)}
    least = float(np.quantile(list(gains.values()), draw.choice([0.0, 0.9, 1.0]))) + 1e-6
    entering = Pairs(problem).paying(prices, least, most=1_000)
    got = list(zip(entering.first.tolist(), entering.second.tolist(), entering.types.tolist(), strict=True))
    assert len(got) == len(set(got)) and set(got) <= {key for key, gain in gains.items() if gain > least - 1e-9}
    assert bool(got) == any(gain > least for gain in gains.values())
    if got:
        assert max(gains.values()) == pytest.approx(max(gains[key] for key in got))


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
