"""The Kubernetes backend shows what every backend must show."""

import pytest

from gavel.backends.conformance import CHECKS, Check
from tests.backends.kubernetes.clusters import KubernetesHarness

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    "check",
    [each for each in CHECKS if each.__name__ not in KubernetesHarness.cannot],
    ids=lambda check: check.__name__,
)
def test_the_kubernetes_backend_conforms(check: Check, harness: KubernetesHarness) -> None:
    check(harness)
