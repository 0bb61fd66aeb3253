"""Many estimates at once are the estimates one by one, whatever was reported and stated."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.estimator.conformance import a_measurement, a_spec
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.reference_profiles import reference_table
from gavel.ports import ThroughputMatrix
from gavel.types import JobSpec

EXAMPLES = 100 if os.environ.get("GAVEL_TEST_PROFILE") == "full" else 25
KINDS = ("cnn-b64", "mlp-b256", "mlp-b8", "mlp-b256#odd", "ann/train")
TYPES = ("avx512", "fast", "scalar")
REPORTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "scale_factor": st.sampled_from([1, 2, 8]),
            "accelerator_type": st.sampled_from(TYPES),
            "rate_steps_per_s": st.one_of(st.just(50.0), st.floats(0.1, 1e4)),
            "is_representative": st.booleans(),
            "placement": st.sampled_from(["consolidated", "consolidated", "spread"]),
            "stated_steps_per_s": st.sampled_from([None, 3.0]),
        }
    ),
    max_size=30,
)
SPECS = st.lists(
    st.builds(
        lambda kind, size, stated: a_spec(kind=kind, scale_factor=size, throughput_steps_per_s=stated),
        st.sampled_from([*KINDS, "nobody/knows"]),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([{}, {}, {"fast": 7.0}]),
    ),
    max_size=12,
)


def agrees(estimator: ReconciledThroughputs, specs: Sequence[JobSpec]) -> None:
    arrays = estimator.matrix(specs, TYPES)
    plain = ThroughputMatrix.of([estimator.estimate(spec, TYPES) for spec in specs], TYPES)
    assert (arrays.steps_per_s == plain.steps_per_s).all() and arrays.steps_per_s.shape == (len(specs), len(TYPES))
    assert np.allclose(arrays.relative_error, plain.relative_error, rtol=1e-12, atol=0)
    assert (arrays.is_worth_measuring == plain.is_worth_measuring).all()


@settings(max_examples=EXAMPLES)
@given(REPORTS, SPECS)
def test_a_matrix_holds_the_estimates_one_by_one(reports: list[dict[str, Any]], specs: list[JobSpec]) -> None:
    learned = ReconciledThroughputs.from_table((), core_sharing=2, reference_profiles=reference_table())
    agrees(learned, specs)
    for start in range(0, len(reports), 10):
        batch = reports[start : start + 10]
        learned = learned.learn(
            [a_measurement(1, job_id=f"j{number}", **each) for number, each in enumerate(batch, start)]
        )
        agrees(learned, specs)
    agrees(ReconciledThroughputs(state=learned.state), specs)


def test_a_matrix_is_asked_for_again_with_other_types() -> None:
    learned = ReconciledThroughputs().learn([a_measurement(n) for n in range(1, 4)])
    few, more = learned.matrix([a_spec()], ("fast",)), learned.matrix([a_spec()], ("new", "fast"))
    assert few.steps_per_s[0, 0] == more.steps_per_s[0, 1] and learned.matrix([a_spec()], ()).steps_per_s.shape == (
        1,
        0,
    )


def test_a_matrix_has_the_doubt_that_is_left_after_a_report_that_moves_no_rate() -> None:
    once = ReconciledThroughputs().learn([a_measurement(n) for n in range(1, 4)])
    before = once.matrix([a_spec()], TYPES)
    again = once.learn([a_measurement(n) for n in range(4, 9)])
    after = again.matrix([a_spec()], TYPES)
    assert again.version == once.version and after.relative_error[0, 1] < before.relative_error[0, 1]
    agrees(again, [a_spec()])
