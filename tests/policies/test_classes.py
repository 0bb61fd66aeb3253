"""Classes of identical jobs: exact, in any order, and never joining jobs that differ in a number of the key."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InvalidProblem
from gavel.policies.fast import job_classes
from gavel.policies.fast.job_classes import classes
from gavel.policies.max_min_fairness import MaxMinFairness
from gavel.policies.programs import validate
from gavel.policies.programs.names import of_jobs_and_pairs
from gavel.types import AllocationProblem
from tests.builders import a_problem
from tests.policies.instances import few_examples


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, -0.0, 0.5, 1e-300, 7.25])), max_size=40))
@few_examples
def test_jobs_are_of_one_class_exactly_if_their_keys_are_equal(rows: list[tuple[int, float]]) -> None:
    whole = np.asarray([row[0] for row in rows], dtype=np.int64)
    broken = np.asarray([row[1] for row in rows], dtype=float)
    merged = classes([whole, broken])
    alike = (whole[:, None] == whole) & (broken[:, None] == broken)
    assert np.array_equal(merged.of_job[:, None] == merged.of_job, alike)
    assert np.array_equal(merged.count[merged.of_job], alike.sum(axis=1))
    assert np.array_equal(merged.of_job[merged.first], np.arange(len(merged.first)))


def test_keys_that_are_mixed_alike_are_noticed_and_nobody_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_classes, "_MULTIPLIER", np.uint64(0))  # every key is now mixed alike
    merged = classes([np.asarray([1, 1, 2])])
    assert merged.count.tolist() == [1, 1, 1]


@pytest.mark.parametrize("slot_bits", [20, 1], ids=["a slot a class", "classes that share slots"])
def test_many_jobs_of_few_classes_are_joined_as_few_jobs_are(slot_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_classes, "SLOT_BITS", slot_bits)
    draw = np.random.default_rng(0)
    whole, broken = draw.integers(0, 5, job_classes.MANY + 1), draw.choice([0.0, -0.0, 0.5], job_classes.MANY + 1)
    merged = classes([whole, broken])
    assert len(merged.first) == 10
    assert merged.fit([whole, broken])
    assert np.array_equal(merged.count, np.bincount(merged.of_job))


@pytest.mark.parametrize("many", [2, 100_000], ids=["by their hashes", "by a set"])
def test_a_job_that_is_named_twice_is_refused_however_many_there_are(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "MANY_NAMES", many)
    problem = a_problem([[2.0]] * 4, [3])
    validate.check_problem(problem)
    with pytest.raises(InvalidProblem, match="names a job twice"):
        validate.check_problem(replace(problem, job_ids=(*problem.job_ids[:3], problem.job_ids[0])))


def copies(seed: int) -> AllocationProblem:
    """A few kinds of jobs, each several times, in a random order."""
    draw = np.random.default_rng(seed)
    kind = draw.permutation(np.repeat(np.arange(4), draw.integers(1, 5, 4)))
    return a_problem(
        draw.uniform(0.5, 5.0, (4, 3))[kind],
        draw.integers(1, 5, 3),
        scale_factor=draw.choice([1, 1, 2], 4)[kind],
        weight=draw.choice([1.0, 2.0], 4)[kind],
    )


@pytest.mark.parametrize("seed", range(10))
def test_solving_by_classes_serves_as_well_as_job_by_job(seed: int) -> None:
    problem = copies(seed)
    by_class, by_job = MaxMinFairness().allocate(problem), MaxMinFairness().program(problem)
    ours, theirs = (MaxMinFairness().objective(problem, each) for each in (by_class, by_job))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_identical_jobs_get_identical_time() -> None:
    problem = a_problem([[2.0, 1.0]] * 3 + [[1.0, 3.0]] * 2, [1, 1])
    fractions = MaxMinFairness().allocate(problem).time_fraction
    assert np.ptp(fractions[:3], axis=0).max() == 0
    assert np.ptp(fractions[3:], axis=0).max() == 0


def test_time_of_a_class_counts_for_each_of_its_members() -> None:
    problem = replace(a_problem([[2.0]] * 6, [3]), weight=np.ones(6))
    assert MaxMinFairness().allocate(problem).time_fraction[:, 0] == pytest.approx([0.5] * 6)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_naming_many_combinations_leaves_the_garbage_collector_as_it_was(was_enabled: bool) -> None:
    (gc.enable if was_enabled else gc.disable)()
    try:
        names = of_jobs_and_pairs(("a", "b", "c"), np.asarray([0, 1]), np.asarray([2, 2]))
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
    assert names == (("a",), ("b",), ("c",), ("a", "c"), ("b", "c"))
