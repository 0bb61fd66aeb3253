import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.estimator.observed import ObservedThroughputs
from gavel.types import Measurement
from tests.builders import a_spec


def a_measurement(sequence: int = 1, *, steps: int = 100, seconds: float = 1.0, **over: object) -> Measurement:
    fields = {
        "job_id": "j",
        "token": 1,
        "sequence": sequence,
        "user": "ann",
        "kind": "mlp",
        "scale_factor": 1,
        "accelerator_type": "fast",
        "steps": steps,
        "seconds": seconds,
    }
    return Measurement(**(fields | over))


def rate(estimator: ObservedThroughputs, on: str = "fast", **spec: object) -> tuple[float, str]:
    (estimate,) = estimator.estimate(a_spec(**spec), [on])
    return estimate.steps_per_s, estimate.source


def test_a_kind_nobody_knows_is_the_same_on_every_type() -> None:
    assert [rate(ObservedThroughputs(), on) for on in ("fast", "slow")] == [(1.0, "unknown")] * 2


def test_a_stated_throughput_counts_until_the_first_measurement() -> None:
    stated = {"throughput_steps_per_s": {"fast": 40.0}}
    assert rate(ObservedThroughputs(), **stated) == (40.0, "stated")
    learned = ObservedThroughputs().learn([a_measurement()])
    assert rate(learned, **stated) == (pytest.approx(100.0, rel=0.01), "measured")


def test_an_unmeasured_type_is_inferred_from_the_measured_one() -> None:
    learned = ObservedThroughputs().learn([a_measurement()])
    assert rate(learned, "slow") == (pytest.approx(100.0, rel=0.01), "inferred")


def test_a_gang_of_two_is_another_key() -> None:
    learned = ObservedThroughputs().learn([a_measurement()])
    assert rate(learned, scale_factor=2) == (1.0, "unknown")


def test_a_measurement_heard_twice_or_late_changes_nothing() -> None:
    once = ObservedThroughputs().learn([a_measurement(1), a_measurement(2, steps=120)])
    assert once.learn([a_measurement(1), a_measurement(2, steps=900)]) == once


def test_a_rate_flattered_by_an_idle_core_is_halved_and_gives_way_to_a_representative_one() -> None:
    guess = ObservedThroughputs(core_sharing=2).learn([a_measurement(is_representative=False)])
    assert rate(guess) == (pytest.approx(50.0, rel=0.01), "inferred")
    sure = guess.learn([a_measurement(2, steps=60)])
    assert rate(sure) == (pytest.approx(60.0, rel=0.01), "measured")
    assert sure.learn([a_measurement(3, is_representative=False)]).table() == sure.table()


def test_noise_within_a_percent_does_not_move_what_policies_see() -> None:
    estimator = ObservedThroughputs().learn([a_measurement(1, steps=1000)])
    before = rate(estimator)
    noisy = [a_measurement(i, steps=1000 + (-1) ** i * 3) for i in range(2, 30)]
    assert rate(estimator.learn(noisy)) == before


def test_the_estimate_follows_a_change() -> None:
    estimator = ObservedThroughputs().learn([a_measurement(i) for i in range(1, 10)])
    slower = estimator.learn([a_measurement(i, steps=50, seconds=5.0) for i in range(10, 40)])
    assert rate(slower)[0] == pytest.approx(10.0, rel=0.1)


def test_the_table_survives_a_restart() -> None:
    learned = ObservedThroughputs().learn([a_measurement()])
    assert rate(ObservedThroughputs.from_table(learned.table())) == rate(learned)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 1e5)), max_size=30))
def test_estimates_stay_finite_and_positive(rows: list[tuple[int, float]]) -> None:
    learned = ObservedThroughputs().learn([a_measurement(i + 1, steps=n, seconds=s) for i, (n, s) in enumerate(rows)])
    assert all(math.isfinite(row.steps_per_s) and row.steps_per_s > 0 for row in learned.table())
