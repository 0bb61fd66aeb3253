import math

import pytest

from gavel.estimator.conformance import a_measurement
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.reference_profiles import reference_table
from gavel.estimator.user_claims import reputations, trust_in, usable, user_claims


@pytest.mark.parametrize("absurd", [0.0, -1.0, math.nan, math.inf, 1e12])
def test_absurd_statements_are_not_used(absurd: float) -> None:
    assert not usable(absurd)


def test_statements_are_held_against_measurements() -> None:
    estimator = ReconciledThroughputs().learn([a_measurement(1, stated_steps_per_s=300.0)])
    (claim,) = user_claims(estimator.table())
    assert (claim.user, claim.stated_steps_per_s) == ("ann", 300.0)
    assert claim.error == pytest.approx(math.log(3), abs=0.02)


def test_trust_falls_with_every_wrong_statement_and_starts_the_same_for_all() -> None:
    errors = []
    estimator = ReconciledThroughputs()
    for number in range(4):
        estimator = estimator.learn([a_measurement(1, job_id=str(number), kind=f"k{number}", stated_steps_per_s=900.0)])
        errors.append(trust_in("ann", reputations(user_claims(estimator.table()))))
    assert errors == sorted(errors) and errors[-1] > 1.0
    assert trust_in("bob", estimator.reputations()) == trust_in("eve", {}) < errors[0]


def test_a_users_newest_statement_counts() -> None:
    estimator = ReconciledThroughputs().learn([a_measurement(1, stated_steps_per_s=900.0)])
    estimator = estimator.learn([a_measurement(2, stated_steps_per_s=100.0)])
    assert estimator.reputations()["ann"].typical_factor < 1.05


def test_the_references_ship_with_the_project() -> None:
    table = reference_table()
    assert len({row.kind for row in table}) >= 10 and len({row.accelerator_type for row in table}) >= 2
    assert all(math.isfinite(row.steps_per_s) and row.steps_per_s > 0 for row in table)
