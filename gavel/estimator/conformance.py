"""Checks of what every `gavel.ports.ThroughputEstimator` must do, for any implementation.

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_my_estimator_conforms(check):
    check(MyEstimator())  # a fresh one that has learned nothing
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gavel.ports import ThroughputEstimate, ThroughputEstimator, ThroughputMatrix, ThroughputSource
from gavel.types import Job, JobSpec, Measurement

TYPES = ("fast", "slow")
CLOSE = 0.02  # a rate is given on a grid of 1 %


def a_spec(**over: Any) -> JobSpec:
    """Return a job of kind `mlp-b256` on one worker, with these fields changed."""
    fields: dict[str, Any] = {
        "kind": "mlp-b256",
        "user": "ann",
        "tier": "gold",
        "argv": ("python", "train.py"),
        "total_steps": 100,
    }
    return JobSpec(**(fields | over))


def a_measurement(sequence: int = 1, *, rate_steps_per_s: float = 100.0, **over: Any) -> Measurement:
    """Return a report on ten seconds of a job of kind `mlp-b256` on type `fast`, with these fields changed."""
    fields: dict[str, Any] = {
        "job_id": "j",
        "generation": 1,
        "sequence": sequence,
        "user": "ann",
        "kind": "mlp-b256",
        "scale_factor": 1,
        "accelerator_type": "fast",
        "steps": round(10 * rate_steps_per_s),
        "seconds": 10.0,
    }
    return Measurement(**(fields | over))


def learned(estimator: ThroughputEstimator, rates: Sequence[float], **over: Any) -> ThroughputEstimator:
    """Return the estimator after reports of these rates (steps/s), numbered from 1."""
    return estimator.learn([a_measurement(i, rate_steps_per_s=rate, **over) for i, rate in enumerate(rates, 1)])


def answer(estimator: ThroughputEstimator, on: str = "fast", **spec: Any) -> ThroughputEstimate:
    """Return the estimate on one type."""
    (estimate,) = estimator.estimate(a_spec(**spec), [on])
    return estimate


# --- before anything is known -----------------------------------------------------------------------------------


def a_stranger_has_finite_positive_estimates(estimator: ThroughputEstimator) -> None:
    """Check that an unknown kind has one estimate for each type asked for, with an error above 0, and no row."""
    estimates = estimator.estimate(a_spec(kind="nobody/knows"), ["slow", "fast", "slow"])
    assert [each.accelerator_type for each in estimates] == ["slow", "fast", "slow"]
    assert all(math.isfinite(each.steps_per_s) and each.steps_per_s > 0 for each in estimates)
    assert all(each.relative_error > 0 and not each.is_measured for each in estimates)
    assert estimator.estimate(a_spec(), []) == () and estimator.table() == ()


def a_statement_counts_until_something_is_measured(estimator: ThroughputEstimator) -> None:
    """Check that a user claim is the estimate, and marked as stated, until the kind is measured."""
    stated: dict[str, Any] = {"throughput_steps_per_s": {"fast": 40.0}}
    assert (answer(estimator, **stated).steps_per_s, answer(estimator, **stated).source) == (
        40.0,
        ThroughputSource.STATED,
    )
    after = answer(learned(estimator, [100.0] * 3), **stated)
    assert abs(after.steps_per_s / 100 - 1) < CLOSE and after.is_measured


def an_absurd_statement_is_survived(estimator: ThroughputEstimator) -> None:
    """Check that estimates stay finite and positive after claims of zero, negative, infinite and NaN rates."""
    for absurd in (0.0, -1.0, math.inf, -math.inf, math.nan, 1e300):
        estimates = estimator.estimate(a_spec(throughput_steps_per_s={"fast": absurd}), TYPES)
        assert all(math.isfinite(each.steps_per_s) and each.steps_per_s > 0 for each in estimates), absurd


def many_specifications_are_answered_as_one_by_one(estimator: ThroughputEstimator) -> None:
    """Check that `matrix` has the numbers of `estimate`, for unknown, partly measured and claimed kinds."""
    after = learned(learned(estimator, [100.0] * 3), [300.0], kind="cnn", scale_factor=2, job_id="c")
    after = learned(after, [7.0], kind="cnn", accelerator_type="slow", is_representative=False, job_id="d")
    stated: tuple[dict[str, float], ...] = {}, {"slow": 5.0}
    specs = [
        a_spec(kind=kind, scale_factor=size, throughput_steps_per_s=rates)
        for kind in ("mlp-b256", "mlp-b64", "cnn", "nobody/knows")
        for size in (1, 2, 16)
        for rates in stated
    ]
    for each in (estimator, after):
        for types in (TYPES, ("slow", "new", "slow"), ()):
            estimates = each.matrix(specs, types)
            plain = ThroughputMatrix.of([each.estimate(spec, types) for spec in specs], types)
            assert estimates.steps_per_s.shape == (len(specs), len(types))
            assert (estimates.steps_per_s == plain.steps_per_s).all()
            assert np.allclose(estimates.relative_error, plain.relative_error, rtol=1e-12, atol=0)
            assert (estimates.is_worth_measuring == plain.is_worth_measuring).all()


# --- learning ---------------------------------------------------------------------------------------------------


def a_measurement_is_believed(estimator: ThroughputEstimator) -> None:
    """Check that a measurement counts for its kind, size and type alone, and leaves the old estimator unchanged."""
    after = learned(estimator, [100.0])
    assert abs(answer(after).steps_per_s / 100 - 1) < CLOSE and answer(after).is_measured
    assert not answer(after, "slow").is_measured and not answer(after, scale_factor=2).is_measured
    assert not answer(estimator).is_measured and estimator.table() == ()


def a_report_heard_twice_or_late_changes_nothing(estimator: ThroughputEstimator) -> None:
    """Check that a repeated or older (generation, sequence) of a job is ignored."""
    once = learned(estimator, [100.0, 110.0])
    again = once.learn([a_measurement(2, rate_steps_per_s=900), a_measurement(1, rate_steps_per_s=900)])
    assert again.table() == once.table() and again.estimate(a_spec(), TYPES) == once.estimate(a_spec(), TYPES)


def a_batch_of_reports_counts_as_one_by_one(estimator: ThroughputEstimator) -> None:
    """Check that the table does not depend on how reports are divided into batches."""
    reports = [a_measurement(i, rate_steps_per_s=100 + i) for i in range(1, 9)]
    one_by_one = estimator
    for each in reports:
        one_by_one = one_by_one.learn([each])
    assert one_by_one.table() == estimator.learn(reports).table()


def reports_that_say_nothing_are_ignored(estimator: ThroughputEstimator) -> None:
    """Check that reports without steps, or without time, are ignored."""
    assert estimator.learn([a_measurement(1, steps=0), a_measurement(2, seconds=0.0)]).table() == ()


def noise_within_a_percent_moves_nothing(estimator: ThroughputEstimator) -> None:
    """Check that noise below 1 % moves no estimate: equal jobs stay equal, and cached answers stay valid."""
    before = learned(estimator, [100.0] * 4)
    after = before.learn([a_measurement(i, rate_steps_per_s=100 + 0.3 * (-1) ** i) for i in range(5, 30)])
    assert answer(after).steps_per_s == answer(before).steps_per_s


def a_change_of_the_rate_is_followed(estimator: ThroughputEstimator) -> None:
    """Check that a changed rate is followed within thirty reports."""
    after = learned(estimator, [100.0] * 10 + [20.0] * 30)
    assert abs(answer(after).steps_per_s / 20 - 1) < 0.1


def a_job_is_of_its_kind_until_it_differs(estimator: ThroughputEstimator) -> None:
    """Check that a job that differs for long from the others of its kind moves its own estimate, not the kind's."""
    job = Job(id="odd", spec=a_spec())
    assert estimator.kind_of(job) == job.spec.kind
    before = learned(estimator, [100.0] * 6)
    after = learned(before, [40.0] * 6, job_id=job.id)
    if after.kind_of(job) != job.spec.kind:
        assert answer(after).steps_per_s == answer(before).steps_per_s
        assert abs(answer(after, kind=after.kind_of(job)).steps_per_s / 40 - 1) < 0.1


def a_flattered_rate_gives_way_to_a_representative_one(estimator: ThroughputEstimator) -> None:
    """Check that a rate measured at full load replaces a flattered one, and is not replaced by one later."""
    guess = learned(estimator, [500.0], is_representative=False)
    assert not answer(guess).is_measured
    sure = guess.learn([a_measurement(2, rate_steps_per_s=60)])
    assert abs(answer(sure).steps_per_s / 60 - 1) < CLOSE and answer(sure).is_measured
    assert sure.learn([a_measurement(3, rate_steps_per_s=500, is_representative=False)]).table() == sure.table()


# --- the table --------------------------------------------------------------------------------------------------


def the_table_is_sorted_and_agrees_with_the_estimates(estimator: ThroughputEstimator) -> None:
    """Check that the table is sorted by kind, scale factor and type, and has the numbers of `estimate`."""
    after = learned(estimator, [10.0], accelerator_type="slow", job_id="a")
    after = learned(after, [20.0], job_id="b")
    after = learned(after, [30.0], kind="cnn", scale_factor=2, job_id="c")
    rows = [(row.kind, row.scale_factor, row.accelerator_type) for row in after.table()]
    assert rows == [("cnn", 2, "fast"), ("mlp-b256", 1, "fast"), ("mlp-b256", 1, "slow")]
    for row in after.table():
        assert answer(after, row.accelerator_type, kind=row.kind, scale_factor=row.scale_factor) == row


def what_a_job_keeps_beside_another_is_a_fraction_and_learned_from_its_reports(estimator: ThroughputEstimator) -> None:
    """Check that pairs nobody has measured have an estimate, and measured ones the ratio of the two rates."""
    one, other = (Job(id=kind, spec=a_spec(kind=kind)) for kind in ("mlp-b256", "cnn-b16"))
    (before,) = estimator.colocated_estimates([(one, other)], "fast")
    assert 0.0 <= before.kept_fraction <= 1.0 and not before.is_measured and before.needed_bytes == 0
    after = learned(learned(estimator, [100.0] * 5), [70.0] * 5, partner="cnn-b16", job_id="k")
    kept, back = after.colocated_estimates([(one, other), (other, one)], "fast")
    assert kept.is_measured and abs(kept.kept_fraction - 0.7) < 2 * CLOSE
    assert not back.is_measured and after.colocated_estimates([], "fast") == ()


CHECKS: tuple[Callable[[ThroughputEstimator], None], ...] = (
    a_stranger_has_finite_positive_estimates,
    a_statement_counts_until_something_is_measured,
    an_absurd_statement_is_survived,
    many_specifications_are_answered_as_one_by_one,
    a_measurement_is_believed,
    a_report_heard_twice_or_late_changes_nothing,
    a_batch_of_reports_counts_as_one_by_one,
    reports_that_say_nothing_are_ignored,
    noise_within_a_percent_moves_nothing,
    a_change_of_the_rate_is_followed,
    a_job_is_of_its_kind_until_it_differs,
    a_flattered_rate_gives_way_to_a_representative_one,
    the_table_is_sorted_and_agrees_with_the_estimates,
    what_a_job_keeps_beside_another_is_a_fraction_and_learned_from_its_reports,
)
