"""Pairs known by kind: solved over classes, compared with the program over every pair of named jobs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InvalidProblem, SolveFailed
from gavel.policies import agnostic, measures, named_pairs, registry, with_pairs
from gavel.policies.fast import columns
from gavel.policies.fast.columns import Generated
from gavel.policies.fast.packed import SOLVER, _between, _within, evenly_packed
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.store import codec
from gavel.types import Allocation, AllocationProblem, PairRates, RoundPlan, RoundRecord
from tests.builders import a_problem
from tests.policies.instances import few_examples, seeds


def by_kind(seed: int, *, jobs: int | None = None) -> AllocationProblem:
    """Jobs of a few kinds and scale factors; some kinds cannot run somewhere, some jobs are never packed."""
    draw = np.random.default_rng(seed)
    kinds, types = int(draw.integers(1, 5)), int(draw.integers(1, 4))
    count = int(draw.integers(1, 11)) if jobs is None else jobs
    rates = draw.uniform(0.2, 5.0, (kinds, types)) * draw.uniform(0.5, 40.0, (kinds, 1))
    rates[draw.random(rates.shape) < 0.2] = 0.0
    scale, kind = draw.choice([1, 1, 2], kinds), draw.integers(0, kinds, count)
    parts = draw.uniform(0.2, 1.0, (kinds, kinds, types))
    parts[draw.random(parts.shape) < 0.15] = 0.0
    colocated = parts * rates[:, None] * (scale[:, None] == scale)[:, :, None]
    problem = a_problem(
        rates[kind],
        draw.integers(1, 5, types),
        scale_factor=scale[kind],
        weight=draw.choice([1.0, 2.0, 5.0], count),
    )
    kind_of_job = np.where(draw.random(count) < 0.1, -1, kind)
    return with_pairs(problem, PairRates(kind_of_job=kind_of_job, steps_per_s=colocated))


@pytest.mark.parametrize("water_filling", [True, False])
def test_classes_serve_as_well_as_every_pair_of_jobs_by_name(water_filling: bool) -> None:
    policy = MaxMinFairness(water_filling=water_filling)
    for seed in seeds(20, 500):
        problem = by_kind(seed) if seed % 4 else agnostic(by_kind(seed))
        answer, every = policy.allocate(problem), named_pairs(problem)
        assert answer.solver == SOLVER
        ours, theirs = policy.objective(problem, answer), policy.objective(every, policy.program(every))
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_the_answer_is_valid_for_its_own_pairs_and_certified() -> None:
    for seed in seeds(20, 300):
        problem = by_kind(seed, jobs=40)
        answer = MaxMinFairness().allocate(problem)
        named = named_pairs(problem, answer.combinations)
        assert answer.combinations == tuple(tuple(problem.job_ids[job] for job in row) for row in named.combinations)
        assert measures.violation(named, answer.time_fraction) <= 1e-6
        assert max(answer.certificate.primal_violation, answer.certificate.dual_gap or 0.0) <= 1e-6


def test_packing_by_kind_is_worth_more_than_running_alone() -> None:
    rates = PairRates(kind_of_job=np.zeros(5, dtype=np.int64), steps_per_s=np.asarray([[[8.0]]]))
    alone = a_problem([[10.0]] * 5, [2])
    problem = with_pairs(alone, rates)
    answer = MaxMinFairness().allocate(problem)
    got = measures.effective_throughput(named_pairs(problem, answer.combinations), answer.time_fraction)
    assert got == pytest.approx([8.0 * 4 / 5] * 5)  # two workers carry four jobs at a time


def test_the_pairs_that_are_named_grow_with_the_jobs_not_with_their_square() -> None:
    for seed in seeds(3, 20):
        problem = by_kind(seed, jobs=1000)
        assert len(MaxMinFairness().allocate(problem).combinations) <= 10 * len(problem.job_ids)


@given(st.integers(1, 40), st.integers(1, 40))
@few_examples
def test_two_classes_meet_in_few_pairs_and_every_job_has_its_part(first: int, second: int) -> None:
    one, other, part = _between(first, second)
    assert len(part) < first + second
    assert np.bincount(one, part, first) == pytest.approx(np.full(first, 1 / first))
    assert np.bincount(other, part, second) == pytest.approx(np.full(second, 1 / second))


@given(st.integers(2, 60))
@few_examples
def test_jobs_of_one_class_are_paired_two_by_two_and_an_odd_one_with_two(count: int) -> None:
    one, other, part = _within(count)
    assert (one != other).all()
    assert len(part) <= count // 2 + 2
    assert np.bincount(one, part, count) + np.bincount(other, part, count) == pytest.approx(np.full(count, 2 / count))


def test_nobody_who_can_run_gets_an_empty_answer() -> None:
    problem = by_kind(1)
    problem = replace(problem, throughput_steps_per_s=np.zeros_like(problem.throughput_steps_per_s))
    answer = MaxMinFairness().allocate(problem)
    assert not answer.time_fraction.any()
    assert answer.combinations == tuple((job_id,) for job_id in problem.job_ids)


@pytest.mark.parametrize("spec", ["fifo", "gandiva", "max_total_throughput"])
def test_a_policy_that_needs_names_says_how_to_give_them(spec: str) -> None:
    problem, policy = by_kind(3, jobs=8), registry.load(spec)
    with pytest.raises(InvalidProblem, match=r"pair_rates.*named_pairs"):
        policy.allocate(problem)
    assert policy.allocate(named_pairs(problem)).time_fraction.any()


def test_too_many_pairs_to_be_named_are_refused() -> None:
    with pytest.raises(InvalidProblem, match=r"pair_rates.*most: 200000"):
        named_pairs(
            with_pairs(
                a_problem([[1.0]] * 700, [4]),
                PairRates(kind_of_job=np.zeros(700, dtype=np.int64), steps_per_s=np.ones((1, 1, 1))),
            )
        )


def _rates(**over: object) -> PairRates:
    given = {"kind_of_job": np.asarray([0, 1]), "steps_per_s": np.ones((2, 2, 1))} | over
    return PairRates(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates", "scale", "message"),
    [
        (_rates(kind_of_job=np.asarray([0])), [1, 1], r"kind_of_job.*shape \(1,\), wanted \(2,\)"),
        (_rates(steps_per_s=np.ones((2, 1, 1))), [1, 1], r"steps_per_s.*wanted \(2, 2, 1\)"),
        (_rates(steps_per_s=np.full((2, 2, 1), np.nan)), [1, 1], r"steps_per_s\[0, 0, 0\].*nan"),
        (_rates(kind_of_job=np.asarray([0, 2])), [1, 1], r"kind_of_job\[j1\].*is 2"),
        (_rates(kind_of_job=np.asarray([0, 0])), [1, 2], r"kind_of_job\[j.\].*several scale factors"),
        (_rates(), [1, 2], r"steps_per_s\[0, 1\].*gangs of 1 and of 2"),
    ],
)
def test_rates_that_cannot_be_are_refused_by_name(rates: PairRates, scale: list[int], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        with_pairs(a_problem([[1.0]] * 2, [4], scale_factor=scale), rates)


def test_named_pairs_beside_rates_by_kind_are_refused() -> None:
    both = with_pairs(a_problem([[1.0]] * 2, [4]), {("j0", "j1"): [[1.0], [1.0]]})
    with pytest.raises(InvalidProblem, match="combinations"):
        with_pairs(both, _rates())


def test_an_agnostic_policy_spreads_its_pairs_over_the_types() -> None:
    policy = registry.load("max_min_fairness?agnostic=true")
    for seed in range(5):
        problem = by_kind(seed, jobs=12)
        answer = policy.allocate(problem)
        assert measures.violation(named_pairs(problem, answer.combinations), answer.time_fraction) <= 1e-6


def by_classes(problem: AllocationProblem, *, whole: bool = True, time_limit_s: float = 60.0) -> Allocation:
    assert problem.pair_rates is not None
    return evenly_packed(problem, problem.pair_rates, "classes", whole=whole, time_limit_s=time_limit_s)


def wrong_by_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the answers over classes are off by more than a certificate admits."""
    solved = Generated._solved

    def wrong(self: Generated, way: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, prices = solved(self, way)
        x[0] *= 0.999
        return x, prices

    monkeypatch.setattr(Generated, "_solved", wrong)


def test_a_simplex_that_is_stopped_or_never_settles_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SolveFailed, match="highs answered Time limit"):
        by_classes(by_kind(4, jobs=60), time_limit_s=1e-9)
    monkeypatch.setattr(columns, "MOST_GENERATIONS", 0)
    with pytest.raises(SolveFailed, match="did not settle"):
        by_classes(by_kind(4))


def test_a_wrong_answer_does_not_pass_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_by_a_little(monkeypatch)
    with pytest.raises(SolveFailed, match="off by"):
        by_classes(by_kind(4), whole=False)


@pytest.mark.parametrize("water_filling", [False, True])
def test_where_classes_give_no_answer_the_program_over_named_pairs_does(
    monkeypatch: pytest.MonkeyPatch, water_filling: bool
) -> None:
    problem, policy = by_kind(4, jobs=8), MaxMinFairness(water_filling=water_filling)
    expected = policy.objective(problem, policy.allocate(problem))
    monkeypatch.setattr(columns, "MOST_GENERATIONS", 0)
    answer = policy.allocate(problem)
    assert answer.solver != SOLVER
    assert policy.objective(problem, answer) == pytest.approx(expected, rel=1e-4)


def test_pairs_that_are_too_many_to_name_are_not_tried_by_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_GENERATIONS", 0)
    with pytest.raises(SolveFailed, match="did not settle"):
        MaxMinFairness().allocate(by_kind(4, jobs=900))


def test_columns_that_are_missing_at_first_are_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [by_kind(seed, jobs=30) for seed in seeds(5, 50)]
    whole = [MaxMinFairness().allocate(problem) for problem in problems]
    monkeypatch.setattr(columns, "FIRST_PAIRS", 0)
    monkeypatch.setattr(columns, "NEXT_PAIRS", 1)
    for problem, before in zip(problems, whole, strict=True):
        after = MaxMinFairness().allocate(problem)
        ours, theirs = (MaxMinFairness().objective(problem, each) for each in (after, before))
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_pair_rates_survive_being_stored_with_their_round() -> None:
    problem = by_kind(2)
    plan = RoundPlan(
        round_index=1, parent_round_index=0, starts_at_s=0.0, duration_s=1.0, leases=(), policy="", allocation_digest=""
    )
    record = RoundRecord(plan=plan, problem=problem, allocation=MaxMinFairness().allocate(problem))
    plan_body, decision = codec.pack_round(record)
    restored = codec.record(SimpleNamespace(round_index=1, plan=plan_body, decision=decision)).problem
    assert restored.pair_rates is not None
    assert problem.pair_rates is not None
    assert np.array_equal(restored.pair_rates.steps_per_s, problem.pair_rates.steps_per_s)
    assert np.array_equal(restored.pair_rates.kind_of_job, problem.pair_rates.kind_of_job)
