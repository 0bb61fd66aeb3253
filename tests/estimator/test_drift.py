"""A job that differs from its kind, a kind that changes, and reports that cannot be true."""

import math
import os
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.views.throughputs import throughput_list
from gavel.estimator.conformance import a_measurement, answer, learned
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.types import Measurement
from tests.builders import a_job, a_spec

EXAMPLES = 400 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 25
KIND = a_spec(kind="mlp-b256").kind
JOBS = ("a", "b", "c")
OFF = st.one_of(st.floats(0.1, 0.75), st.floats(1.35, 10.0))
NOISE = st.lists(st.floats(-0.04, 0.04), min_size=5, max_size=5)


def running(
    estimator: ReconciledThroughputs, rates: Sequence[tuple[str, float]], *, generation: int = 1
) -> ReconciledThroughputs:
    """The estimator after one report for each (job, steps/s), in order."""
    return estimator.learn(
        [
            a_measurement(number, rate_steps_per_s=1e4 * rate, seconds=10.0, job_id=job, generation=generation)
            for number, (job, rate) in enumerate(rates, 1)
        ]
    )


def steady(jobs: Sequence[str] = JOBS) -> ReconciledThroughputs:
    return running(ReconciledThroughputs(), [(job, 100.0) for job in jobs for _ in range(6)])


def kind_of(estimator: ReconciledThroughputs, job_id: str) -> str:
    return estimator.kind_of(a_job(job_id, spec={"kind": KIND}))


@settings(max_examples=EXAMPLES)
@given(factor=OFF, noise=NOISE, others=st.lists(st.sampled_from(JOBS), max_size=10), seed=st.randoms())
def test_a_job_that_differs_gets_a_kind_of_its_own_and_moves_nobody(
    factor: float, noise: list[float], others: list[str], seed: Random
) -> None:
    """Whatever the order in which the others report meanwhile."""
    reports = [("odd", 100.0 * factor * math.exp(each)) for each in noise] + [(job, 100.0) for job in others]
    seed.shuffle(reports)
    before = steady()
    after = running(before, reports, generation=2)
    assert kind_of(after, "odd") == f"{KIND}#odd"
    assert answer(after, kind=KIND).steps_per_s == answer(before, kind=KIND).steps_per_s
    assert answer(after, kind=f"{KIND}#odd").steps_per_s == pytest.approx(1e4 * 100 * factor, rel=0.06)
    assert all(kind_of(after, job) == KIND for job in JOBS)


@settings(max_examples=EXAMPLES)
@given(factor=OFF, noise=NOISE, jobs=st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]))
def test_a_change_of_a_whole_kind_is_noticed_within_five_reports(
    factor: float, noise: list[float], jobs: tuple[str, ...]
) -> None:
    reports = [(jobs[n % len(jobs)], 100.0 * factor * math.exp(each)) for n, each in enumerate(noise)]
    after = running(steady(jobs), reports, generation=2)
    assert answer(after, kind=KIND).steps_per_s == pytest.approx(1e4 * 100 * factor, rel=0.06)
    assert all(kind_of(after, job) == KIND for job in jobs)


@settings(max_examples=EXAMPLES)
@given(noise=st.lists(st.tuples(st.sampled_from(JOBS), st.floats(-0.12, 0.12)), max_size=40))
def test_ordinary_noise_tells_nobody_apart(noise: list[tuple[str, float]]) -> None:
    after = running(steady(), [(job, 100.0 * math.exp(each)) for job, each in noise], generation=2)
    assert all(kind_of(after, job) == KIND for job in JOBS)
    assert answer(after, kind=KIND).steps_per_s == pytest.approx(1e6, rel=0.13)


def test_reports_one_by_one_or_all_at_once_tell_the_same_job_apart() -> None:
    reports = [("odd", 40.0), ("a", 100.0)] * 6
    at_once = running(steady(), reports, generation=2)
    one_by_one = steady()
    for number, (job, rate) in enumerate(reports, 1):
        one_by_one = one_by_one.learn([a_measurement(number, rate_steps_per_s=1e4 * rate, job_id=job, generation=2)])
    assert at_once.table() == one_by_one.table() and kind_of(at_once, "odd") == kind_of(one_by_one, "odd")


def test_a_kind_of_ones_own_survives_a_restart_and_follows_its_job() -> None:
    after = ReconciledThroughputs.from_table(running(steady(), [("odd", 40.0)] * 5, generation=2).table())
    assert kind_of(after, "odd") == f"{KIND}#odd"
    later = running(after, [("odd", 20.0)] * 6, generation=3)
    assert answer(later, kind=f"{KIND}#odd").steps_per_s == pytest.approx(2e5, rel=0.02)
    assert answer(later, kind=KIND).steps_per_s == pytest.approx(1e6, rel=0.02)


def test_a_kind_of_ones_own_is_believed_as_fast_elsewhere_as_its_relatives_say() -> None:
    before = steady().learn(
        [a_measurement(n, accelerator_type="slow", job_id="s", rate_steps_per_s=2e5) for n in range(1, 6)]
    )
    odd = running(before, [("odd", 50.0)] * 5, generation=2)
    assert answer(odd, "slow", kind=f"{KIND}#odd").steps_per_s == pytest.approx(1e5, rel=0.1)


# --- first reports ------------------------------------------------------------------------------------------


def families() -> list[Measurement]:
    """Six kinds that are five times slower on `slow`."""
    return [
        a_measurement(n, kind=f"{kind}-b64", accelerator_type=name, rate_steps_per_s=rate, job_id=f"{kind}{name}")
        for kind in "abcdef"
        for name, rate in (("fast", 1000.0), ("slow", 200.0))
        for n in range(1, 5)
    ]


def new_on_fast() -> ReconciledThroughputs:
    before = ReconciledThroughputs().learn(families())
    return learned(before, [1000.0] * 4, kind="new-b64", job_id="n")


def test_impossible_progress_on_a_new_type_is_flagged_and_not_believed() -> None:
    before = new_on_fast()
    after = learned(before, [200.0 * 50] * 8, kind="new-b64", accelerator_type="slow", job_id="liar")
    assert answer(after, "slow", kind="new-b64").steps_per_s == answer(before, "slow", kind="new-b64").steps_per_s
    (row,) = (row for row in after.table() if (row.kind, row.accelerator_type) == ("new-b64", "slow"))
    assert (row.refused, row.measurements, row.is_measured) == (8, 0, False)
    (kept,) = (row for row in ReconciledThroughputs.from_table(after.table()).table() if row.refused)
    assert kept.refused == 8


def test_the_service_shows_what_was_refused_beside_what_is_believed() -> None:
    liar = learned(new_on_fast(), [200.0 * 50] * 3, kind="new-b64", accelerator_type="slow", job_id="liar")
    view = throughput_list(
        liar, liar.table(), ["fast", "slow"], may_see_kind=lambda _: True, may_see_user=lambda _: True
    )
    (row,) = (row for row in view.items if (row.kind, row.accelerator_type) == ("new-b64", "slow"))
    assert row.refused == 3 and row.source != "measured" and row.high_steps_per_s < 200.0 * 50


def test_what_two_jobs_show_is_believed_in_the_end() -> None:
    after = new_on_fast()
    for job in ("one", "two"):
        after = learned(after, [200.0 * 50] * 3, kind="new-b64", accelerator_type="slow", job_id=job)
    assert answer(after, "slow", kind="new-b64").steps_per_s == pytest.approx(1e4, rel=0.02)


def test_a_surprising_but_possible_first_report_is_believed() -> None:
    after = learned(new_on_fast(), [200.0 * 8], kind="new-b64", accelerator_type="slow", job_id="m")
    assert answer(after, "slow", kind="new-b64").steps_per_s == pytest.approx(1600.0, rel=0.02)


def test_a_type_that_nobody_has_used_may_be_far_faster() -> None:
    after = learned(new_on_fast(), [1000.0 * 100], kind="new-b64", accelerator_type="gpu", job_id="g")
    assert answer(after, "gpu", kind="new-b64").is_measured


def test_no_machine_trains_at_a_billion_steps_a_second() -> None:
    after = learned(ReconciledThroughputs(), [1e12], kind="new-b64")
    assert not answer(after, kind="new-b64").is_measured and after.table()[0].refused == 1


def test_a_kind_of_its_own_is_that_of_the_plan_under_which_the_job_differed() -> None:
    """1 a job differs from its kind under a plan, 2 under another plan it counts as the kind of that plan."""
    after = running(steady(), [("odd", 30.0)] * 6, generation=2)
    assert kind_of(after, "odd") == f"{KIND}#odd"
    other = f"{KIND}[tensor=2]"
    assert after.kind_of(a_job("odd", spec={"kind": other})) == other
