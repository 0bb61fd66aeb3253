"""Tiers by prices: curves in closed form against their paths, and the policy against its program."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.policies import measures
from gavel.policies.fast.curve_evaluation import spread
from gavel.policies.fast.reduction import SOLVER
from gavel.policies.hierarchical import Hierarchical
from gavel.policies.registry import WITHIN_USER
from gavel.policies.tiers.curves import Curve, EqualRho, GroupsByRho, InOrder, One, Share, Then
from gavel.types import AllocationProblem, Tier
from tests.conftest import IS_FULL
from tests.policies.instances import an_instance, seeds

JOBS = 7


def a_rho(jobs: list[int]) -> EqualRho:
    draw = np.random.default_rng(len(jobs))
    work, age_s, isolated_s = (draw.uniform(1.0, 9.0, len(jobs)) for _ in range(3))
    return EqualRho(jobs=np.asarray(jobs), work=work, age_s=age_s, isolated_s=isolated_s)


EVENLY = Share([One(job) for job in range(JOBS)], [1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])
IN_ORDER = InOrder([One(job) for job in (3, 0, 6, 1, 5, 2, 4)])
NESTED = Share([Share([One(0), One(3)], [1.0, 2.0]), InOrder([One(2), One(1)]), a_rho([4, 5, 6])], [2.0, 1.0, 0.7])
ENOUGH = np.asarray([1.0, 0.2, 3.0, 0.0, 0.5, 9.0, 1.0])
USERS = Share(
    [
        Then(InOrder([One(3), One(0)]), ENOUGH, Share([One(0), One(3)], [1.0, 2.0])),
        Share([Share([One(6)], [5.0])], [1e-6]),
        Share([One(1), One(5)], [1e6, 3e-3]),
        Then(InOrder([One(4), One(2)]), ENOUGH / 2, Share([One(2), One(4)], [1.0, 1.0])),
    ],
    [1.0, 2.0, 1.0, 0.5],
)
CURVES: dict[str, Curve] = {
    "one": One(2),
    "evenly": EVENLY,
    "in order": IN_ORDER,
    "equally late": a_rho(list(range(JOBS))),
    "groups equally late": GroupsByRho([a_rho([3, 0, 6]), a_rho([1, 5]), a_rho([2, 4])], a_rho([0, 1, 2]).lateness),
    "nested": NESTED,
    "enough first": Then(IN_ORDER, ENOUGH, EVENLY),
    "users side by side": USERS,
}


BENT = ("nested", "groups equally late")  # two curves of rho at once, each with corners of its own: straight between


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("seed", range(4))
def test_a_spread_goes_through_the_corners_of_its_curve_s_path(name: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    start = draw.uniform(0.0, 1.0, JOBS) * (draw.random(JOBS) < 0.5)
    cap = np.maximum(start, draw.uniform(0.0, 3.0, JOBS))
    path, closed = CURVES[name].path(start, cap), spread(CURVES[name], start, cap)
    assert (closed.low, closed.high) == pytest.approx((path.service[0], path.service[-1]))
    order = np.argsort(closed.jobs)
    expected = path.targets[:, np.argsort(path.jobs)]
    got = np.asarray([closed.at(float(service))[0][order] for service in path.service])
    assert got == pytest.approx(expected, abs=1e-3 if name in BENT else 1e-6)


@pytest.mark.parametrize("name", CURVES)
def test_the_slopes_of_a_spread_are_those_between_two_near_points(name: str) -> None:
    closed = spread(CURVES[name], np.zeros(JOBS), np.linspace(1.0, 3.0, JOBS))
    for service in np.linspace(0.07, 0.93, 9) * closed.high:
        below, (here, slope) = closed.at(float(service) - 1e-7)[0], closed.at(float(service))
        assert (here - below) / 1e-7 == pytest.approx(slope, abs=1e-4)


@settings(max_examples=30 if IS_FULL else 10)
@given(service=st.lists(st.floats(1e-3, 1.0), min_size=3, max_size=3))
def test_groups_evaluated_together_are_as_late_as_each_alone(service: list[float]) -> None:
    start, cap = np.zeros(JOBS), np.linspace(1.0, 3.0, JOBS)
    groups = [a_rho([3, 0, 6]), a_rho([1, 5]), a_rho([2, 4])]
    alone = [spread(each, start, cap) for each in groups]
    wanted = [part * each.high for part, each in zip(service, alone, strict=True)]
    together = spread(Share(groups, wanted), start, cap)
    for each, part in zip(alone, wanted, strict=True):
        targets, slope = each.at(part)
        assert targets.sum() == pytest.approx(part, abs=1e-9)
        assert slope.sum() == pytest.approx(1.0)
    expected = np.concatenate([each.at(part)[0] for each, part in zip(alone, wanted, strict=True)])
    assert together.at(sum(wanted))[0] == pytest.approx(expected, abs=1e-9)


def test_equally_late_jobs_are_at_their_caps_where_their_group_has_all_it_can_use() -> None:
    curve, cap = a_rho(list(range(JOBS))), np.linspace(1.0, 3.0, JOBS)
    closed = spread(curve, np.zeros(JOBS), cap)
    closed.at(closed.high / 2)
    assert closed.at(closed.high)[0] == pytest.approx(cap, rel=1e-14)
    assert closed.at(closed.high + 1.0)[0] == pytest.approx(cap, rel=1e-14)


def with_tiers(seed: int) -> AllocationProblem:
    """Three tiers of random objectives, weights and guarantees; two users."""
    problem = an_instance(seed, jobs=4 + seed % 10, types=2 + seed % 3)
    draw = np.random.default_rng(seed)
    jobs = len(problem.job_ids)
    objectives = draw.choice(["fairness", "speed", "fifo", "shortest_job_first", "throughput", "deadline"], 3)
    within_user = draw.choice(sorted(WITHIN_USER), 3)
    tiers = tuple(
        Tier(
            name=f"tier-{index}",
            weight=1.0 + index,
            objective=str(name),
            within_user=str(within_user[index]),
            guarantee=float(draw.choice([0.0, 0.2])),
            cap=float(draw.choice([1.0, 1.0, 0.4])),
        )
        for index, name in enumerate(objectives)
    )
    due = np.where(draw.random(jobs) < 0.5, draw.uniform(10.0, 1e4, jobs), np.inf)
    users = tuple(str(user) for user in draw.choice(["ann", "bob"], jobs))
    return replace(problem, tiers=tiers, tier_of_job=draw.integers(0, 3, jobs), users=users, deadline_at_s=due)


def test_tiers_are_served_by_prices_as_by_the_program() -> None:
    own = 0
    problems = [with_tiers(seed) for seed in seeds(20, 500)]
    for problem in problems:
        ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
        own += ours.solver == SOLVER
        got, expected = (Hierarchical().objective(problem, each) for each in (ours, theirs))
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
        service = [measures.service(problem, each.time_fraction) for each in (ours, theirs)]
        assert service[0] == pytest.approx(service[1], rel=1e-3, abs=1e-3)
    assert own >= 0.97 * len(problems)


@pytest.mark.parametrize("seed", [23, 43, 84, 342])
def test_jobs_that_stopped_at_an_earlier_level_keep_the_full_types_that_they_use(seed: int) -> None:
    problem = with_tiers(seed)
    assert any(tier.cap < 1 for tier in problem.tiers)
    assert Hierarchical().allocate(problem).solver == SOLVER


def test_tiers_of_finish_time_fairness_follow_rho_itself_where_the_program_follows_corners() -> None:
    problem = an_instance(3, jobs=8)
    tiers = (Tier(name="late", objective="finish_time_fairness"), Tier(name="even", weight=2.0))
    problem = replace(problem, tiers=tiers)
    ours, theirs = Hierarchical().allocate(problem), Hierarchical().program(problem)
    assert ours.solver == SOLVER
    assert Hierarchical().objective(problem, ours) == pytest.approx(Hierarchical().objective(problem, theirs), rel=5e-3)
