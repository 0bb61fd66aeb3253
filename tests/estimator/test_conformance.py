from collections.abc import Callable

import pytest

from gavel.estimator.conformance import CHECKS
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.ports import ThroughputEstimator


@pytest.mark.parametrize("make", [ReconciledThroughputs])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_estimator_conforms(
    check: Callable[[ThroughputEstimator], None], make: Callable[[], ThroughputEstimator]
) -> None:
    check(make())
