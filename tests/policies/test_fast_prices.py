"""The price method against the cvxpy programs, brute force, and its own certificate."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gavel.errors import SolveFailed
from gavel.linear import simplex
from gavel.policies import _serving, measures
from gavel.policies.fast import max_min, price_search, reduction, turns
from gavel.policies.fast.congestion import Answer, Congestion, by_interior_point, by_simplex
from gavel.policies.fast.envelope import Envelopes, Market
from gavel.policies.fast.price_search import how_far, largest_paid
from gavel.policies.fast.reduction import SOLVER
from gavel.policies.fast.targets import Even, Targets
from gavel.policies.fast.water_filling import Filled, fill
from gavel.policies.fifo import Fifo
from gavel.policies.finish_time_fairness import FinishTimeFairness
from gavel.policies.makespan import Makespan
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.policies.programs.variants import agnostic
from gavel.policies.shortest_job_first import ShortestJobFirst
from gavel.types import Allocation, AllocationProblem, FloatArray
from tests.builders import a_problem
from tests.policies.instances import an_instance, seeds

MOST_UNANSWERED = 0.02  # of the problems: those for which the program that defines the policy finds no answer


def by_program(policy: Fifo | ShortestJobFirst, problem: AllocationProblem) -> Allocation:
    return _serving.program(problem, policy.order, policy=policy.name, backfill=policy.backfill, time_limit_s=60.0)


OBJECTIVES = {
    "max-min": (MaxMinFairness(water_filling=False), lambda policy, problem: policy.program(problem)),
    "water filling": (MaxMinFairness(), lambda policy, problem: policy.program(problem)),
    "finish-time fairness": (FinishTimeFairness(), lambda policy, problem: policy.program(problem)),
    "worst rho alone": (FinishTimeFairness(backfill=False), lambda policy, problem: policy.program(problem)),
    "makespan": (Makespan(), lambda policy, problem: policy.program(problem)),
    "last end alone": (Makespan(backfill=False), lambda policy, problem: policy.program(problem)),
    "fifo": (Fifo(), by_program),
    "fifo without backfill": (Fifo(backfill=False), by_program),
    "shortest job first": (ShortestJobFirst(), by_program),
}


def an_uneven_instance(seed: int) -> AllocationProblem:
    """From contended to spare, 2 to 5 types: water filling needs one to four levels."""
    return an_instance(seed, jobs=3 + seed % 12, types=2 + seed % 4)


def assert_as_good(ours: FloatArray, theirs: FloatArray) -> None:
    """Equal to 1e-5; to 1e-2 where the program bought what comes later with the 2e-9 it may miss of the first."""
    apart = np.flatnonzero(np.abs(ours - theirs) > 1e-10 * (1 + np.abs(theirs)))
    is_lexicographically_better = bool(apart.size and ours[apart[0]] > theirs[apart[0]])
    off = np.abs(ours - theirs) > 1e-5 * (1e-1 + np.abs(theirs))
    if off.any():
        assert is_lexicographically_better
        assert apart[0] < np.flatnonzero(off)[0]
        assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_prices_answer_as_well_as_the_program(objective: str) -> None:
    policy, program = OBJECTIVES[objective]
    problems, unanswered = [an_uneven_instance(seed) for seed in seeds(15, 500)], []
    for problem in problems:
        try:
            theirs = program(policy, problem)
        except SolveFailed as error:
            unanswered.append(error)  # nothing to compare with
            continue
        assert_as_good(policy.objective(problem, policy.allocate(problem)), policy.objective(problem, theirs))
    assert len(unanswered) <= MOST_UNANSWERED * len(problems), unanswered


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nearly_every_answer_needs_no_program_and_is_certified(objective: str) -> None:
    policy, _ = OBJECTIVES[objective]
    problems = [an_uneven_instance(seed) for seed in seeds(30, 300)]
    runnable = [problem for problem in problems if measures.runnable(problem).any()]
    own = [each for each in map(policy.allocate, runnable) if each.solver in (SOLVER, turns.SOLVER)]
    assert len(own) >= 0.9 * len(runnable)
    assert all(each.certificate.primal_violation <= 1e-6 for each in own)
    assert all((each.certificate.dual_gap or 0.0) <= 1e-6 for each in own)


@pytest.mark.parametrize("load", [0.2, 0.8, 2.0])
def test_a_thousand_different_jobs_need_no_program_whatever_the_load(load: float) -> None:
    for seed in seeds(3, 40):
        problem = an_instance(seed, jobs=1000)
        parts = np.random.default_rng(seed).dirichlet(np.ones(3))
        problem = replace(problem, capacity_workers=(1 + load * 1000 * parts).astype(np.int64))
        for policy in (MaxMinFairness(), FinishTimeFairness(), Makespan()):
            allocation = policy.allocate(problem)
            assert allocation.solver == SOLVER
            assert max(allocation.certificate.primal_violation, allocation.certificate.dual_gap or 0.0) <= 1e-6


def a_market(seed: int, jobs: int = 12, types: int = 3) -> Market:
    draw = np.random.default_rng(seed)
    rates = draw.uniform(0.2, 5.0, (types, jobs))
    return Market(rates, draw.choice([1.0, 1.0, 2.0], jobs), draw.integers(1, 5, types).astype(float))


def evenly(start: FloatArray, cap: FloatArray) -> Targets:
    return Even(np.ones(len(start)), start, cap)


def cheapest(market: Market, prices: FloatArray, target: float, job: int) -> float:
    """The least cost of a target by a linear program."""
    from scipy.optimize import linprog

    types = len(prices)
    rows = np.vstack([-market.rates[:, job], np.ones(types)])
    return float(linprog(market.scale[job] * prices, A_ub=rows, b_ub=[-target, 1.0], bounds=(0, None)).fun)


@pytest.mark.parametrize("seed", range(8))
def test_the_envelope_is_the_least_cost_and_its_vertex_reaches_the_target(seed: int) -> None:
    market = a_market(seed, types=4)
    draw = np.random.default_rng(seed)
    prices, targets = draw.uniform(0, 1, 4), market.best * draw.uniform(0, 1, 12)
    prices[seed % 4] = 0.0
    envelopes = Envelopes(market, prices, targets)
    expected = [cheapest(market, prices, targets[job], job) for job in range(12)]
    vertex = envelopes.vertex(targets)
    fractions = vertex.of_types(4)
    assert envelopes.cost(targets)[0] == pytest.approx(sum(expected))
    assert (market.rates * fractions).sum(axis=0) == pytest.approx(targets)
    assert fractions.sum(axis=0).max() <= 1 + 1e-12
    assert prices @ vertex.used(market.scale, 4) == pytest.approx(sum(expected))


@pytest.mark.parametrize("seed", range(6))
def test_any_prices_bound_the_level_from_above(seed: int) -> None:
    market = a_market(seed)
    targets = evenly(np.zeros(12), market.best)
    reached = how_far(market, market.workers, targets, np.ones(3))
    for prices in np.random.default_rng(seed).uniform(0, 1, (5, 3)):
        priced = Envelopes(market, prices, market.best)
        assert largest_paid(priced, targets, targets.end) >= reached.level * (1 - 1e-9)


def test_a_small_problem_is_solved_with_the_interior_point_as_with_the_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    market = a_market(3, jobs=60, types=4)
    exact = fill(market, evenly)
    monkeypatch.setattr(price_search, "MOST_BY_SIMPLEX", 0)
    assert fill(market, evenly).value == pytest.approx(exact.value, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_few_jobs_are_answered_alike_with_all_in_one_simplex_and_with_the_ambiguous_ones_only(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = a_market(seed, jobs=20 + seed, types=2 + seed % 3)
    together = fill(market, evenly)
    assert fill(market, evenly).value == pytest.approx(together.value, rel=1e-7)


def test_prices_of_too_few_jobs_do_not_replace_those_that_prove_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of a coarse answer used to be taken whatever they proved, and 40 rounds did not repair them."""
    for name, value in {"MOST_BY_INTERIOR_POINT": 30, "FEW": 5, "ALL_AT_ONCE": 100, "MOST_BY_SIMPLEX": 5}.items():
        monkeypatch.setattr(price_search, name, value)
    draw, jobs, kinds = np.random.default_rng(5), 3000, 40
    rates = draw.uniform(0.1, 1, (kinds, 3))[(kinds * draw.random(jobs) ** 2).astype(int)]
    problem = a_problem(
        rates * np.exp(0.3 * draw.standard_normal((jobs, 1))),
        [300] * 3,
        scale_factor=draw.choice([1, 1, 1, 1, 2, 4], jobs),
        weight=draw.choice([1.0, 1.0, 2.0], jobs) * np.exp(0.3 * draw.standard_normal(jobs)),
    )
    answer = max_min.evenly(problem, "max_min_fairness", problem.weight, whole=True)
    assert answer is not None and answer.solver == SOLVER


def test_more_jobs_than_are_solved_at_once_start_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    market = a_market(5, jobs=400)
    exact = fill(market, evenly)
    monkeypatch.setattr(price_search, "ALL_AT_ONCE", 100)
    monkeypatch.setattr(price_search, "LEAST_SAMPLE", 20)
    assert fill(market, evenly).value == pytest.approx(exact.value, rel=1e-7)


def test_jobs_that_are_alike_are_asked_as_one_and_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3,000 jobs of twelve kinds no more than the kinds are asked at once, after the samples."""
    asked: list[int] = []

    def noted(question: Congestion, *rest: float) -> Answer:
        asked.append(len(question.scale))
        return by_interior_point(question, *rest)

    monkeypatch.setattr(price_search, "MOST_BY_SIMPLEX", 0)
    monkeypatch.setattr(price_search, "by_interior_point", noted)
    few = a_market(5)
    many = Market(np.tile(few.rates, 250), np.tile(few.scale, 250) / 250, few.workers)
    value = fill(many, evenly).value.reshape(250, 12)
    assert value == pytest.approx(np.tile(fill(few, evenly).value, (250, 1)), rel=1e-7)
    assert max(asked) <= price_search.LEAST_SAMPLE


def test_last_round_s_prices_change_nothing_but_the_way_to_the_answer() -> None:
    for seed in seeds(10, 100):
        problem = an_instance(seed, jobs=12)
        cold = MaxMinFairness().allocate(problem)
        stored = json.loads(json.dumps(cold.warm_start))
        warm = MaxMinFairness().allocate(replace(problem, warm_start=stored))
        assert_as_good(*(MaxMinFairness().objective(problem, each) for each in (warm, cold)))


@pytest.mark.parametrize(
    "stored",
    [
        {"types": ["t0", "t1", "t2"], "levels": [[5.0, 0.0, 0.0], [0.0, 1.0, 0.0]]},
        {"types": ["t0", "t1", "t2"], "levels": [[1.0, 1.0, 1.0]] * 2, "reached": [1e-9, float("nan")]},
        {"types": ["t0", "t1", "t2"], "levels": [[1.0, 1.0, 1.0]], "reached": [-1.0]},
        {"types": ["t0", "gone"], "levels": [[1.0, 2.0]]},
        {"types": ["t0", "t1", "t2"], "levels": [[0.0, 0.0, 0.0]]},
        {"types": ["t0", "t1", "t2"], "levels": [[float("nan"), 1.0, -3.0]]},
    ],
    ids=["of another problem", "levels of another", "no level", "of other types", "all zero", "no numbers"],
)
def test_wrong_prices_to_begin_with_do_no_harm(stored: dict[str, object]) -> None:
    problem = an_instance(7, jobs=9)
    cold = MaxMinFairness().allocate(problem)
    warm = MaxMinFairness().allocate(replace(problem, warm_start={SOLVER: stored}))
    assert_as_good(*(MaxMinFairness().objective(problem, each) for each in (warm, cold)))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda filled: replace(filled, fractions=filled.fractions * 0.999),
        lambda filled: replace(filled, fractions=filled.fractions * 1.001),
        lambda filled: replace(filled, proofs=(replace(filled.proofs[0], targets=filled.proofs[0].targets * 0.999),)),
        lambda filled: replace(filled, proofs=(replace(filled.proofs[0], prices=filled.proofs[0].prices[::-1]),)),
    ],
    ids=["too little", "too much", "a level too low", "a wrong price"],
)
def test_the_certificate_catches_a_wrong_answer_and_the_program_answers(
    spoil: Callable[[Filled], Filled], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gavel.policies.fast import max_min

    monkeypatch.setattr(max_min, "fill", lambda *args, **rest: spoil(fill(*args, **rest)))
    problem = an_instance(1, jobs=9)
    allocation = MaxMinFairness().allocate(problem)
    assert allocation.solver != SOLVER
    assert np.array_equal(allocation.time_fraction, MaxMinFairness().program(problem).time_fraction)


def test_a_method_that_does_not_settle_leaves_the_answer_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_search, "MOST_ROUNDS", 0)
    assert MaxMinFairness().allocate(an_instance(1)).solver != SOLVER


def test_types_that_look_alike_are_shared_as_the_program_shares_them() -> None:
    for seed in seeds(8, 80):
        problem = agnostic(an_instance(seed, jobs=9))
        ours, theirs = MaxMinFairness().allocate(problem), MaxMinFairness().program(problem)
        assert_as_good(*(MaxMinFairness().objective(problem, each) for each in (ours, theirs)))


def test_jobs_and_types_that_cannot_be_used_are_left_out() -> None:
    problem = a_problem(
        [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [2.0, 1.0, 1.0]], [2, 0, 1], scale_factor=[1, 1, 2], weight=[2.0, 1.0, 1.0]
    )
    allocation = MaxMinFairness().allocate(problem)
    assert allocation.solver == SOLVER
    assert not allocation.time_fraction[1].any()
    assert not allocation.time_fraction[:, 1].any()
    assert allocation.time_fraction[2, 2] == 0
    theirs = MaxMinFairness().program(problem)
    assert_as_good(*(MaxMinFairness().objective(problem, each) for each in (allocation, theirs)))


def test_packed_pairs_are_left_to_the_program() -> None:
    problem = a_problem([[2.0, 1.0], [1.0, 2.0]], [1, 1])
    rates = np.concatenate([problem.throughput_steps_per_s, [[[1.5, 0.8], [0.7, 1.4]]]])
    packed = replace(problem, combinations=((0,), (1,), (0, 1)), throughput_steps_per_s=rates)
    assert reduction.answered(packed, "any", lambda *_: fill(a_market(0), evenly), []) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_level_paid_for_does_not_depend_on_where_the_search_begins(seed: int) -> None:
    market = a_market(seed)
    targets = evenly(np.zeros(12), market.best)
    priced = Envelopes(market, np.full(3, 1 / 3), market.best)
    level = largest_paid(priced, targets, targets.end)
    assert level > 0
    for low in (0.25 * level, 0.999 * level):
        assert largest_paid(priced, targets, targets.end, low=low) == pytest.approx(level, rel=1e-9)
    assert largest_paid(priced, targets, targets.end, precision=1e-2) == pytest.approx(level, rel=0.1)


def test_where_no_level_can_be_paid_for_the_lowest_is_given() -> None:
    market = a_market(0)
    less = replace(market, workers=1e-3 * market.workers)
    targets = evenly(0.5 * market.best, market.best)
    assert largest_paid(Envelopes(less, np.full(3, 1 / 3), market.best), targets, targets.end) == 0.0


def half_of_the_best(seed: int) -> Congestion:
    """The question whether all jobs of a market can have half their best rate."""
    market = a_market(seed)
    ones, wanted = np.ones(12), 0.5 * market.best
    return Congestion(market.rates / wanted, market.rates > 0, market.scale, ones, np.zeros(3), market.workers)


def test_a_solver_that_is_used_again_answers_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplex, "_IDLE", [])
    new = by_simplex(half_of_the_best(3))
    for seed in (5, 6, 7):
        by_simplex(half_of_the_best(seed))
    again = by_simplex(half_of_the_best(3))
    assert new is not None and again is not None and len(simplex._IDLE) == 1
    assert (new.z, new.prices.tolist()) == (again.z, again.prices.tolist())
    assert np.array_equal(new.fractions, again.fractions)
