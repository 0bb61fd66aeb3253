"""Ephemeral resources (ESCHER, SoCC '22, section 4): named, leased capacities on nodes, beside the physical ones.

A task requires resources by name and waits until one node has them all. Every scheduling constraint is expressed by
creating, resizing and deleting names. Beyond the paper, each name has an owner, a lease and a generation, and many can
be set at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from operator import attrgetter

from gavel.ephemeral.names import NODE_OWNER, check_amount, check_requirement, check_resource, full_name
from gavel.errors import Conflict, InvalidResource, NotFound, StaleVersion, first_few
from gavel.types import EphemeralResource, JobId

Gang = tuple[JobId, int]
"""A job and the generation of its lease."""

NodeSpec = str | Sequence[str] | Mapping[str, int]
"""A node; several; or a vector {owner/name: amount}: every node that has that much free."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Units of a resource on a node. `free` is negative after a shrink or expiry below what is held."""

    capacity: int
    free: int


@dataclass(frozen=True, slots=True)
class Member:
    """One task of a gang: what it requires of one node, {owner/name: amount}, and the node if it must be that one.

    `at_least` must be free on the node before the task takes anything; it is not held.
    """

    requires: Mapping[str, int]
    node: str | None = None
    at_least: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.requires:
            raise InvalidResource("requires", "a task must require at least one resource")
        check_requirement(self.requires)
        check_requirement(self.at_least)


@dataclass(frozen=True, slots=True)
class Fallback:
    """Other members that a gang may have instead, from the instant `opens_at_s` on."""

    opens_at_s: float
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class GangRequest:
    """Tasks that start together or not at all; `fallbacks`, in order of preference, require less."""

    gang: Gang
    members: tuple[Member, ...]
    fallbacks: tuple[Fallback, ...] = ()


Placement = tuple[str, Mapping[str, int]]
"""A node and what one task takes of it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The newest resource of a name on a node; older generations are refused until every lease given here is over."""

    resource: EphemeralResource
    fenced_until_s: float


class ResourceTable:
    """Every name on every node, and who holds how much of it. Reads no clock: each call takes the time as `now_s`."""

    def __init__(self) -> None:
        self._nodes: dict[str, None] = {}  # in order of arrival
        self._entries: dict[str, dict[str, _Entry]] = {}  # owner/name -> node -> entry
        self._names_on: dict[str, dict[str, None]] = {}  # node -> owner/name, in order of arrival
        self._used: Counter[tuple[str, str]] = Counter()  # (owner/name, node)
        self._held: dict[Gang, tuple[Placement, ...]] = {}
        self._holders: dict[tuple[str, str], set[Gang]] = {}  # by (owner/name, node)
        self._none_over_until_s = -inf  # before this instant `expire` finds nothing

    # --- nodes ---

    def add_node(self, node: str, physical: Mapping[str, int]) -> None:
        """Add a node whose physical resources `node/<name>` are exactly `physical`; raises InvalidResource."""
        named = {full_name(NODE_OWNER, name): name for name in physical}
        for name, capacity in physical.items():
            check_amount(name, capacity)
        self._nodes.setdefault(node)
        self._drop(node, owner=NODE_OWNER)
        for full, name in named.items():
            resource = EphemeralResource(
                name=name,
                node=node,
                capacity=physical[name],
                owner=NODE_OWNER,
                lease_expires_at_s=inf,
                generation=1,
            )
            self._put(full, node, _Entry(resource, inf))

    def remove_node(self, node: str) -> None:
        """Remove a node, with its resources and what was held there; nothing happens if it does not exist."""
        self._nodes.pop(node, None)
        self._drop(node)
        for key in [key for key in self._used if key[1] == node]:
            del self._used[key]
            for gang in self._holders.pop(key):
                self._held[gang] = tuple(placement for placement in self._held[gang] if placement[0] != node)

    # --- setting ---

    def set_resource(
        self,
        name: str,
        capacity: int,
        node_spec: NodeSpec,
        ttl_s: float,
        owner: str,
        now_s: float,
        *,
        expect_generation: int | None = None,
        num_nodes: int | None = None,
    ) -> tuple[EphemeralResource, ...]:
        """Create, resize, renew or delete (capacity 0) `owner/name` on nodes; return what was written, one per node.

        `num_nodes` limits on how many nodes it is written. The generation grows with each change but a renewal.
        `expect_generation` is the generation that the caller read (0: there is no such name). Raises StaleVersion if
        the generation is another one now, NotFound for an unknown node, InvalidResource.
        """
        _check_ttl(ttl_s)
        full = full_name(owner, name)
        written = []
        for node in self._resolve(node_spec, now_s)[:num_nodes]:
            entry = self._unexpired_entry(full, node, now_s)
            current = entry.resource.generation if entry and self.capacity(full, node, now_s) else 0
            if expect_generation not in (None, current):
                raise StaleVersion(f"{full} on {node} is not at generation {expect_generation}: read it again")
            written.append(self.next_resource(name, capacity, node, ttl_s, owner, now_s))
        self.set_resources(written, now_s=now_s)
        return tuple(written)

    def next_resource(
        self, name: str, capacity: int, node: str, ttl_s: float, owner: str, now_s: float
    ) -> EphemeralResource:
        """Return what `set_resource` would write on the node, for writes of several names; raises InvalidResource."""
        _check_ttl(ttl_s)
        entry = self._unexpired_entry(full_name(owner, name), node, now_s)
        return EphemeralResource(
            name=name,
            node=node,
            capacity=capacity,
            owner=owner,
            lease_expires_at_s=now_s + ttl_s,
            generation=_next_generation(entry.resource if entry else None, capacity, now_s + ttl_s),
        )

    def set_resources(self, resources: Iterable[EphemeralResource], *, now_s: float) -> None:
        """Write all of them or, on an error, none. Writing the same again renews the lease, never shortens it.

        Capacity 0 deletes: holders keep what they hold, no task can acquire more. Raises StaleVersion for a generation
        older than the stored one, or equal to it with another capacity; NotFound for an unknown node; InvalidResource.
        """
        staged: dict[tuple[str, str], _Entry] = {}
        for resource in resources:
            key = (check_resource(resource), resource.node)
            self._check_node(resource.node)
            staged[key] = _after(staged.get(key) or self._unexpired_entry(*key, now_s), resource)
        for (full, node), entry in staged.items():
            if entry.fenced_until_s > now_s:
                self._put(full, node, entry)
                self._none_over_until_s = min(self._none_over_until_s, entry.fenced_until_s)
            else:
                self._forget(full, node)  # its lease is over already

    def expire(self, now_s: float) -> tuple[str, ...]:
        """Remove what has expired; return its names, sorted. Holders keep what they hold until they release it."""
        if now_s < self._none_over_until_s:
            return ()
        over = [
            (full, node, entry)
            for full, entries in self._entries.items()
            for node, entry in entries.items()
            if entry.fenced_until_s <= now_s
        ]
        for full, node, _ in over:
            self._forget(full, node)
        left = (entry.fenced_until_s for entries in self._entries.values() for entry in entries.values())
        self._none_over_until_s = min(left, default=inf)
        return tuple(sorted({full for full, _, entry in over if entry.resource.capacity > 0}))

    # --- holding ---

    def acquire(self, gang: Gang, placements: Sequence[Placement], now_s: float) -> None:
        """Acquire all placements for the gang. Raises Conflict if it holds some already, or too little is free."""
        if gang in self._held:
            raise Conflict(f"gang {gang} holds its resources already")
        wanted: Counter[tuple[str, str]] = Counter()
        for node, requires in placements:
            wanted.update({(full, node): amount for full, amount in requires.items()})
        for (full, node), amount in wanted.items():
            if self.free(full, node, now_s) < amount:
                raise Conflict(f"{node} has {self.free(full, node, now_s)} of {full} free, gang {gang} needs {amount}")
        self._held[gang] = tuple(placements)
        self._used.update(wanted)
        for key in wanted:
            self._holders.setdefault(key, set()).add(gang)

    def release(self, gang: Gang) -> None:
        """Release all that the gang holds; nothing happens if it holds nothing."""
        for node, requires in self._held.pop(gang, ()):
            for full, amount in requires.items():
                self._used[full, node] -= amount
                assert self._used[full, node] >= 0, f"{full} on {node} was released more often than acquired"
                self._holders[full, node].discard(gang)
                if not self._used[full, node]:
                    del self._used[full, node], self._holders[full, node]

    def holds(self, gang: Gang) -> bool:
        """Return whether the gang holds what it acquired."""
        return gang in self._held

    # --- reading ---

    def capacity(self, full: str, node: str, now_s: float) -> int:
        """Return the units of `owner/name` on a node; 0 if unknown, deleted or expired."""
        entry = self._entry(full, node)
        return entry.resource.capacity if entry and entry.resource.lease_expires_at_s > now_s else 0

    def free(self, full: str, node: str, now_s: float) -> int:
        """Return the units of `owner/name` on a node that nobody holds; negative after a shrink below what is held."""
        return self.capacity(full, node, now_s) - self._used[full, node]

    def held(self) -> dict[tuple[str, str], int]:
        """Return {(owner/name, node): units that gangs hold}; none of them 0."""
        return dict(self._used)

    def nodes_with(self, full: str) -> Collection[str]:
        """Return the nodes that have `owner/name`, in the order in which they got it; a live view."""
        return self._entries.get(full, {}).keys()

    def get_cluster_state(self, now_s: float) -> dict[str, dict[str, Availability]]:
        """Return {node: {owner/name: availability}}, one consistent view; names that have ended appear while held."""
        state: dict[str, dict[str, Availability]] = {node: {} for node in self._nodes}
        for full, entries in self._entries.items():
            for node, entry in entries.items():
                capacity = entry.resource.capacity if entry.resource.lease_expires_at_s > now_s else 0
                held = self._used.get((full, node), 0)
                if held or entry.resource.capacity > 0:
                    state[node][full] = Availability(capacity, capacity - held)
        for (full, node), held in self._used.items():
            state[node].setdefault(full, Availability(0, -held))  # the entry is removed, its holders remain
        return {node: dict(sorted(names.items())) for node, names in state.items()}

    def resources(self, now_s: float) -> tuple[EphemeralResource, ...]:
        """Return the ephemeral resources that have a lease, sorted by owner, name and node; without physical ones."""
        stored = [entry.resource for entries in self._entries.values() for entry in entries.values()]
        live = [each for each in stored if each.capacity and now_s < each.lease_expires_at_s < inf]
        return tuple(sorted(live, key=attrgetter("owner", "name", "node")))

    def missing(self, request: GangRequest, now_s: float) -> str:
        """Return why the gang waits: the first resource of which too little is free, and who holds it.

        Empty if enough of each is free for the whole gang, and some node fits each member alone.
        """
        needs: Counter[tuple[str, str | None]] = Counter()
        for member in request.members:
            needs.update({(full, member.node): amount for full, amount in member.requires.items()})
        for (full, node), amount in needs.items():
            nodes = (node,) if node else self.nodes_with(full)
            free = sum(max(0, self.free(full, each, now_s)) for each in nodes)
            if free < amount:
                return self._shortage(full, nodes, amount, free, now_s)
        for member in request.members:
            needs_together = {**member.requires, **member.at_least}
            nodes = (member.node,) if member.node else self._with_all(needs_together)
            if not any(self._fits(needs_together, node, now_s) for node in nodes):
                return f"no node has free together: {', '.join(needs_together)}"
        return ""

    # --- inside ---

    def _shortage(self, full: str, nodes: Collection[str], amount: int, free: int, now_s: float) -> str:
        if not any(self.capacity(full, node, now_s) for node in nodes):
            return f"{full} is not there (needs {amount})"
        gangs = {gang for node in nodes for gang in self._holders.get((full, node), ())}
        holders = sorted(f"job {job} (generation {generation})" for job, generation in gangs)
        return f"{full} has {free} free, needs {amount}; held by {', '.join(holders) or 'nobody'}"

    def _resolve(self, node_spec: NodeSpec, now_s: float) -> list[str]:
        if isinstance(node_spec, Mapping):
            check_requirement(node_spec)
            nodes = self._with_all(node_spec)
            return [node for node in self._nodes if node in nodes and self._fits(node_spec, node, now_s)]
        named = [node_spec] if isinstance(node_spec, str) else list(node_spec)
        for node in named:
            self._check_node(node)
        return named

    def _with_all(self, requires: Mapping[str, int]) -> Collection[str]:
        """The nodes that may have all of these names: those of the rarest one. Amounts are at least 1."""
        return min((self.nodes_with(full) for full in requires), key=len, default=self._nodes.keys())

    def _fits(self, requires: Mapping[str, int], node: str, now_s: float) -> bool:
        return all(self.free(full, node, now_s) >= amount for full, amount in requires.items())

    def _check_node(self, node: str) -> None:
        if node not in self._nodes:
            raise NotFound(f"there is no node {node!r}; nodes: {first_few(self._nodes)}")

    def _entry(self, full: str, node: str) -> _Entry | None:
        return self._entries.get(full, {}).get(node)

    def _unexpired_entry(self, full: str, node: str, now_s: float) -> _Entry | None:
        """Return the entry while it refuses older generations, whether or not `expire` was called since."""
        entry = self._entry(full, node)
        return entry if entry and entry.fenced_until_s > now_s else None

    def _put(self, full: str, node: str, entry: _Entry) -> None:
        self._entries.setdefault(full, {})[node] = entry
        self._names_on.setdefault(node, {})[full] = None

    def _forget(self, full: str, node: str) -> None:
        entries, names = self._entries.get(full, {}), self._names_on.get(node, {})
        entries.pop(node, None)
        names.pop(full, None)
        if not entries:
            self._entries.pop(full, None)
        if not names:
            self._names_on.pop(node, None)

    def _drop(self, node: str, owner: str | None = None) -> None:
        for full in list(self._names_on.get(node, ())):
            if owner is None or full.startswith(f"{owner}/"):
                self._forget(full, node)


def _check_ttl(ttl_s: float) -> None:
    if not (isfinite(ttl_s) and ttl_s > 0):
        raise InvalidResource("ttl_s", f"{ttl_s!r} must be a finite number of seconds above 0")


def _next_generation(before: EphemeralResource | None, capacity: int, lease_expires_at_s: float) -> int:
    if before is None:
        return 1
    renewed = before.capacity == capacity and before.lease_expires_at_s <= lease_expires_at_s
    return before.generation + (not renewed)


def _after(entry: _Entry | None, new: EphemeralResource) -> _Entry:
    if entry is None:
        return _Entry(new, new.lease_expires_at_s)
    stored, until_s = entry.resource, max(entry.fenced_until_s, new.lease_expires_at_s)
    if new.generation > stored.generation:
        return _Entry(new, until_s)
    if new.generation < stored.generation or new.capacity != stored.capacity:
        raise StaleVersion(
            f"{new.owner}/{new.name} on {new.node} is at generation {stored.generation} "
            f"with capacity {stored.capacity}; "
            f"generation {new.generation} with capacity {new.capacity} comes too late"
        )
    # A renewal that arrives after a later one must not shorten the lease.
    return _Entry(new if new.lease_expires_at_s >= stored.lease_expires_at_s else stored, until_s)
