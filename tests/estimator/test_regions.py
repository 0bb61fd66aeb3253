"""Rates are those of the plain type, whatever region it is in."""

import numpy as np

from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.regions import without_regions
from gavel.types import Job, Measurement
from tests.builders import a_spec


def measured(steps: int, accelerator_type: str) -> Measurement:
    return Measurement(
        job_id="a",
        generation=1,
        sequence=1,
        user="ann",
        kind="cnn",
        scale_factor=1,
        accelerator_type=accelerator_type,
        steps=steps,
        seconds=100.0,
    )


def test_what_was_measured_in_one_region_is_known_in_all() -> None:
    estimator = ReconciledThroughputs().learn([measured(500, "v100")])
    here, there, plain = estimator.estimate(a_spec(kind="cnn"), ["v100@eu", "v100@us", "v100"])
    assert here == there == plain and here.is_measured
    matrix = estimator.matrix([a_spec(kind="cnn")], ["k80@us", "v100@eu", "v100@us"]).steps_per_s
    assert matrix[0, 1] == matrix[0, 2] == here.steps_per_s


def test_pairs_of_jobs_have_the_same_rates_in_each_region() -> None:
    jobs = [Job(id=name, spec=a_spec(kind=name)) for name in "ab"]
    estimator = ReconciledThroughputs(fits_by_rate=True)
    one = estimator.pair_rates(jobs, ["v100"], [0], tries=1)
    all_ = estimator.pair_rates(jobs, ["v100@eu", "v100@us"], [0, 0], tries=1)
    assert one is not None and all_ is not None
    assert np.array_equal(all_.steps_per_s, np.repeat(one.steps_per_s, 2, axis=2))


def test_a_type_has_as_much_memory_as_the_region_with_least() -> None:
    names, memory, places = without_regions(["k80@us", "v100@eu", "v100@us"], [5, 16, 0])
    assert (names, memory, places) == (["k80", "v100"], [5, 0], [0, 1, 1])
