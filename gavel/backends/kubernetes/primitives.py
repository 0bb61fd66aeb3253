"""The libraries of `gavel.ephemeral` for an application on Kubernetes, without the service.

Names are extended resources of the nodes:

    cluster = KubernetesPrimitives(owner="crawl")
    near = CoLocation("crawl/near", {"node/cpu": 1}, tasks=2)          # any library, or several composed
    near.apply(cluster)
    cluster.requirements(near, needs={"node/cpu": 1})                  # of the container of each pod

The cluster's own scheduler places the pods: a pod waits until a node has what its containers require. Names live until
they are deleted or `close` is called, not for a time: Kubernetes has no lease for them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from gavel.backends.accelerators import slug
from gavel.backends.kubernetes.api import Api, Object, Refused, items_of
from gavel.backends.kubernetes.pods import Pod, pod_of
from gavel.backends.kubernetes.quantities import number_of
from gavel.backends.kubernetes.resources import apply_set, ephemeral_name, extended_name
from gavel.ephemeral.libraries.primitives import Library, Requirement, Write, total
from gavel.ephemeral.names import NODE_OWNER, check_amount, full_name
from gavel.ephemeral.resources import Availability
from gavel.errors import Conflict, InvalidRequest, NotFound, StaleVersion

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
CHANGED = 409


class KubernetesPrimitives:
    """`gavel.ephemeral.libraries.primitives.Primitives` on a Kubernetes cluster, as kubectl would reach it.

    Every name written must begin with `owner/`; it is the extended resource `OWNER.ephemeral.gavel.internal/NAME` under
    a field manager of the owner's. Applications with the same owner share their names. Raises InvalidRequest if nothing
    says where the cluster is.
    """

    def __init__(self, owner: str, *, kubeconfig: str = "", context: str = "") -> None:
        full_name(owner, "name")  # raises if the name is invalid for an owner
        self._owner, self._manager = owner, f"gavel-{owner}"
        self._api = Api(kubeconfig, context, Counter())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_resource(self, *writes: Write) -> None:
        """Write all of them or, on an error, none. Raises StaleVersion, NotFound, InvalidResource, Conflict, Refused.

        What others write meanwhile is not overwritten: a node that has changed since it was read is StaleVersion.
        """
        for write in writes:
            extended_name(write.name)
            check_amount("capacity", write.capacity)
        foreign = [write.name for write in writes if not write.name.startswith(f"{self._owner}/")]
        if foreign:
            raise Conflict(f"{', '.join(foreign)}: {self._owner} may write names that begin with {self._owner}/ only")
        nodes = {str(each["metadata"]["name"]): each for each in items_of(self._api.get(NODES, limit="0"))}
        self._check(writes, nodes)
        done: list[Object] = []
        try:
            for name in dict.fromkeys(write.node for write in writes):
                wanted = self._own(nodes[name]) | {each.name: each.capacity for each in writes if each.node == name}
                self._apply(nodes[name], wanted)
                done.append(nodes[name])
        except Refused as problem:
            for before in done:
                self._apply(before, self._own(before), is_forced=True)
            if problem.status == CHANGED:
                raise StaleVersion("a node has changed meanwhile: read it again") from None
            raise

    def get_cluster_state(self) -> Mapping[str, Mapping[str, Availability]]:
        """Return {node: {owner/name: availability}}: what nodes have, less what pods require of them."""
        nodes = items_of(self._api.get(NODES, limit="0"))
        return _state(nodes, [pod_of(each) for each in items_of(self._api.get(PODS, limit="0"))])

    def requirements(self, library: Library, needs: Requirement | None = None) -> list[dict[str, str]]:
        """Return what each pod's container has to require, as `requests` and as `limits`, the best alternative first.

        Raises InvalidRequest for what Kubernetes cannot express: that something is free and stays so.
        """
        asked = library.asks()
        if any(each.at_least for each in asked):
            raise InvalidRequest("library", "it asks that something stays free, which a pod cannot require")
        return [_quantities(total((needs or {}, each.requires))) for each in asked]

    def close(self) -> None:
        """Delete every name of the owner's, on all nodes. Raises Refused, BackendUnavailable."""
        for node in items_of(self._api.get(NODES, limit="0")):
            if self._own(node):
                self._apply(node, {}, is_forced=True)

    def _check(self, writes: Iterable[Write], nodes: Mapping[str, Object]) -> None:
        writes = [*writes]
        missing = sorted({write.node for write in writes} - nodes.keys())
        if missing:
            raise NotFound(f"there is no node {missing[0]}")
        if not any(write.expect is not None for write in writes):
            return
        state = self.get_cluster_state()
        for write in writes:
            now = state[write.node].get(write.name, Availability(0, 0))
            if write.expect is not None and (now.capacity, now.free) != (write.expect.capacity, write.expect.free):
                raise StaleVersion(f"{write.name} on {write.node} has changed ({now}): read it again")

    def _own(self, node: Object) -> dict[str, int]:
        return {name: units for name, units in _capacities(node).items() if name.startswith(f"{self._owner}/")}

    def _apply(self, node: Object, wanted: Mapping[str, int], *, is_forced: bool = False) -> None:
        amounts = {extended_name(name): units for name, units in wanted.items() if units}
        version = "" if is_forced else str(node["metadata"]["resourceVersion"])
        apply_set(self._api, str(node["metadata"]["name"]), amounts, self._manager, version)


def _state(nodes: Iterable[Object], pods: Iterable[Pod]) -> dict[str, dict[str, Availability]]:
    """Return what each node has and has free, under names that tasks may ask for."""
    held: dict[str, Counter[str]] = {}
    for pod in pods:
        for name, amount in pod.requests.items() if pod.is_bound else ():
            held.setdefault(pod.node, Counter())[_ephemeral(name)] += int(amount)
    return {
        str(node["metadata"]["name"]): {
            name: Availability(units, units - held.get(node["metadata"]["name"], Counter())[name])
            for name, units in _capacities(node).items()
        }
        for node in nodes
    }


def _capacities(node: Object) -> dict[str, int]:
    units = (node.get("status") or {}).get("allocatable") or {}
    named = {_ephemeral(name): int(number_of(amount)) for name, amount in units.items()}
    return {name: amount for name, amount in named.items() if amount > 0 and name}


def _ephemeral(name: str) -> str:
    """Return the name by which tasks ask for a resource of Kubernetes: `node/cpu`, `node/nvidia-com-gpu`, `app/x`."""
    return ephemeral_name(name) or (f"{NODE_OWNER}/{name}" if name in PLAIN else f"{NODE_OWNER}/{slug(name, 63)}")


def _quantities(needs: Requirement) -> dict[str, str]:
    """Return a requirement as Kubernetes writes it. Raises InvalidRequest for a device that has no plain name."""
    quantities = {}
    for name, amount in needs.items():
        owner, _, own = name.partition("/")
        if owner == NODE_OWNER and own not in PLAIN:
            raise InvalidRequest("needs", f"{name}: of a node's own resources, {', '.join(PLAIN)} can be asked here")
        quantities[own if owner == NODE_OWNER else extended_name(name)] = str(amount)
    return quantities


PLAIN = ("cpu", "memory")
