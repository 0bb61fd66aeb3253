"""Caps of tiers on answers of every form."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.mechanism.planning.caps import capped, is_capped, uncapped
from gavel.types import Allocation, AllocationProblem, Certificate, Tier
from tests.builders import a_problem


def test_a_cap_holds_for_pairs_that_the_policy_named_itself() -> None:
    """Policies that pack by kinds of jobs name pairs that no combination of the problem names."""
    tiers = (Tier(name="default"), Tier(name="half", cap=0.5))
    problem = replace(a_problem([[1.0], [1.0], [1.0]], [2], tier_of_job=[0, 1, 1]), tiers=tiers)
    allocation = Allocation(
        combinations=(("j0",), ("j1",), ("j2",), ("j1", "j2")),
        accelerator_types=("t0",),
        time_fraction=np.array([[0.5], [0.5], [0.0], [1.0]]),
        certificate=Certificate(primal_violation=0.0),
        policy="own",
        solver="none",
    )
    after = capped(allocation, problem).time_fraction[:, 0]
    assert after[0] == 0.5
    assert after[1:].sum() == pytest.approx(1.0) and after[3] == pytest.approx(2 / 3)
    assert [job for job, _ in capped(allocation, problem).notes] == ["j1", "j2"]


def test_workers_of_gangs_that_stay_count_against_the_cap_of_their_tier() -> None:
    """Of 8 workers the tier may have 4, and its gangs stay on 3 of them."""
    tiers = (Tier(name="default"), Tier(name="half", cap=0.5))
    stay = np.array([[1.0], [3.0]])
    problem = a_problem([[1.0]] * 4, [4], tiers=tiers, tier_of_job=[0, 1, 1, 1], staying_workers=stay)
    allocation = Allocation(
        combinations=(("j0",), ("j1",), ("j2",), ("j3",)),
        accelerator_types=("t0",),
        time_fraction=np.array([[1.0], [1.0], [0.5], [0.5]]),
        certificate=Certificate(primal_violation=0.0),
        policy="own",
        solver="none",
    )
    after = capped(allocation, problem).time_fraction[:, 0]
    assert after[0] == 1.0 and after[1:].sum() == pytest.approx(1.0)


HALF = Tier(name="half", cap=0.5)
FREE = Tier(name="free")


def an_allocation(fractions: list[list[float]], *combinations: tuple[str, ...]) -> Allocation:
    alone = tuple((f"j{row}",) for row in range(len(fractions)))
    return Allocation(
        combinations=combinations or alone,
        accelerator_types=tuple(f"t{column}" for column in range(len(fractions[0]))),
        time_fraction=np.array(fractions),
        certificate=Certificate(primal_violation=0.5, dual_gap=0.25),
        notes=(("j0", "noted before"),),
        policy="own",
        solver="none",
    )


def a_capped_problem(capacity: list[int], tier_of_job: list[int], *tiers: Tier, **over: object) -> AllocationProblem:
    rates = [[1.0] * len(capacity)] * len(tier_of_job)
    return a_problem(rates, capacity, tiers=tiers or (FREE, HALF), tier_of_job=tier_of_job, **over)


def new_notes(problem: AllocationProblem, allocation: Allocation) -> dict[str, str]:
    """The notes that are new."""
    notes = capped(allocation, problem).notes
    assert notes[0] == ("j0", "noted before")
    return dict(notes[1:])


def test_without_a_cap_the_answer_stays_the_same_object() -> None:
    full = an_allocation([[1.0], [1.0]])
    assert capped(full, a_capped_problem([1], [0, 1], FREE, Tier(name="other"))) is full


def test_below_its_cap_nothing_is_cut_and_nobody_is_told() -> None:
    low = an_allocation([[1.0], [0.9]])
    after = capped(low, a_capped_problem([2], [0, 1]))
    assert after.time_fraction is low.time_fraction
    assert (after.notes, after.certificate) == (low.notes, low.certificate)


def test_at_its_cap_but_for_rounding_nothing_is_cut_and_its_jobs_are_told() -> None:
    for fraction in (1.0 - 0.9e-6, 1.0, 1.0 + 0.9e-6):
        full, problem = an_allocation([[1.0], [fraction]]), a_capped_problem([2], [0, 1])
        assert capped(full, problem).time_fraction is full.time_fraction
        assert new_notes(problem, full) == {"j1": "tier half is held to its cap of 50%"}
        assert capped(full, problem).certificate == full.certificate


def test_what_is_above_the_cap_of_a_type_is_cut_there_and_the_optimum_is_lost() -> None:
    full, problem = an_allocation([[0.5, 0.5], [0.4, 0.6], [0.4, 0.2]]), a_capped_problem([2, 1], [0, 1, 1])
    after = capped(full, problem)
    assert after.time_fraction == pytest.approx(np.array([[0.5, 0.5], [0.4, 0.375], [0.4, 0.125]]))
    assert after.certificate == Certificate(primal_violation=0.5, dual_gap=None)
    assert new_notes(problem, full) == dict.fromkeys(("j1", "j2"), "tier half is held to its cap of 50%")
    assert (after.combinations, after.policy, after.solver) == (full.combinations, "own", "none")


def test_a_gang_counts_with_all_its_workers() -> None:
    full, problem = an_allocation([[1.0], [1.0]]), a_capped_problem([4], [0, 1], scale_factor=[1, 4])
    assert capped(full, problem).time_fraction.tolist() == [[1.0], [0.5]]


def test_a_pair_is_cut_for_the_one_of_its_jobs_whose_tier_is_capped() -> None:
    """Each of the two counts half of the workers."""
    tight = Tier(name="tight", cap=0.25)
    full, problem = an_allocation([[1.0]], ("j0", "j1")), a_capped_problem([1], [0, 1], FREE, tight)
    assert capped(full, problem).time_fraction.tolist() == [[0.5]]
    assert new_notes(problem, full) == {"j1": "tier tight is held to its cap of 25%"}


def test_of_two_caps_the_tighter_one_counts() -> None:
    above, below = Tier(name="above", cap=0.5), Tier(name="below", parent="above", cap=0.125)
    full = an_allocation([[1.0], [1.0]])
    for tiers, rows in (((above, below), [0, 1]), ((below, above), [1, 0])):
        cut = capped(full, a_capped_problem([2], rows, *tiers)).time_fraction[:, 0]
        assert cut.tolist() == [0.5, 0.25]


def test_gangs_that_stay_may_leave_a_tier_nothing() -> None:
    """Of 8 workers it may have 4, and its gangs stay on 5; those of the other tier stay on 1."""
    stay = np.array([[1.0], [5.0]])
    full, problem = an_allocation([[1.0], [1.0]]), a_capped_problem([2], [0, 1], staying_workers=stay)
    assert capped(full, problem).time_fraction.tolist() == [[1.0], [0.0]]


def test_gangs_that_stay_count_on_their_type_and_for_all_tiers_above() -> None:
    """Of 8 and 4 workers the tier may have 4 and 2; on 3 of the first and 1 of the second, gangs of it stay."""
    below = Tier(name="below", parent="half")
    stay = np.array([[1.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    full = an_allocation([[1.0, 1.0], [1.0, 0.5], [1.0, 1.5]])
    problem = a_capped_problem([4, 3], [0, 1, 2], FREE, HALF, below, staying_workers=stay)
    assert capped(full, problem).time_fraction.tolist() == [[1.0, 1.0], [0.5, 0.25], [0.5, 0.75]]


def test_a_tier_whose_gangs_stay_on_all_that_it_may_have_is_told_why_its_jobs_get_nothing() -> None:
    stay = np.array([[1.0], [4.0]])
    none, problem = an_allocation([[1.0], [0.0]]), a_capped_problem([3], [0, 1], staying_workers=stay)
    assert new_notes(problem, none) == {"j1": "tier half is held to its cap of 50%"}
    assert capped(none, problem).certificate == none.certificate


def test_a_tier_without_a_cap_that_has_everything_is_told_nothing() -> None:
    assert new_notes(a_capped_problem([1], [0, 1]), an_allocation([[1.0], [0.0]])) == {}


def test_a_job_may_get_more_than_its_target_unless_its_tier_or_one_above_it_has_a_cap() -> None:
    tiers = (HALF, Tier(name="below", parent="half"), FREE)
    problem = a_capped_problem([2], [2, 0, 1, 2], *tiers)
    assert uncapped(problem).tolist() == [True, False, False, True]
    by_name = {tier.name: tier for tier in tiers}
    assert [is_capped(name, by_name) for name in by_name] == [True, True, False]


def test_without_jobs_nothing_is_cut() -> None:
    none = replace(an_allocation([[1.0]]), combinations=(), time_fraction=np.zeros((0, 1)), notes=())
    problem = a_problem([], [2], tiers=(HALF,), tier_of_job=[])
    assert capped(none, problem).certificate == none.certificate
    assert uncapped(a_problem([], [2], tiers=(), tier_of_job=[])).dtype == np.bool_
