"""The local backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.clusters import LocalHarness


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_local_backend_conforms(check: Check, harness: LocalHarness) -> None:
    check(harness)
