"""Ephemeral resources that applications set, as the service keeps them."""

from dataclasses import dataclass

from gavel.types.jobs import JobId
from gavel.types.rounds import EphemeralResource


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResource:
    """A name that somebody wants on a node until its lease ends, and the units of it that were held when last seen.

    `job_id`: the job that set it by its own token, with which it goes; None: an operator did.
    """

    resource: EphemeralResource
    job_id: JobId | None = None
    held: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Owner, name and node."""
        return self.resource.owner, self.resource.name, self.resource.node

    @property
    def free(self) -> int:
        """Units that nobody holds; negative after a shrink."""
        return self.resource.capacity - self.held
