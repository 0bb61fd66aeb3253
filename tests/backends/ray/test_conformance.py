"""The Ray backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.ray.clusters import RayHarness

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.__name__ not in RayHarness.cannot], ids=lambda check: check.__name__
)
def test_the_ray_backend_conforms(check: Check, ray_harness: RayHarness) -> None:
    check(ray_harness)
