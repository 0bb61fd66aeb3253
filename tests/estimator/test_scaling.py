import numpy as np
import pytest

from gavel.estimator.scaling import gain, weigh
from gavel.types import FloatArray

SIZES = np.array([1, 2, 4, 8])


def rates(growth: float, share: float) -> FloatArray:
    """log(steps/s) of one kind on one type at every size, (1, 1, S)."""
    return (growth * np.log(SIZES) - np.log1p(share * 2 * (SIZES - 1) / SIZES)).reshape(1, 1, -1)


@pytest.mark.parametrize(("growth", "share"), [(1.0, 0.05), (1.0, 0.8), (0.0, 0.1), (0.0, 1.0)])
def test_two_sizes_say_how_the_others_scale(growth: float, share: float) -> None:
    truth = rates(growth, share)
    seen = truth.copy()
    seen[..., 2:] = np.nan
    mean, variance = gain(weigh(seen, np.full_like(seen, 1e-4), SIZES, np.zeros(len(seen), dtype=bool)), 2, SIZES)
    errors = np.abs(mean[0] - (truth[0, 0] - truth[0, 0, 1]))
    assert errors[2] < 0.35 and errors[3] < 0.7
    assert (errors <= 2.5 * np.sqrt(variance[0]) + 1e-9).all()


def test_one_size_leaves_the_scaling_in_doubt() -> None:
    seen = rates(1.0, 0.1)
    seen[..., 1:] = np.nan
    _, variance = gain(weigh(seen, np.full_like(seen, 1e-4), SIZES, np.zeros(len(seen), dtype=bool)), 1, SIZES)
    assert variance[0, 0] == 0 and variance[0, 1] > 0.1


def test_other_kinds_say_where_a_new_one_starts() -> None:
    alike = np.repeat(rates(1.0, 0.3), 6, axis=0)
    alike[5, :, 1:] = np.nan
    mean, _ = gain(weigh(alike, np.full_like(alike, 1e-4), SIZES, np.zeros(len(alike), dtype=bool)), 1, SIZES)
    assert mean[5] == pytest.approx(rates(1.0, 0.3)[0, 0], abs=0.25)


def test_a_kind_that_divides_its_batch_is_expected_to_scale_until_it_was_seen() -> None:
    seen = np.repeat(rates(1.0, 0.1), 2, axis=0)
    seen[..., 1:] = np.nan
    mean, _ = gain(weigh(seen, np.full_like(seen, 1e-4), SIZES, np.array([True, False])), 1, SIZES)
    assert mean[0, 1] > 0.4 and mean[1, 1] < 0.2
    measured = np.repeat(rates(0.0, 1.0), 2, axis=0)  # it does not scale at all
    measured[..., 2:] = np.nan
    mean, _ = gain(weigh(measured, np.full_like(measured, 1e-4), SIZES, np.array([True, False])), 1, SIZES)
    assert mean[0, 1] < 0
