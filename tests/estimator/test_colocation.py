import numpy as np
import pytest

from benchmarks.nearest import lent, nearest_reference
from gavel.errors import InvalidRequest
from gavel.estimator.colocation import Profiles, ReferenceProfiles, complete
from gavel.types import FloatArray

TYPES = 3


def world(kinds: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Rates alone (n, m) and normalised beside each other (m, n, n): each kind presses and suffers in its own way."""
    random = np.random.default_rng(seed)
    pressure, patience = random.uniform(0.1, 1.0, (2, TYPES, kinds))
    colocated = 1 / (1 + pressure[:, None, :] * patience[:, :, None])
    return np.exp(random.normal(2, 1, (kinds, TYPES))), colocated


def seen(
    alone: FloatArray, colocated: FloatArray, reference_profiles: int, share: float, seed: int = 0
) -> tuple[ReferenceProfiles, Profiles]:
    """The first kinds are references; each kind was tried beside a random share of them, with 5 % noise."""
    random = np.random.default_rng(seed)
    noise = lambda rates: rates * np.exp(0.05 * random.standard_normal(rates.shape))  # noqa: E731
    hidden = random.random((len(alone), TYPES, reference_profiles)) >= share
    own = np.where(hidden, np.nan, noise(np.transpose(colocated[:, :, :reference_profiles], (1, 0, 2))))
    other = np.where(hidden, np.nan, noise(np.transpose(colocated[:, :reference_profiles, :], (2, 0, 1))))
    table = ReferenceProfiles(
        alone=noise(alone[:reference_profiles]), colocated=noise(colocated[:, :reference_profiles, :reference_profiles])
    )
    return table, Profiles(alone=noise(alone), own=own, other=other)


def test_few_pairs_complete_all_better_than_the_nearest_reference() -> None:
    alone, colocated = world(24)
    table, profiles = seen(alone, colocated, 14, 0.2)
    ours = np.abs(complete(table, profiles).rate - colocated)
    theirs = np.abs(lent(table, nearest_reference(table, profiles)) - colocated)
    assert ours.mean() < 0.06 and ours.mean() < 0.8 * theirs.mean()


def test_a_reference_is_recognised() -> None:
    alone, colocated = world(20)
    completed = complete(*seen(alone, colocated, 14, 0.3))
    assert (completed.weights[:14].argmax(axis=1) == np.arange(14)).mean() > 0.9
    assert completed.novelty[:14].mean() < 0.1 and completed.novelty[14:].mean() > 0.9


def test_rates_are_rates_and_doubts_are_positive() -> None:
    completed = complete(*seen(*world(12), 6, 0.1))
    assert ((completed.rate >= 0) & (completed.rate <= 1)).all() and (completed.deviation > 0).all()
    assert completed.rate.shape == completed.deviation.shape == (TYPES, 12, 12)


def test_nothing_profiled_leaves_the_doubt_largest() -> None:
    alone, colocated = world(16)
    table, profiles = seen(alone, colocated, 10, 0.4)
    blank = Profiles(alone=profiles.alone, own=np.full_like(profiles.own, np.nan), other=profiles.other * np.nan)
    profiled, unknown = complete(table, profiles), complete(table, blank)
    assert profiled.deviation[:, 10:, 10:].mean() < unknown.deviation[:, 10:, 10:].mean()


def test_the_same_profiles_give_the_same_answer() -> None:
    one, two = (complete(*seen(*world(12), 6, 0.3)) for _ in range(2))
    assert (one.rate == two.rate).all() and (one.deviation == two.deviation).all()


@pytest.mark.parametrize("field", ["own", "alone"])
def test_arrays_that_do_not_fit_are_refused(field: str) -> None:
    table, profiles = seen(*world(8), 4, 0.5)
    arrays = {"alone": profiles.alone, "own": profiles.own, "other": profiles.other}
    with pytest.raises(InvalidRequest, match=field):
        complete(table, Profiles(**{**arrays, field: arrays[field][:, :2]}))


def test_a_rate_alone_of_zero_is_refused() -> None:
    table, profiles = seen(*world(8), 4, 0.5)
    with pytest.raises(InvalidRequest, match="above 0"):
        complete(table, Profiles(alone=profiles.alone * 0, own=profiles.own, other=profiles.other))
