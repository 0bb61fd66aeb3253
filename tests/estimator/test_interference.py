"""Gangs beside a partner: measured, predicted, and worth trying. Gangs spread over nodes: what they say of others."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.estimator.conformance import a_measurement
from gavel.estimator.pairs import PRIOR_RATE, pair_estimates
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.tables import own_rows
from gavel.ports import ColocatedEstimate, ThroughputEstimate, ThroughputSource
from gavel.types import FloatArray, Job, Measurement, PairRates
from tests.builders import a_job, a_spec

EXAMPLES = 200 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 15
TYPES = ("fast", "slow")
KINDS = tuple(f"{name}-b{size}" for name in ("cnn", "mlp", "rnn", "moe") for size in (16, 64, 256))
SPEED = {"cnn": (100.0, 20.0), "mlp": (90.0, 60.0), "rnn": (30.0, 10.0), "moe": (50.0, 5.0)}
ALONE = {kind: SPEED[kind[:3]] for kind in KINDS}
PRESSES = {"cnn": 0.9, "mlp": 0.2, "rnn": 0.6, "moe": 0.4}


def truth(kind: str, partner: str) -> float:
    """What `kind` keeps of its rate beside `partner`: relatives press and suffer alike."""
    return 1 / (1 + PRESSES[kind[:3]] * PRESSES[partner[:3]])


def alone() -> list[Measurement]:
    return [
        a_measurement(n, kind=kind, accelerator_type=name, job_id=f"{kind}/{name}", rate_steps_per_s=1e3 * rate)
        for kind, rates in ALONE.items()
        for name, rate in zip(TYPES, rates, strict=True)
        for n in range(1, 6)
    ]


def colocated(kind: str, partner: str, name: str = "fast", share: float | None = None) -> list[Measurement]:
    """Both members' reports; `share`: what both keep."""
    return [
        a_measurement(
            n,
            kind=own,
            partner=other,
            accelerator_type=name,
            job_id=f"{own}+{other}/{name}",
            rate_steps_per_s=1e3 * ALONE[own][TYPES.index(name)] * (share or truth(own, other)),
        )
        for own, other in dict.fromkeys([(kind, partner), (partner, kind)])
        for n in range(1, 4)
    ]


def trying(share: float, seed: int = 0) -> ReconciledThroughputs:
    """The estimator after a random share of all pairs was tried on both types."""
    random = np.random.default_rng(seed)
    reports = alone()
    for row, kind in enumerate(KINDS):
        for partner in KINDS[row:]:
            for name in TYPES:
                if random.random() < share:
                    reports += colocated(kind, partner, name)
    return ReconciledThroughputs().learn(reports)


def jobs() -> list[Job]:
    return [a_job(f"{kind}/{n}", spec={"kind": kind}) for kind in KINDS for n in range(2)]


def expected_of(estimator: ReconciledThroughputs) -> FloatArray:
    """What kinds are expected to keep of their rates, (K, K, m), in the order of KINDS."""
    return estimator.pairs([(kind, 1) for kind in KINDS], TYPES).rate.transpose(1, 2, 0)


def rates_of(estimator: ReconciledThroughputs, some: Sequence[Job], tries: int = 0) -> PairRates:
    """The rates of pairs where memory is no limit."""
    rates = replace(estimator, fits_by_rate=True).pair_rates(some, TYPES, [0, 0], tries=tries)
    assert rates is not None
    return rates


def shares_of(estimator: ReconciledThroughputs, tries: int = 0) -> FloatArray:
    """What policies are told that kinds keep of their rates, (K, K, m), in the order of KINDS."""
    rates = rates_of(estimator, jobs(), tries)
    order = rates.kind_of_job[::2]
    base = np.array([ALONE[kind] for kind in KINDS]) * 1e3
    shares: FloatArray = rates.steps_per_s[order][:, order] / base[:, None, :]
    return shares


TRUTH = np.array([[[truth(a, b)] * 2 for b in KINDS] for a in KINDS])


def test_few_measured_pairs_predict_the_others_better_than_a_guess() -> None:
    guess = np.abs(expected_of(trying(0.0)) - TRUTH).mean()
    errors = [np.abs(expected_of(trying(share)) - TRUTH).mean() for share in (0.1, 0.3)]
    assert errors[0] < 0.5 * guess and errors[1] < 0.05 and errors[1] < errors[0]


def test_the_interval_of_a_pair_holds_the_truth() -> None:
    estimator = trying(0.15)
    estimates = estimator.pairs([(kind, 1) for kind in KINDS], TYPES)
    low, high = (estimates.within(deviations).transpose(1, 2, 0) for deviations in (-1.645, 1.645))
    assert np.mean((low <= TRUTH) & (high >= TRUTH)) >= 0.85


def test_a_measured_pair_stands() -> None:
    estimator = ReconciledThroughputs().learn([*alone(), *colocated("cnn-b16", "mlp-b16", share=0.35)])
    (measured,) = [row for row in estimator.table() if (row.kind, row.partner) == ("cnn-b16", "mlp-b16")]
    assert measured.is_measured and measured.steps_per_s == pytest.approx(35e3, rel=0.02)
    row, column = KINDS.index("cnn-b16"), KINDS.index("mlp-b16")
    assert expected_of(estimator)[row, column, 0] == pytest.approx(0.35, abs=0.05)
    assert not shares_of(estimator)[row, column].any()  # both together do less than one of them alone


def test_a_pair_that_nobody_tried_is_inferred_with_its_doubt() -> None:
    estimator = trying(0.0).learn(colocated("cnn-b16", "mlp-b16"))
    pairs = estimator.pairs([("cnn-b16", 1), ("mlp-b16", 1), ("nobody/knows", 1)], ["fast"])
    assert 0.0 < pairs.rate[0, 0, 2] < 1.0
    assert pairs.deviation[0, 0, 2] > pairs.deviation[0, 0, 1]


def test_jobs_of_one_kind_share_a_row_and_gangs_of_two_sizes_never_pack() -> None:
    some = [a_job("a"), a_job("b"), a_job("c", spec={"scale_factor": 2})]
    rates = rates_of(ReconciledThroughputs(), some, 9)
    assert rates.kind_of_job.tolist() == [0, 0, 1] and rates.steps_per_s.shape == (2, 2, 2)
    assert rates.steps_per_s[0, 0].min() > 0 == rates.steps_per_s[0, 1].max() == rates.steps_per_s[1, 0].max()


def test_only_pairs_that_cannot_lose_are_offered_but_for_those_to_try() -> None:
    unmeasured = ReconciledThroughputs().learn(alone())
    assert not shares_of(unmeasured).any()
    assert 0 < np.count_nonzero(shares_of(unmeasured, tries=3)) <= 2 * 3
    estimator = trying(0.3)
    offered = shares_of(estimator) > 0
    together = TRUTH + TRUTH.transpose(1, 0, 2)
    assert offered.any() and (offered == offered.transpose(1, 0, 2)).all()
    assert (together[offered] > 1).all() and (together[~offered] > 1).any()
    assert shares_of(estimator)[offered] == pytest.approx(expected_of(estimator)[offered], rel=0.02)


@settings(max_examples=EXAMPLES)
@given(share=st.floats(0.0, 1.0))
def test_a_measured_pair_is_offered_just_where_both_together_do_more(share: float) -> None:
    measured = [each for name in TYPES for each in colocated("cnn-b16", "mlp-b16", name, share=share or None)]
    shares = shares_of(ReconciledThroughputs().learn([*alone(), *measured]))
    row, column = KINDS.index("cnn-b16"), KINDS.index("mlp-b16")
    together = 2 * share or truth("cnn-b16", "mlp-b16") + truth("mlp-b16", "cnn-b16")
    if abs(together - 1) > 0.1:
        assert (shares[row, column, 0] > 0) == (together > 1)


def test_pairs_that_may_pay_are_hoped_for_and_measured_ones_are_not() -> None:
    estimator = ReconciledThroughputs().learn(alone())
    some = [a_job("a", spec={"kind": "cnn-b16"}), a_job("b", spec={"kind": "mlp-b16"})]
    expected, optimistic = (rates_of(estimator, some, tries).steps_per_s for tries in (0, 9))
    assert (optimistic[0, 1] > expected[0, 1]).all() and (optimistic[1, 0] > expected[1, 0]).all()
    assert (optimistic[0, 0] == expected[0, 0]).all()  # there is no second job of the kind
    tried = estimator.learn([each for name in TYPES for each in colocated("cnn-b16", "mlp-b16", name)])
    assert (rates_of(tried, some, 9).steps_per_s == rates_of(tried, some).steps_per_s).all()


def test_a_pair_that_does_not_fit_at_all_is_known_by_its_silence() -> None:
    some = [a_job("a", spec={"kind": "cnn-b16"}), a_job("b", spec={"kind": "mlp-b16"})]
    silence = replace(colocated("cnn-b16", "mlp-b16")[0], steps=0, seconds=60.0)
    estimator = ReconciledThroughputs().learn([*alone(), silence, replace(silence, seconds=70.0)])
    beside_mlp = rates_of(estimator, some, 9).steps_per_s[0, 1, 0]
    assert beside_mlp < 0.1 * 1e3 * ALONE["cnn-b16"][0]
    better = estimator.learn(colocated("cnn-b16", "mlp-b16", share=0.5))
    assert better.state.interference_rates != estimator.state.interference_rates  # a report counts as ever


def test_the_first_pair_to_try_neither_certainly_pays_nor_certainly_does_not() -> None:
    estimator = trying(0.5)
    (first, second, _), *_ = np.argwhere(shares_of(estimator, tries=1) > shares_of(estimator))
    assert TRUTH[first, second, 0] + TRUTH[second, first, 0] < 1.7, (KINDS[first], KINDS[second])


def spread(kind: str, size: int, ratio: float) -> list[Measurement]:
    reports = []
    for placement, rate in (("consolidated", 1.0), ("spread", ratio)):
        for n in range(1, 4):
            reports.append(
                a_measurement(
                    n, kind=kind, scale_factor=size, placement=placement, rate_steps_per_s=1e5 * rate,
                    job_id=f"{kind}{size}{placement}",
                )
            )  # fmt: skip
    return reports


@settings(max_examples=EXAMPLES)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(KINDS[:3]),
            st.sampled_from([*KINDS[:3], "stranger"]),
            st.sampled_from([1, 2, 4]),
            st.sampled_from(TYPES),
            st.sampled_from(["consolidated", "spread"]),
            st.floats(1e-3, 1e6),
        ),
        max_size=20,
    )
)
def test_whatever_pairs_report_rates_are_rates(rows: list[tuple[str, str, int, str, str, float]]) -> None:
    estimator = ReconciledThroughputs().learn(
        [
            *alone(),
            *(
                a_measurement(
                    n, kind=kind, partner=partner, scale_factor=size, accelerator_type=name, placement=placement,
                    rate_steps_per_s=rate, job_id=f"p{n}",
                )
                for n, (kind, partner, size, name, placement, rate) in enumerate(rows, 1)
            ),
        ]
    )  # fmt: skip
    rates = rates_of(estimator, jobs()[:8]).steps_per_s
    assert np.isfinite(rates).all() and rates.min() >= 0
    assert (rates <= 1e3 * 100 * 1.02).all()
    for each in (*estimator.table(), *estimator.estimate(a_spec(kind=KINDS[0], scale_factor=2), TYPES)):
        assert math.isfinite(each.steps_per_s) and each.steps_per_s > 0 and each.relative_error > 0


def test_a_gang_seen_only_spread_is_roughly_known_consolidated() -> None:
    """With the usual loss, and the error of that guess."""
    seen = [each for each in spread("cnn-b16", 4, 4.0) if each.placement == "spread"]
    (believed,) = ReconciledThroughputs().learn(seen).estimate(a_spec(kind="cnn-b16", scale_factor=4), ["fast"])
    low, high = believed.interval_steps_per_s
    assert believed.source == "inferred" and low < 4e5 < believed.steps_per_s < 8e5 < high


def test_own_rows_leave_out_gangs_beside_a_partner_and_spread_ones() -> None:
    own = ThroughputEstimate(
        kind="k", scale_factor=2, accelerator_type="fast", steps_per_s=1.0, relative_error=0.1,
        source=ThroughputSource.MEASURED,
    )  # fmt: skip
    assert own_rows([replace(own, partner="x"), own, replace(own, placement="spread")]) == [own]


def test_without_kinds_or_types_there_is_nothing_to_estimate() -> None:
    assert pair_estimates([], ["fast"], [], {}).rate.shape == (1, 0, 0)
    assert pair_estimates([("mlp", 1)], [], [], {("mlp", 1): np.zeros(0)}).rate.shape == (0, 1, 1)


# --- memory -------------------------------------------------------------------------------------------------------

GIB = 1 << 30


def holding(*held: tuple[int, str | None], job_id: str = "a", kind: str = "cnn-b16") -> list[Measurement]:
    """Reports of one gang: the bytes in use on its accelerator, and the kind beside it then."""
    return [
        replace(
            a_measurement(n, kind=kind, partner=partner, job_id=job_id, rate_steps_per_s=100.0),
            accelerator_memory_bytes=held_bytes,
        )
        for n, (held_bytes, partner) in enumerate(held, 1)
    ]


def offered(estimator: ReconciledThroughputs, memory_bytes: int, stated_bytes: int = 0) -> bool:
    """Whether two jobs of kind cnn-b16 may share an accelerator of type fast: as a trial, at least."""
    some = [
        a_job(each, spec={"kind": "cnn-b16", "accelerator_memory_bytes": stated_bytes * (each == "b")}) for each in "ab"
    ]
    return estimator.pair_rates(some, TYPES, [memory_bytes, 0], tries=1) is not None


def test_two_jobs_share_only_where_the_most_that_each_was_seen_to_hold_fits() -> None:
    estimator = ReconciledThroughputs().learn(holding(*[(3 * GIB, None)] * 3, (5 * GIB, None)))
    assert offered(estimator, 10 * GIB) and not offered(estimator, 10 * GIB - 1)
    assert not offered(estimator, 0)  # the accelerators' own memory is not known
    assert not offered(ReconciledThroughputs(), 80 * GIB)  # nothing is known of the jobs
    assert offered(ReconciledThroughputs(), 80 * GIB, 40 * GIB) and not offered(estimator, 79 * GIB, 40 * GIB)


def test_what_a_partner_held_is_not_taken_for_the_job_s_own() -> None:
    """The first report alone may still be of an instant at which the partner was there."""
    own, with_partner = (2 * GIB, None), (30 * GIB, "mlp-b16")
    after = ReconciledThroughputs().learn(holding(*[own] * 3, with_partner, with_partner, (30 * GIB, None), own))
    assert offered(after, 4 * GIB)


def test_a_few_reports_are_not_enough_to_know_what_a_kind_holds() -> None:
    assert not offered(ReconciledThroughputs().learn(holding(*[(GIB, None)] * 2)), 80 * GIB)


def test_what_kinds_hold_survives_a_restart() -> None:
    estimator = ReconciledThroughputs().learn(holding(*[(3 * GIB, None)] * 4))
    (row,) = estimator.table()
    assert row.held_bytes == 3 * GIB
    again = ReconciledThroughputs.from_table(estimator.table())
    assert offered(again, 6 * GIB) and not offered(again, 6 * GIB - 1)


def kept_of(estimator: ReconciledThroughputs, kind: str, partner: str, name: str = "fast") -> ColocatedEstimate:
    """How a job of the kind does beside one of the other kind."""
    one, other = a_job("one", spec={"kind": kind}), a_job("other", spec={"kind": partner})
    (estimate,) = estimator.colocated_estimates([(one, other)], name)
    return estimate


def test_what_a_job_keeps_beside_another_is_as_measured_in_that_direction() -> None:
    slow = [each for each in colocated("cnn-b16", "mlp-b16", share=0.35) if each.kind == "cnn-b16"]
    estimator = ReconciledThroughputs().learn([*alone(), *slow])
    own, other = kept_of(estimator, "cnn-b16", "mlp-b16"), kept_of(estimator, "mlp-b16", "cnn-b16")
    assert own.is_measured and own.kept_fraction == pytest.approx(0.35, abs=0.02)
    assert not other.is_measured, "the other one has reported nothing beside it"
    assert not kept_of(estimator, "cnn-b16", "mlp-b16", "slow").is_measured


def test_nobody_keeps_more_beside_another_than_alone() -> None:
    estimator = ReconciledThroughputs().learn([*alone(), *colocated("cnn-b16", "mlp-b16", share=1.4)])
    assert kept_of(estimator, "cnn-b16", "mlp-b16").kept_fraction == 1.0


def test_pairs_that_nobody_measured_are_as_other_pairs_suggest() -> None:
    fresh = kept_of(ReconciledThroughputs().learn(alone()), "cnn-b16", "nobody/notebook")
    assert not fresh.is_measured and fresh.kept_fraction == PRIOR_RATE
    busy = [alone(), *(colocated(kind, "mlp-b16", share=0.1) for kind in KINDS if kind[:3] != "mlp")]
    estimator = ReconciledThroughputs().learn([each for reports in busy for each in reports])
    assert kept_of(estimator, "mlp-b256", "mlp-b16").kept_fraction < 0.4


def test_a_kind_that_was_only_measured_beside_another_is_compared_with_what_is_expected_of_it_alone() -> None:
    estimator = ReconciledThroughputs().learn(colocated("cnn-b16", "mlp-b16", share=0.5))
    estimate = kept_of(estimator, "cnn-b16", "mlp-b16")
    assert estimate.is_measured and 0.0 < estimate.kept_fraction <= 1.0


def test_what_a_rank_needs_of_memory_is_what_it_states_or_what_was_seen() -> None:
    reports = [replace(each, accelerator_memory_bytes=5 << 30) for each in alone()]
    estimator = ReconciledThroughputs().learn(reports)
    other = a_job("other", spec={"kind": "nobody/notebook"})
    stated = [
        a_job(f"{memory}", spec={"kind": "cnn-b16", "accelerator_memory_bytes": memory << 30}) for memory in (0, 2, 8)
    ]
    seen, less, more = estimator.colocated_estimates([(each, other) for each in stated], "fast")
    assert (seen.needed_bytes >> 30, less.needed_bytes >> 30, more.needed_bytes >> 30) == (5, 5, 8)
    (unknown,) = estimator.colocated_estimates([(other, stated[0])], "fast")
    assert unknown.needed_bytes == 0
