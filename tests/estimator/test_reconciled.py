import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gavel.estimator.conformance import a_measurement, answer, learned
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.types import Measurement
from tests.builders import a_spec

EXAMPLES = 400 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 25
TYPES = ("cpu", "fast", "slow")


def reports(kind: str, rates: dict[str, float], count: int = 5, **over: Any) -> Iterable[Measurement]:
    """Reports of one job of the kind on each type."""
    for name, rate in rates.items():
        for sequence in range(1, count + 1):
            yield a_measurement(
                sequence, rate_steps_per_s=rate, kind=kind, accelerator_type=name, job_id=f"{kind}/{name}", **over
            )


def knowing(*kinds: tuple[str, dict[str, float]]) -> ReconciledThroughputs:
    return ReconciledThroughputs().learn([each for kind, rates in kinds for each in reports(kind, rates)])


def test_a_type_that_is_alike_for_all_kinds_is_completed() -> None:
    before = knowing(*((f"{name}-b64", {"fast": 10.0 * n, "slow": 2.0 * n}) for n, name in enumerate("abcdef", 1)))
    seen = before.learn(list(reports("new-b1", {"fast": 50.0})))
    estimate = answer(seen, "slow", kind="new-b1")
    assert estimate.steps_per_s == pytest.approx(10.0, rel=0.1)
    assert estimate.source in ("inferred", "completed") and estimate.relative_error < 0.4


def test_a_kind_resembles_its_family_more_than_others() -> None:
    before = knowing(
        ("gpu-b32", {"fast": 100.0, "slow": 10.0}),
        ("gpu-b128", {"fast": 40.0, "slow": 4.0}),
        ("host-b32", {"fast": 30.0, "slow": 30.0}),
        ("host-b128", {"fast": 9.0, "slow": 9.0}),
    )
    seen = before.learn([*reports("gpu-b64", {"fast": 60.0}), *reports("host-b64", {"fast": 60.0})])
    assert answer(seen, "slow", kind="gpu-b64").steps_per_s == pytest.approx(6.0, rel=0.2)
    assert answer(seen, "slow", kind="host-b64").steps_per_s == pytest.approx(60.0, rel=0.2)


def test_a_kind_that_is_slower_than_its_family_promises_on_one_type_is_so_on_that_type() -> None:
    """A batch of 64 at half the speed that those of 16, 32, 128 and 256 promise: `fast` is not halved with `slow`."""
    family = [(f"net-b{size}", {"fast": 6400 / size, "slow": 640 / size}) for size in (16, 32, 128, 256)]
    others = [("host-b1", {"fast": 10.0, "slow": 10.0}), ("steep-b1", {"fast": 100.0, "slow": 2.0})]
    seen = knowing(*family, *others).learn(list(reports("net-b64", {"slow": 5.0})))
    assert answer(seen, "fast", kind="net-b64").steps_per_s > 75


def factor_of_the_rate(levels: Iterable[float]) -> float:
    """Estimate over truth: kinds `run-1`, `run-2`, .. at these levels, of which the last was measured on one type."""
    rates = [(f"run-{n}", {"fast": 1e4 * math.exp(level)}) for n, level in enumerate(levels, 1)]
    whole = [(kind, {**fast, "slow": fast["fast"] / 10}) for kind, fast in rates[:-1]]
    seen = knowing(*whole).learn(list(reports(*rates[-1])))
    return answer(seen, "slow", kind=rates[-1][0]).steps_per_s / (rates[-1][1]["fast"] / 10)


@settings(max_examples=EXAMPLES)
@given(levels=st.lists(st.floats(-4.0, 4.0), min_size=2, max_size=7))
@example(levels=[1.0, 1.0, 0.0])  # hardly far enough from the others to tell that it is none of them
@example(levels=[1.2, 1.2, 1.2, 0.0])
@example(levels=[-0.14, -1.84, -3.88])
@example(levels=[-2.0, 1.0, 4.0, 0.0, -4.0, -3.0])
def test_names_whose_numbers_tell_no_size_leave_the_rate_free(levels: list[float]) -> None:
    """Only how the types compare is common to such kinds; a rate from the others would be up to e^8 times too high."""
    assert factor_of_the_rate(levels) == pytest.approx(1.0, rel=0.6)


def test_names_whose_numbers_tell_no_size_hardly_ever_mislead() -> None:
    draw = np.random.default_rng(5)
    factors = [factor_of_the_rate(draw.uniform(-4.0, 4.0, draw.integers(2, 8))) for _ in range(10 * EXAMPLES)]
    errors = np.abs(np.log(factors))
    assert np.median(errors) <= 0.05 and np.quantile(errors, 0.95) <= 0.35


def test_a_stranger_of_a_known_family_has_its_relatives_speeds() -> None:
    before = knowing(("gpu-b32", {"fast": 100.0, "slow": 10.0}), ("gpu-b128", {"fast": 40.0, "slow": 4.0}))
    fast, slow = before.estimate(a_spec(kind="gpu-b64"), ["fast", "slow"])
    assert fast.steps_per_s / slow.steps_per_s == pytest.approx(10, rel=0.2) and fast.source == "inferred"


def test_published_peaks_say_which_of_two_new_types_is_faster() -> None:
    k80, h100 = ReconciledThroughputs().estimate(a_spec(), ["k80", "h100"])
    assert h100.steps_per_s > 5 * k80.steps_per_s and k80.relative_error > 0.4


def test_gangs_scale_as_gangs_of_other_kinds_did() -> None:
    rates = {1: 10.0, 2: 18.0, 4: 30.0}
    before = ReconciledThroughputs().learn(
        [
            a_measurement(n, kind=kind, scale_factor=size, rate_steps_per_s=rate, job_id=f"{kind}{size}")
            for kind in ("a-b1", "b-b1", "c-b1", "d-b1")
            for size, rate in rates.items()
            for n in (1, 2, 3)
        ]
    )
    seen = before.learn(list(reports("new-b1", {"fast": 100.0})))
    assert answer(seen, kind="new-b1", scale_factor=2).steps_per_s == pytest.approx(180, rel=0.15)
    assert answer(seen, kind="new-b1", scale_factor=4).steps_per_s == pytest.approx(300, rel=0.2)


def test_a_statement_that_proved_wrong_on_one_type_is_corrected_on_the_others() -> None:
    """Three times too fast on the one type measured: most of that is taken off the other too."""
    seen = learned(ReconciledThroughputs(), [100.0] * 5)
    stated = {"throughput_steps_per_s": {"fast": 300.0, "slow": 60.0}}
    assert answer(seen, "slow", **stated).steps_per_s == pytest.approx(20.0, rel=0.5)


def test_a_user_whose_statements_prove_wrong_loses_weight() -> None:
    wrong = [
        a_measurement(n, user="bob", job_id=kind, kind=kind, stated_steps_per_s=1000.0)
        for kind in ("a-b1", "b-b1", "c-b1")
        for n in range(1, 6)
    ]
    before = ReconciledThroughputs().learn(wrong)
    assert before.reputations()["bob"].typical_factor == pytest.approx(10, rel=0.05)
    assert before.reputations()["bob"].is_off
    stated = {"throughput_steps_per_s": {"fast": 5.0}}
    assert answer(before, kind="n-b1", user="ann", **stated).relative_error < 0.4
    assert answer(before, kind="n-b1", user="bob", **stated).relative_error > 0.8


def test_an_honest_user_keeps_its_weight() -> None:
    before = ReconciledThroughputs().learn([a_measurement(n, stated_steps_per_s=95.0) for n in range(1, 6)])
    assert not before.reputations()["ann"].is_off


def test_rates_beside_a_partner_or_spread_are_kept_apart() -> None:
    alone = learned(ReconciledThroughputs(), [100.0])
    interference = alone.learn(
        [
            a_measurement(2, rate_steps_per_s=30.0, partner="cnn"),
            a_measurement(3, rate_steps_per_s=20.0, placement="spread"),
        ]
    )
    assert answer(interference).steps_per_s == pytest.approx(100.0, rel=0.01)
    rows = {(row.partner, row.placement): row.steps_per_s for row in interference.table()}
    assert rows["cnn", "consolidated"] == pytest.approx(30.0, rel=0.01)
    assert rows[None, "spread"] == pytest.approx(20.0, rel=0.01)


def test_the_table_survives_a_restart_with_reputations_and_pairs() -> None:
    before = learned(ReconciledThroughputs(), [100.0] * 4, stated_steps_per_s=500.0)
    before = before.learn([a_measurement(9, partner="cnn")])
    after = ReconciledThroughputs.from_table(before.table())
    assert [row.steps_per_s for row in after.table()] == [row.steps_per_s for row in before.table()]
    assert after.reputations() == before.reputations() and answer(after).steps_per_s == answer(before).steps_per_s


def test_references_inform_and_are_not_in_the_table() -> None:
    measured = knowing(*((f"{name}-b64", {"fast": 10.0, "slow": 2.0}) for name in "abcdef")).table()
    fresh = ReconciledThroughputs.from_table((), reference_profiles=measured)
    assert fresh.table() == ()
    seen = fresh.learn(list(reports("new-b1", {"fast": 50.0})))
    assert answer(seen, "slow", kind="new-b1").steps_per_s == pytest.approx(10.0, rel=0.1)


def test_the_version_grows_only_when_a_rate_may_have_moved() -> None:
    steady = learned(ReconciledThroughputs(), [100.0] * 6)
    same = steady.learn([a_measurement(7, rate_steps_per_s=100.1)])
    assert same.version == steady.version
    assert steady.learn([a_measurement(7, kind="cnn")]).version > steady.version


def test_a_well_completed_type_is_called_completed() -> None:
    before = knowing(
        *(
            (f"{name}-b{size}", {"fast": 10.0 * n, "slow": 2.0 * n})
            for n, name in enumerate("abcdef", 1)
            for size in (8, 9, 12, 16)
        )
    )
    seen = before.learn(list(reports("a-b10", {"fast": 50.0})))
    assert answer(seen, "slow", kind="a-b10").source == "completed"


@settings(max_examples=EXAMPLES)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a-b1", "a-b2", "c"]),
            st.sampled_from([1, 2, 8]),
            st.sampled_from(TYPES),
            st.integers(0, 10**7),
            st.floats(0.0, 1e5),
            st.booleans(),
            st.sampled_from([None, 0.0, 1.0, 1e12, math.nan]),
        ),
        max_size=25,
    )
)
def test_whatever_is_reported_estimates_stay_finite_and_positive(rows: list[tuple[Any, ...]]) -> None:
    estimator = ReconciledThroughputs.from_table((), core_sharing=2)
    for number, (kind, size, name, steps, seconds, full, stated) in enumerate(rows, 1):
        estimator = estimator.learn(
            [
                a_measurement(
                    number,
                    kind=kind,
                    scale_factor=size,
                    accelerator_type=name,
                    steps=steps,
                    seconds=seconds,
                    is_representative=full,
                    stated_steps_per_s=stated,
                )
            ]
        )
    for kind in ("a-b1", "a-b2", "c", "d"):
        for size in (1, 4):
            estimates = estimator.estimate(a_spec(kind=kind, scale_factor=size), TYPES)
            assert all(np.isfinite(each.steps_per_s) and each.steps_per_s > 0 for each in estimates)
            assert all(np.isfinite(each.relative_error) for each in estimates)
    again = ReconciledThroughputs.from_table(estimator.table())
    before, after = ([row.steps_per_s for row in each.table() if row.measurements] for each in (estimator, again))
    assert after == before


def test_a_statement_that_all_else_agrees_with_stands_as_it_was_made() -> None:
    before = knowing(("other-b1", {"fast": 50.0, "slow": 10.0})).learn(list(reports("mlp-b256", {"fast": 100.0})))
    stated = {"throughput_steps_per_s": {"fast": 100.0, "slow": 20.0}}
    assert (answer(before, "slow", **stated).steps_per_s, answer(before, "slow", **stated).source) == (20.0, "stated")


def test_a_rate_measured_beside_an_idle_sibling_counts_for_the_share_that_a_busy_one_leaves() -> None:
    estimator = ReconciledThroughputs.from_table((), core_sharing=2)
    guess = estimator.learn([a_measurement(rate_steps_per_s=100.0, is_representative=False)])
    assert answer(guess).steps_per_s == pytest.approx(50.0, rel=0.02)
    assert not answer(guess).is_measured
