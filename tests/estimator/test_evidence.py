import math

import numpy as np
import pytest

from gavel.estimator.evidence import Evidence, first, updated


def after(rates: list[float], seconds: float = 30.0) -> Evidence:
    evidence = first(math.log(rates[0]), seconds, is_representative=True)
    for rate in rates[1:]:
        evidence = updated(evidence, math.log(rate), seconds)
    return evidence


def noisy(rate: float, count: int, seed: int = 0, noise: float = 0.05) -> list[float]:
    return list(rate * np.exp(noise * np.random.default_rng(seed).standard_normal(count)))


def test_a_change_of_the_rate_is_followed_within_five_reports() -> None:
    for seed in range(50):
        for factor in (0.4, 0.7, 1.5, 3.0):
            reports = noisy(100, 20, seed) + noisy(100 * factor, 5, seed + 1000)
            assert after(reports).published == pytest.approx(100 * factor, rel=0.12), (seed, factor)


def test_a_straggler_or_a_restart_moves_little() -> None:
    steady = after(noisy(100, 20))
    for outlier in (1.0, 20.0, 400.0):
        assert updated(steady, math.log(outlier), 30.0).published == pytest.approx(steady.published, rel=0.02)


def test_outliers_on_both_sides_are_no_change() -> None:
    evidence = after(noisy(100, 20))
    for outlier in (50.0, 200.0) * 6:
        evidence = updated(evidence, math.log(outlier), 30.0)
    assert evidence.published == pytest.approx(100, rel=0.1)


def test_impossible_progress_is_counted_and_not_believed() -> None:
    steady = after(noisy(100, 5))
    evidence = steady
    for _ in range(10):
        evidence = updated(evidence, math.log(2100), 30.0)
    assert (evidence.refused, evidence.published, evidence.count) == (10, steady.published, 5)


def test_a_single_slow_first_report_bars_nobody() -> None:
    assert after([1.0, *noisy(100, 5)]).published == pytest.approx(100, rel=0.1)


def test_the_interval_holds_the_truth_nine_times_in_ten() -> None:
    for count in (1, 3, 10):
        held = [abs(math.log(after(noisy(1.0, count, seed)).published)) <= 1.645 * after(noisy(1.0, count, seed)).error
                for seed in range(400)]  # fmt: skip
        assert 0.85 <= np.mean(held) <= 0.97, count


def test_noisy_jobs_have_wide_intervals() -> None:
    assert after(noisy(100, 30, noise=0.3)).error > 2 * after(noisy(100, 30, noise=0.05)).error


def test_short_reports_weigh_less() -> None:
    assert after([100.0], seconds=0.1).error > 1.5 * after([100.0], seconds=30).error
