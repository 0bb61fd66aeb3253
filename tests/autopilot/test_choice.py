"""The small parts of a decision: racing, the switch rule, residuals, Hedge, drifts, the kill switch."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gavel.autopilot import hedge
from gavel.autopilot.drift import Drift
from gavel.autopilot.racing import gains, standard_error, surviving
from gavel.autopilot.residual import Residual
from gavel.autopilot.safety import EPOCHS, EpochCost, must_fall_back
from gavel.autopilot.switch_rule import SwitchRule
from gavel.types import FloatArray
from tests.simulator.test_simulation import FULL

EXAMPLES = 500 if FULL else 50
tables = st.tuples(st.integers(1, 6), st.integers(2, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0, 100))
)


@settings(max_examples=EXAMPLES)
@given(costs=tables, incumbent=st.integers(0, 5))
def test_the_incumbent_and_the_best_stay_in_the_race(costs: FloatArray, incumbent: int) -> None:
    incumbent %= len(costs)
    stays = surviving(costs, incumbent)
    best = gains(costs, incumbent).mean(axis=1).argmax()
    assert stays[incumbent] and stays[best]


def test_what_is_certainly_worse_leaves_the_race() -> None:
    costs = np.array([[10.0, 20.0], [9.0, 19.1], [30.0, 41.0]])
    assert surviving(costs, 0).tolist() == [True, True, False]


def test_a_single_future_is_no_evidence() -> None:
    assert standard_error(np.array([3.0])) == np.inf
    assert not SwitchRule().is_clear(np.array([3.0]), 10.0)


@settings(max_examples=EXAMPLES)
@given(gain=arrays(np.float64, 4, elements=st.floats(-50, 50)), cost=st.floats(1, 100), more=st.floats(0, 10))
def test_a_clear_gain_stays_clear_if_it_is_larger_and_the_rule_less_strict(
    gain: FloatArray, cost: float, more: float
) -> None:
    strict, mild = SwitchRule(margin=0.05, errors=2.0), SwitchRule(margin=0.01, errors=1.0)
    if strict.is_clear(gain, cost):
        assert mild.is_clear(gain, cost) and strict.is_clear(gain + more, cost)
        assert gain.mean() > 0


def test_the_same_noise_in_both_compositions_does_not_hide_a_gain() -> None:
    load = np.array([10.0, 200.0, 55.0, 400.0])
    assert SwitchRule().is_clear(gains(np.array([load, 0.9 * load]), 0)[1], float(load.mean()))
    assert not SwitchRule().is_clear(gains(np.array([load, 0.99 * load]), 0)[1], float(load.mean()))


@pytest.mark.parametrize(
    ("switched_at_s", "refusal"),
    [
        ((), ""),
        ((950.0,), "the last switch was 50 s ago, and a switch stays 100 s"),
        ((100.0, 300.0), ""),
        ((100.0, 300.0, 500.0), "there were 3 switches within 12 epochs"),
        ((-200.0, 300.0, 500.0), ""),
    ],
)
def test_switches_are_not_too_near_nor_too_many(switched_at_s: tuple[float, ...], refusal: str) -> None:
    assert SwitchRule(dwell_s=100.0, most=3).refusal(switched_at_s, 1000.0, epoch_s=100.0) == refusal


PHI = np.array([1.0, 2.0, 0.5])


def test_without_experience_a_prediction_is_believed() -> None:
    assert Residual.of(3).correction(PHI) == 1.0


def test_a_steady_error_is_learned_and_a_new_one_replaces_it() -> None:
    residual = Residual.of(3)
    for _ in range(100):
        residual = residual.learned(PHI, 0.15)
    assert residual.correction(PHI) == pytest.approx(np.exp(0.15), rel=0.03)
    for _ in range(200):
        residual = residual.learned(PHI, -0.2)
    assert residual.correction(PHI) == pytest.approx(np.exp(-0.2), rel=0.05)


def test_what_one_epoch_taught_changes_no_prediction_and_what_many_did_is_believed() -> None:
    once, often = Residual.of(3).learned(PHI, 0.1), Residual.of(3)
    for _ in range(20):
        often = often.learned(PHI, 0.1)
    assert once.correction(PHI) == 1.0 and 1.05 < often.correction(PHI) < np.exp(0.1)


@settings(max_examples=EXAMPLES)
@given(
    errors=st.lists(
        st.tuples(arrays(np.float64, 3, elements=st.floats(-10, 10)), st.floats(-20, 20)), min_size=1, max_size=30
    ),
    part=st.floats(0, 1),
)
def test_a_correction_is_bounded_and_forgetting_leads_back_to_none(
    errors: list[tuple[FloatArray, float]], part: float
) -> None:
    residual = Residual.of(3)
    for phi, error in errors:
        residual = residual.learned(phi, error)
    assert 0.8 - 1e-9 <= residual.forgotten(part).correction(PHI) <= 1.25 + 1e-9
    assert residual.forgotten(0.0).correction(PHI) == 1.0


NAMES = ("a", "b", "c")


@settings(max_examples=EXAMPLES)
@given(epochs=st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, st.floats(0, 1e6))), max_size=30))
def test_hedge_weights_are_a_distribution_in_which_everything_can_come_back(epochs: list[dict[str, float]]) -> None:
    weights = hedge.uniform(NAMES)
    for costs in epochs:
        losses = hedge.losses(costs)
        assert all(0 <= loss <= 1 for loss in losses.values())
        weights = hedge.updated(weights, losses)
        assert sum(weights.values()) == pytest.approx(1.0)
        assert min(weights.values()) >= hedge.SHARE / len(NAMES) * (1 - 1e-9)


def test_the_best_composition_gets_the_weight_and_loses_it_again_when_the_workload_changes() -> None:
    weights = hedge.uniform(NAMES)
    for costs in [{"a": 1.0, "b": 2.0, "c": 3.0}] * 10:
        weights = hedge.updated(weights, hedge.losses(costs))
    assert max(weights, key=lambda name: weights[name]) == "a" and weights["a"] > 0.9
    for costs in [{"a": 2.0, "b": 1.0, "c": 3.0}] * 4:
        weights = hedge.updated(weights, hedge.losses(costs))
    assert max(weights, key=lambda name: weights[name]) == "b"


def after(values: list[float]) -> list[Drift]:
    drift, seen = Drift(), list[Drift]()
    for value in values:
        seen.append(drift := drift.followed_by(value))
    return seen


def test_a_change_of_the_mean_is_noticed_either_way_and_noise_is_not() -> None:
    noise = (0.1 * np.sin(np.arange(60) * 2.3)).tolist()
    assert not any(each.is_alarm for each in after(noise))
    for change in (0.6, -0.6):
        alarms = [each.is_alarm for each in after(noise + [value + change for value in noise])]
        assert not any(alarms[:60]) and any(alarms[60:75])


@settings(max_examples=EXAMPLES)
@given(values=st.lists(st.floats(-5, 5), max_size=40))
def test_after_an_alarm_a_new_test_begins(values: list[float]) -> None:
    for before, now in pairwise(after(values)):
        assert (now.count == 1) == before.is_alarm or before.count == 0


@settings(max_examples=EXAMPLES)
@given(costs=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=8))
def test_the_kill_switch_falls_back_exactly_if_the_last_epochs_cost_a_tenth_more(
    costs: list[tuple[float, float]],
) -> None:
    epochs = [EpochCost(real=real, safe=safe) for real, safe in costs]
    last = costs[-EPOCHS:]
    expected = len(last) == EPOCHS and sum(real for real, _ in last) > 1.1 * sum(safe for _, safe in last)
    assert must_fall_back(epochs) == expected
