"""The two calls of the libraries over a resource table in this process, and gang requests from what a library asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import Library, Requirement, Write, total
from gavel.ephemeral.names import split_name
from gavel.ephemeral.resources import Availability, Fallback, Gang, GangRequest, Member, ResourceTable
from gavel.errors import StaleVersion
from gavel.types import EphemeralResource


@dataclass(frozen=True, slots=True)
class InProcess:
    """A table at the instant `now_s`. What is set has a lease of `ttl_s` seconds; names are written `owner/name`."""

    table: ResourceTable
    now_s: float
    ttl_s: float = 60.0

    def set_resource(self, *writes: Write) -> None:
        """Write all of them or, on an error, none. Raises StaleVersion, NotFound, InvalidResource."""
        for write in writes:
            self._check_unchanged(write)
        self.table.set_resources([self._resource(write) for write in writes], now_s=self.now_s)

    def get_cluster_state(self) -> Mapping[str, Mapping[str, Availability]]:
        """Return {node: {owner/name: availability}}, one consistent view."""
        return self.table.get_cluster_state(self.now_s)

    def _resource(self, write: Write) -> EphemeralResource:
        owner, name = split_name(write.name)
        return self.table.next_resource(name, write.capacity, write.node, self.ttl_s, owner, self.now_s)

    def _check_unchanged(self, write: Write) -> None:
        if write.expect is None:
            return
        current = Availability(
            self.table.capacity(write.name, write.node, self.now_s), self.table.free(write.name, write.node, self.now_s)
        )
        if (current.capacity, current.free) != (write.expect.capacity, write.expect.free):
            raise StaleVersion(f"{write.name} on {write.node} has changed ({current}): read it again")


def request_for(gang: Gang, needs: Requirement, library: Library, now_s: float, tasks: int = 1) -> GangRequest:
    """Return a request for `tasks` tasks that start together, each with its `needs` and what the library asks.

    The library's later alternatives become fallbacks; their times count from `now_s`.
    """
    first, *later = [
        (now_s + each.after_s, (Member(total((needs, each.requires)), at_least=each.at_least),) * tasks)
        for each in library.asks()
    ]
    return GangRequest(gang, first[1], tuple(Fallback(opens_at_s, members) for opens_at_s, members in later))
