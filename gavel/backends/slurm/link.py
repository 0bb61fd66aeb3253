"""The transport over Slurm: an allocation of Slurm's for each gang."""

from collections import Counter

from gavel.backends.nodes.allocation_link import AllocationLink
from gavel.backends.slurm.control import Control
from gavel.backends.slurm.protocol import SlurmSettings


class SlurmLink(AllocationLink):
    """Carries orders and answers in files. Raises InvalidRequest, OSError."""

    def __init__(self, settings: SlurmSettings) -> None:
        calls = Counter[str]()
        super().__init__(
            Control(settings, calls), calls, code_store=settings.code_store, lease_grace_s=settings.lease_grace_s
        )
