"""The transport over Kubernetes: pods for each gang."""

from collections import Counter

from gavel.backends.kubernetes.control import Control
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.nodes.allocation_link import AllocationLink


class KubernetesLink(AllocationLink):
    """Carries orders and answers in files. Raises InvalidRequest, OSError."""

    def __init__(self, settings: KubernetesSettings) -> None:
        calls = Counter[str]()
        super().__init__(
            Control(settings, calls), calls, code_store=settings.code_store, lease_grace_s=settings.lease_grace_s
        )
