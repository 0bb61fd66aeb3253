"""The Slurm backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.slurm.clusters import SlurmHarness

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.__name__ not in SlurmHarness.cannot], ids=lambda check: check.__name__
)
def test_the_slurm_backend_conforms(check: Check, slurm_harness: SlurmHarness) -> None:
    check(slurm_harness)
