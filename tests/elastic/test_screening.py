"""Very many jobs: what is left out could not win, and the bound is one of all jobs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.elastic import screening
from gavel.elastic.decision import choose
from gavel.elastic.prices import balanced
from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.elastic.screening import SizeQuestion, choose_among
from gavel.elastic.utility import utility
from gavel.policies.programs.elastic import relaxed
from gavel.types import FloatArray, IntArray
from tests.elastic.instances import SIZES, elastic_jobs


def a_question(seed: int, count: int, workers: tuple[int, ...], *, some_growth: float = 0.9) -> SizeQuestion:
    jobs = elastic_jobs(seed, count, types=len(workers))
    rng, sizes = np.random.default_rng(seed + 1), np.array(SIZES)
    fits = sizes <= np.array(workers)[:, None]
    jobs = replace(jobs, weight=rng.choice([0.5, 1.0, 4.0], count))
    return SizeQuestion(
        jobs=jobs,
        possible=fits & (rng.random((count, 1, len(sizes))) < some_growth),
        sizes=sizes,
        capacity_workers=np.array(workers),
    )


questions = st.builds(
    lambda seed, count, workers, growth: a_question(seed, count, tuple(workers), some_growth=growth),
    st.integers(0, 10**6),
    st.integers(1, 300),
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
    st.sampled_from([0.3, 0.9, 1.0]),
)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "FEW", 0)
    monkeypatch.setattr(screening, "MANY", 1)
    monkeypatch.setattr(screening, "CHUNK", 64)
    monkeypatch.setattr(screening, "SAMPLED", 3)


@given(questions)
def test_no_job_is_worth_more_for_a_worker_than_its_bound(question: SizeQuestion) -> None:
    weights, most = screening._most_worth(question)
    whole = question.problem()
    assert utility(question.jobs) == pytest.approx(utility(question.jobs, weights), rel=1e-12)
    a_worker = (whole.utility / question.sizes).max(axis=2).T
    assert (a_worker <= most * (1 + 1e-12)).all()


@settings(deadline=None)
@given(questions)
def test_the_choice_of_some_is_one_of_all(question: SizeQuestion) -> None:
    choice, whole = choose_among(question), question.problem()
    served = np.flatnonzero(choice.configuration != NOTHING)
    assert len(choice.configuration) == len(whole.flat)
    assert (whole.held(choice.configuration) <= whole.capacity_workers).all()
    assert (whole.flat[served, choice.configuration[served]] > 0).all()
    assert choice.value == pytest.approx(whole.value(choice.configuration))
    _, best = relaxed(whole)
    assert choice.value <= best * (1 + 1e-6) + 1e-9
    assert best * (1 - 1e-6) - 1e-9 <= choice.bound <= best * 1.02 + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_of_many_jobs_the_choice_is_as_good_as_that_of_all(seed: int) -> None:
    question = a_question(seed, 6000, (200, 120, 40))
    choice, whole = choose_among(question), question.problem()
    assert choice.bound == pytest.approx(balanced(whole)[0].bound, rel=1e-6)
    assert choice.value >= choose(whole).value * (1 - 5e-4)
    assert choice.gap < 0.005


@pytest.mark.parametrize("times", [1.01, 3.0])
def test_prices_of_the_sample_that_are_too_high_are_looked_below(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    """Then too few jobs are asked at first: they leave workers, whose price is nothing, and all others would win."""
    monkeypatch.setattr(screening, "NEARLY", times)
    question = a_question(2, 6000, (200, 120, 40))
    asked: list[int] = []
    original = SizeQuestion.problem_of

    def noted(self: SizeQuestion, rows: IntArray, weights: FloatArray) -> SizeProblem:
        asked.append(len(rows))
        return original(self, rows, weights)

    monkeypatch.setattr(SizeQuestion, "problem_of", noted)
    choice = choose_among(question)
    assert choice.bound == pytest.approx(balanced(question.problem())[0].bound, rel=1e-6)
    assert max(asked) < 3000


def test_few_jobs_are_all_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "FEW", 200_000)
    question = a_question(7, 40, (8, 6, 4))
    assert (choose_among(question).configuration == choose(question.problem()).configuration).all()
