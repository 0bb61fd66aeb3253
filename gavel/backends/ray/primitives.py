"""The libraries of `gavel.ephemeral` for an application on Ray, without the service: two calls, and a place for a task.

    cluster = RayPrimitives(owner="crawl")
    near = CoLocation("crawl/near", {"node/cpu": 1}, tasks=2)          # any library, or several composed
    near.apply(cluster)
    with cluster.placed(near, needs={"node/cpu": 1}, tasks=2) as (one, two):
        ray.get([fetch.options(scheduling_strategy=one).remote(), parse.options(scheduling_strategy=two).remote()])

A small actor keeps the table of names and is the one matcher (ESCHER, section 4): it ends with the application, and all
names with it. It counts `node/cpu` and every other resource that nodes were started with for those who ask it; what Ray
itself runs beside them it does not know.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gavel.backends.accelerators import slug
from gavel.backends.ray.nodes import node_names
from gavel.ephemeral.in_process import InProcess, request_for
from gavel.ephemeral.libraries.primitives import Alternative, Library, Requirement, Write
from gavel.ephemeral.matcher import match
from gavel.ephemeral.names import full_name
from gavel.ephemeral.resources import Availability, GangRequest, ResourceTable
from gavel.errors import BackendUnavailable, Conflict, GavelError, InvalidRequest

POLL_S = 0.005
NODES_EVERY_S = 1.0


class RayPrimitives:
    """`gavel.ephemeral.libraries.primitives.Primitives` on the Ray cluster that this process has joined.

    Every name written must begin with `owner/`; it lives for `ttl_s` unless it is written again. Applications that are
    to see each other's names give the same `table`. Raises BackendUnavailable if Ray has not been initialised.
    """

    def __init__(self, owner: str, *, ttl_s: float = 60.0, table: str = "") -> None:
        if not ray.is_initialized():
            raise BackendUnavailable("call ray.init() first: names live in an actor of the cluster")
        self._owner, self._ttl_s = owner, ttl_s
        full_name(owner, "name")  # raises if the name is invalid for an owner
        named = {"name": f"gavel-table-{table}", "get_if_exists": True} if table else {}
        self._keeper: Any = ray.remote(Keeper).options(num_cpus=0, **named).remote()

    def set_resource(self, *writes: Write) -> None:
        """Write all of them or, on an error, none. Raises StaleVersion, NotFound, InvalidResource, Conflict."""
        foreign = [write.name for write in writes if not write.name.startswith(f"{self._owner}/")]
        if foreign:
            raise Conflict(f"{', '.join(foreign)}: {self._owner} may write names that begin with {self._owner}/ only")
        self._ask(self._keeper.set_resource.remote(writes, self._ttl_s))

    def get_cluster_state(self) -> Mapping[str, Mapping[str, Availability]]:
        """Return {node: {owner/name: availability}}, one consistent view."""
        state: Mapping[str, Mapping[str, Availability]] = self._ask(self._keeper.get_cluster_state.remote())
        return state

    @contextmanager
    def placed(
        self, library: Library, *, needs: Requirement | None = None, tasks: int = 1, within_s: float = 60.0
    ) -> Iterator[list[NodeAffinitySchedulingStrategy]]:
        """Where each of `tasks` tasks is to run; they hold their `needs` and what the library asks until the end.

        Raises BackendUnavailable, with what was missing, if there is no room for all of them together `within_s`.
        """
        ticket = self._ask(self._keeper.request.remote(dict(needs or {}), tuple(library.asks()), tasks))
        try:
            yield [NodeAffinitySchedulingStrategy(node, soft=False) for node in self._wait(ticket, within_s)]
        finally:
            self._ask(self._keeper.release.remote(ticket))

    def _wait(self, ticket: int, within_s: float) -> Sequence[str]:
        gives_up_at_s = time.monotonic() + within_s
        while True:
            nodes, missing = self._ask(self._keeper.look.remote(ticket))
            if nodes:
                return list(nodes)
            if time.monotonic() >= gives_up_at_s:
                raise BackendUnavailable(f"no room for all tasks within {within_s:g} s: {missing}")
            time.sleep(POLL_S)

    def _ask(self, answer: Any) -> Any:
        reply = ray.get(answer)
        if isinstance(reply, _Refusal):
            raise reply.kind(*reply.arguments)
        return reply


class Keeper:
    """The table in an actor: every call is one step, at the actor's own time."""

    def __init__(self) -> None:
        self._table = ResourceTable()
        self._ids: dict[str, str] = {}  # name of a node -> Ray's id
        self._listed_at_s = float("-inf")
        self._requests: dict[int, GangRequest] = {}
        self._places: dict[int, tuple[str, ...]] = {}
        self._tickets = 0

    def set_resource(self, writes: Sequence[Write], ttl_s: float) -> "_Refusal | None":
        """Write all of them or none; return why not."""
        try:
            InProcess(self._table, self._now_s(), ttl_s).set_resource(*writes)
        except GavelError as problem:
            return _refusal(problem)
        return None

    def get_cluster_state(self) -> Mapping[str, Mapping[str, Availability]]:
        """Return one consistent view."""
        return self._table.get_cluster_state(self._now_s())

    def request(self, needs: Requirement, asks: tuple[Alternative, ...], tasks: int) -> "int | _Refusal":
        """Return a ticket for tasks that wait for a place from now on, together."""
        self._tickets += 1
        try:
            request = request_for(("ticket", self._tickets), needs, _Asks(asks), self._now_s(), tasks)
        except GavelError as problem:
            return _refusal(problem)
        self._requests[self._tickets] = request
        return self._tickets

    def look(self, ticket: int) -> tuple[tuple[str, ...], str]:
        """Return Ray ids of the tasks' nodes once they hold what they asked; until then (), and what is missing."""
        now_s = self._now_s()
        self._table.expire(now_s)
        for matched in match(self._table, [*self._requests.values()], now_s):
            self._places[matched.gang[1]] = tuple(self._ids[node] for node in matched.nodes)
        if ticket in self._places:
            return self._places[ticket], ""
        return (), self._table.missing(self._requests[ticket], now_s)

    def release(self, ticket: int) -> None:
        """Release what the tasks hold, or end their wait."""
        self._table.release(("ticket", ticket))
        self._requests.pop(ticket, None)
        self._places.pop(ticket, None)

    def _now_s(self) -> float:
        """Return the time, after updating the nodes if that is due."""
        now_s = time.monotonic()
        if now_s - self._listed_at_s >= NODES_EVERY_S:
            self._listed_at_s = now_s
            self._list()
        return now_s

    def _list(self) -> None:
        listed = {str(each["NodeID"]): each for each in ray.nodes()}  # type: ignore[no-untyped-call]
        ids = {name: node_id for node_id, name in node_names(listed.values()).items()}
        for gone in [name for name, node_id in self._ids.items() if ids.get(name) != node_id]:
            self._table.remove_node(gone)
        for name in ids.keys() - self._ids.keys() | {name for name in ids if self._ids.get(name) != ids[name]}:
            self._table.add_node(name, _physical(listed[ids[name]].get("Resources", {})))
        self._ids = ids


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error for the application to raise: those with several arguments do not survive pickling."""

    kind: type[GavelError]
    arguments: tuple[str, ...]


def _refusal(problem: GavelError) -> _Refusal:
    if isinstance(problem, InvalidRequest):
        return _Refusal(type(problem), (problem.field, problem.message))
    return _Refusal(type(problem), (str(problem),))


class _Asks:
    """What a library asks for, as a library: the application has applied it, the actor only matches."""

    def __init__(self, asks: tuple[Alternative, ...]) -> None:
        self._asks = asks

    def apply(self, cluster: object, companions: object = ()) -> None:
        """Do nothing: the application has applied it already."""

    def asks(self) -> tuple[Alternative, ...]:
        """Return what the library asks for, as it was sent."""
        return self._asks


def _physical(resources: Mapping[str, float]) -> dict[str, int]:
    """Return the whole units that a node was started with, under names that tasks may ask: `node/cpu`, `node/gpu`."""
    own = {slug(name, 63): int(units) for name, units in resources.items() if not name.startswith("node:")}
    return {name: units for name, units in own.items() if name and 0 < units <= 1_000_000}
