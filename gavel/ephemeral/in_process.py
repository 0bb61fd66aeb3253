"""The libraries' two calls over a resource table of this process, and requests that wait for what a library asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from gavel.ephemeral.libraries.primitives import Library, Requirement, Write, total
from gavel.ephemeral.names import split_name
from gavel.ephemeral.resources import Availability, Fallback, Gang, GangRequest, Member, ResourceTable
from gavel.errors import StaleVersion
from gavel.types import EphemeralResource


@dataclass(frozen=True, slots=True)
class InProcess:
    """A table at one moment: what is set lives for `ttl_s` from `now_s`, under the owner that its name begins with."""

    table: ResourceTable
    now_s: float
    ttl_s: float = 60.0

    def set_resource(self, *writes: Write) -> None:
        """Write all of them or, on an error, none. Raises StaleVersion, NotFound, InvalidResource."""
        for write in writes:
            self._check_unchanged(write)
        self.table.set_resources([self._resource(write) for write in writes], now_s=self.now_s)

    def get_cluster_state(self) -> Mapping[str, Mapping[str, Availability]]:
        """{node: {owner/name: availability}}, one consistent view."""
        return self.table.get_cluster_state(self.now_s)

    def _resource(self, write: Write) -> EphemeralResource:
        owner, name = split_name(write.name)
        return self.table.next_resource(name, write.capacity, write.node, self.ttl_s, owner, self.now_s)

    def _check_unchanged(self, write: Write) -> None:
        if write.expect is None:
            return
        known = Availability(
            self.table.capacity(write.name, write.node, self.now_s), self.table.free(write.name, write.node, self.now_s)
        )
        if (known.capacity, known.free) != (write.expect.capacity, write.expect.free):
            raise StaleVersion(f"{write.name} on {write.node} has changed ({known}): read it again")


def request_for(gang: Gang, needs: Requirement, library: Library, now_s: float, tasks: int = 1) -> GangRequest:
    """`tasks` tasks that start together, each with its own `needs` and what the library asks, from `now_s` on."""
    first, *later = [
        (now_s + each.after_s, (Member(total((needs, each.requires)), at_least=each.at_least),) * tasks)
        for each in library.asks()
    ]
    return GangRequest(gang, first[1], tuple(Fallback(opens_at_s, members) for opens_at_s, members in later))
