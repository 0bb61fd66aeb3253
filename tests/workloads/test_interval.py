"""How often checkpoints for safety are written."""

from math import expm1

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel_runtime._interval import LEAST_S, MOST_S, checkpoint_interval_s
from tests.workloads.gang import Gang, counting


def expected_s(interval_s: float, cost_s: float, time_to_loss_s: float) -> float:
    """The mean time for a second of training under Poisson losses (Daly 2006, eq. 20, without the restart's factor)."""
    return time_to_loss_s * expm1((interval_s + cost_s) / time_to_loss_s) / interval_s


@given(cost_s=st.floats(1e-3, 3e3), time_to_loss_s=st.floats(60.0, 1e8))
def test_no_other_interval_is_much_better(cost_s: float, time_to_loss_s: float) -> None:
    chosen = expected_s(checkpoint_interval_s(cost_s, time_to_loss_s), cost_s, time_to_loss_s)
    others = [
        expected_s(each, cost_s, time_to_loss_s)
        for each in np.geomspace(LEAST_S, MOST_S, 400)
        if (each + cost_s) / time_to_loss_s < 600  # beyond that a float overflows
    ]
    if cost_s < time_to_loss_s / 2:  # beyond that nothing helps much
        assert chosen <= 1.01 * min(others)


@pytest.mark.parametrize(("cost_s", "time_to_loss_s"), [(0.0, 1e6), (1e-6, 60.0), (1e4, 60.0), (60.0, 1e9)])
def test_the_interval_stays_within_its_bounds(cost_s: float, time_to_loss_s: float) -> None:
    assert LEAST_S <= checkpoint_interval_s(cost_s, time_to_loss_s) <= MOST_S


def test_checkpoints_that_cost_more_and_losses_that_are_rarer_make_it_longer() -> None:
    assert checkpoint_interval_s(1.0, 1e5) < checkpoint_interval_s(2.0, 1e5) < checkpoint_interval_s(2.0, 1e6)


def test_a_checkpoint_says_its_size_and_when_the_next_one_is_due(gang: Gang) -> None:
    gang.start(counting(), total=20, GAVEL_TIME_TO_LOSS_S="60").finish()
    saved = gang.reports()[-2]
    assert saved["checkpoint_bytes"] > 0
    assert LEAST_S <= saved["checkpoint_every_s"] < 60, "a cheap checkpoint of a gang that is lost each minute"
    cost_s, until_lost_s = saved["checkpoint_cost_s"], saved["time_to_loss_s"]
    assert (cost_s > 0, until_lost_s) == (True, 60.0)
    assert saved["checkpoint_every_s"] == pytest.approx(checkpoint_interval_s(cost_s, until_lost_s), abs=1e-3)


def test_what_the_program_states_goes_before(gang: Gang) -> None:
    gang.start(counting().replace("total=None", "checkpoint_every_s=0.1"), total=20).finish()
    assert {each["checkpoint_every_s"] for each in gang.reports() if each["kind"] == "checkpoint"} == {0.1}
    assert not any("time_to_loss_s" in each for each in gang.reports()), "nothing follows from it"
