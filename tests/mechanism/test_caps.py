"""Caps of tiers on answers of every form."""

from dataclasses import replace

import numpy as np
import pytest

from gavel.mechanism.planning.caps import capped
from gavel.types import Allocation, Certificate, Tier
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
