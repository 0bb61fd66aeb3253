"""Packed jobs that end soonest: nobody has less than without packing, and pairs that enter as they pay are enough."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.policies import measures, named_pairs
from gavel.policies.fast import packed_totals
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.rank_weighted_speed import RankWeightedSpeed
from gavel.policies.tiers.ranks import is_late
from gavel.types import Allocation, AllocationProblem, FloatArray, PairRates, Tier
from tests.builders import a_problem
from tests.policies.instances import few_examples, seeds
from tests.policies.test_packed_totals import a_packable_problem
from tests.policies.test_within_user import TOLERANCE, USERS, as_alike, of_users

FAST = Tier(name="only")
MIXED = (FAST, Tier(name="alike", within_user="equal", weight=2.0), Tier(name="together", objective="speed"))
RANKED = RankWeightedSpeed()


def a_cluster(seed: int, *, tiers: tuple[Tier, ...] = (FAST,), jobs: int = 10) -> AllocationProblem:
    """Jobs of three users that may be packed; some are late."""
    draw = np.random.default_rng(seed)
    return replace(
        a_packable_problem(seed, jobs=jobs),
        steps_remaining=draw.uniform(1.0, 1e5, jobs),
        age_s=np.sort(draw.uniform(0.0, 9000.0, jobs))[::-1],
        isolated_time_s=draw.uniform(0.0, 500.0, jobs),
        tiers=tiers,
        tier_of_job=draw.integers(0, len(tiers), jobs),
        users=tuple(str(user) for user in draw.choice(USERS, jobs)),
    )


def service(problem: AllocationProblem, allocation: Allocation) -> FloatArray:
    return measures.service(named_pairs(problem, allocation.combinations), allocation.time_fraction)


def speeds(problem: AllocationProblem, allocation: Allocation) -> FloatArray:
    named = named_pairs(problem, allocation.combinations)
    assert measures.violation(named, allocation.time_fraction) < 1e-6
    return measures.relative_throughput(named, allocation.time_fraction)


def test_two_jobs_of_a_user_share_the_only_worker_where_both_together_do_more() -> None:
    alone = a_problem([[10.0], [10.0]], [1], tiers=(FAST,))
    colocated = PairRates(kind_of_job=np.asarray([0, 1]), steps_per_s=np.asarray([[[0.0], [8.0]], [[9.0], [0.0]]]))
    problem = replace(alone, pair_rates=colocated)
    allocation = Hierarchical().allocate(problem)
    assert allocation.combinations[2] == ("j0", "j1")
    assert speeds(problem, allocation) == pytest.approx([0.8, 0.9])
    losing = replace(colocated, steps_per_s=colocated.steps_per_s / 2)
    assert len(Hierarchical().allocate(replace(alone, pair_rates=losing)).combinations) == 2


def test_jobs_of_two_users_share_a_worker_too() -> None:
    """Each user has one job; without packing there is nothing to rearrange."""
    colocated = PairRates(kind_of_job=np.asarray([0, 0]), steps_per_s=np.full((1, 1, 1), 8.0))
    problem = a_problem([[10.0], [10.0]], [1], tiers=(FAST,), users=("ann", "bob"), pair_rates=colocated)
    assert speeds(problem, Hierarchical().allocate(problem)) == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize("tiers", [(FAST,), MIXED])
@pytest.mark.parametrize("seed", seeds(12, 120))
def test_pairs_that_enter_as_they_pay_are_as_good_as_the_program_over_all(seed: int, tiers: tuple[Tier, ...]) -> None:
    problem = a_cluster(seed, tiers=tiers)
    ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
    assert ours.solver == packed_totals.SOLVER != theirs.solver
    assert (ours.certificate.dual_gap or 0.0) <= 1e-6 and (theirs.certificate.dual_gap or 0.0) <= 1e-6
    # Sorted: two users whose only jobs are alike may be served either way round, and the total stays.
    both = [np.sort(service(problem, each)) for each in (ours, theirs)]
    assert both[0] == pytest.approx(both[1], rel=1e-3, abs=1e-3)


@few_examples
@given(seed=st.integers(0, 10**6), statement=st.sampled_from(["truth", "short", "weight"]))
def test_no_user_has_less_than_without_packing_whatever_another_one_states(seed: int, statement: str) -> None:
    problem = a_cluster(seed, tiers=MIXED[:2])
    without = as_alike(measures.alone(problem))
    least = of_users(problem, service(without, Hierarchical().allocate(without)))
    of_ann = np.asarray([user == "ann" for user in problem.users])
    stated = {
        "truth": {},
        "short": {"steps_remaining": np.where(of_ann, 1.0, problem.steps_remaining)},
        "weight": {"weight": np.where(of_ann, 1e6, 1.0)},
    }[statement]
    lie = replace(problem, **{"weight": np.ones(len(of_ann)), **stated})
    for owner, got in of_users(lie, service(lie, Hierarchical().allocate(lie))).items():
        if owner[1] != "ann" or statement == "truth":
            assert got >= least[owner] - TOLERANCE, owner


@pytest.mark.parametrize("seed", seeds(12, 120))
def test_late_jobs_that_may_be_packed_are_at_least_as_fast_as_isolated(seed: int) -> None:
    problem = a_cluster(seed)
    allocation = RANKED.allocate(problem)
    assert allocation.solver == packed_totals.SOLVER
    got = speeds(problem, allocation)
    assert (got >= RANKED.least_speed(problem) - TOLERANCE).all()
    assert not is_late(problem).any() or RANKED.least_speed(problem).any()
    named = named_pairs(problem)
    best = RANKED.objective(named, RANKED.program(named))[0]
    assert RANKED.claim(problem) @ got == pytest.approx(best, rel=1e-6)


def test_a_capped_tier_that_packs_holds_no_more_than_its_cap() -> None:
    problem = a_cluster(4, tiers=(replace(FAST, cap=0.5),))
    allocation = Hierarchical().allocate(problem)
    named = named_pairs(problem, allocation.combinations)
    held = measures.gang_size(named) @ allocation.time_fraction
    assert (held <= 0.5 * problem.capacity_workers + TOLERANCE).all() and held.any()
