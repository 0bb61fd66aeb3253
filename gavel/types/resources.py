"""Ephemeral resources that applications set, as the service stores them."""

from dataclasses import dataclass

from gavel.types.jobs import JobId
from gavel.types.rounds import EphemeralResource


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResource:
    """A resource wanted on a node until its lease ends, and the units of it that were held when last observed.

    `job_id`: the job that set it by its own token; the resource is deleted when the job ends. None: an operator set it.
    """

    resource: EphemeralResource
    job_id: JobId | None = None
    held: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Return owner, name and node."""
        return self.resource.owner, self.resource.name, self.resource.node

    @property
    def free(self) -> int:
        """Return the units that nobody holds; negative if the capacity was reduced below what is held."""
        return self.resource.capacity - self.held
