"""The Ray backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from gavel.backends.conformance_results import what_a_job_writes_to_its_output_folder_stays
from tests.backends.ray.clusters import RayHarness

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    "check", [each for each in CHECKS if each.__name__ not in RayHarness.cannot], ids=lambda check: check.__name__
)
def test_the_ray_backend_conforms(check: Check, ray_harness: RayHarness) -> None:
    check(ray_harness)


def test_outputs_at_a_url_stay_as_in_a_folder(ray_harness: RayHarness) -> None:
    ray_harness.crash()
    ray_harness.outputs_at = (ray_harness.folder / "storage").as_uri()
    ray_harness.recover()
    what_a_job_writes_to_its_output_folder_stays(ray_harness)
