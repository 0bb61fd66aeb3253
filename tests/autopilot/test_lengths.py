"""True lengths are learned from jobs that have ended and drawn for those that run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.autopilot.lengths import Length, LengthModel, learned
from tests.simulator.test_simulation import FULL

OF = ("mlp", "ann")


def jobs(count: int, *, bias: float, sigma: float, seed: int = 1) -> list[Length]:
    """Jobs whose statements are `bias` and noise of `sigma` off, in logarithms."""
    random = np.random.default_rng(seed)
    actual = np.exp(random.normal(8.0, 1.0, count))
    stated = actual * np.exp(random.normal(bias, sigma, count))
    return [Length(of=OF, stated_s=float(s), actual_s=float(a)) for s, a in zip(stated, actual, strict=True)]


def test_without_experience_a_statement_is_believed() -> None:
    assert LengthModel().draw_s(OF, 500.0, 0.0, 0.3) == pytest.approx(500.0)


def test_exact_statements_are_believed_exactly() -> None:
    model = learned([Length(of=OF, stated_s=each, actual_s=each) for each in (10.0, 300.0, 70.0)])
    assert model.draw_s(OF, 5000.0, 100.0, 0.9) == pytest.approx(5000.0)


def test_a_job_that_states_nothing_is_as_long_as_others_were() -> None:
    model = learned(jobs(400, bias=0.0, sigma=0.5))
    median_s = model.draw_s(("cnn", "bob"), None, 0.0, 0.5)
    assert np.log(median_s) == pytest.approx(8.0, abs=0.15)


def test_the_posterior_is_unbiased_and_as_wide_as_the_errors_are() -> None:
    """Of many jobs, the quantiles at which the true lengths lie are uniform: a tenth is below the 10 % quantile."""
    model = learned(jobs(2000, bias=0.7, sigma=0.9))
    later = jobs(2000, bias=0.7, sigma=0.9, seed=2)
    for quantile in (0.1, 0.5, 0.9):
        below = np.mean([each.actual_s < model.draw_s(OF, each.stated_s, 0.0, quantile) for each in later])
        assert below == pytest.approx(quantile, abs=0.04)


def test_a_class_is_drawn_towards_all_jobs_until_it_has_some_of_its_own() -> None:
    others = [Length(of=("cnn", "bob"), stated_s=100.0, actual_s=100.0)] * 40
    one = [Length(of=OF, stated_s=800.0, actual_s=100.0)]
    few, many = learned(others + one).error(OF)[0], learned(others + one * 40).error(OF)[0]
    assert 0 < few < many <= np.log(8.0)


@settings(max_examples=500 if FULL else 60)
@given(
    stated_s=st.none() | st.floats(1, 1e6),
    attained_s=st.floats(0, 1e7),
    uniform=st.floats(0.001, 0.999),
    higher=st.floats(0, 1),
    sigma=st.floats(0, 2),
)
def test_a_drawn_length_is_beyond_what_the_job_attained_and_grows_with_the_quantile(
    stated_s: float | None, attained_s: float, uniform: float, higher: float, sigma: float
) -> None:
    model = learned(jobs(30, bias=0.2, sigma=sigma))
    low = model.draw_s(OF, stated_s, attained_s, uniform)
    high = model.draw_s(OF, stated_s, attained_s, uniform + higher * (0.999 - uniform))
    assert attained_s < low <= high * (1 + 1e-12) and np.isfinite(high)
