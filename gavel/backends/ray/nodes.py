"""The nodes of a Ray cluster, by names that stay the same though Ray's ids change."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gavel.backends.accelerators import slug
from gavel.backends.nodes.protocol import ListedNode
from gavel.backends.ray.slots import slots_of

NAME_LABEL = "gavel/node"
REGION_LABELS = ("ray.io/availability-region", "gavel/region")


def ray_nodes(listed: Iterable[Mapping[str, Any]]) -> tuple[ListedNode, ...]:
    """The nodes that are alive, as `ray.nodes()` lists them, sorted by name.

    A node is called by its label `gavel/node`, else by its host; where several would be called the same, the id is
    added, so that a label should name them: names with an id change when Ray is restarted.
    """
    alive = [each for each in listed if each["Alive"]]
    names = node_names(alive)
    nodes = (_ray_node(each, names[str(each["NodeID"])]) for each in alive)
    return tuple(sorted(nodes, key=lambda node: node.name))


def node_names(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of each node that is alive, by Ray's id."""
    alive = {str(each["NodeID"]): _name(each) for each in listed if each["Alive"]}
    count = Counter(alive.values())
    return {node_id: name if count[name] == 1 else f"{name}-{node_id[:6]}" for node_id, name in alive.items()}


def _ray_node(listed: Mapping[str, Any], name: str) -> ListedNode:
    labels, resources = listed.get("Labels", {}), listed.get("Resources", {})
    node_id = str(listed["NodeID"])
    slots = slots_of(resources, labels)
    return ListedNode(
        node_id=node_id,
        name=name,
        address=str(listed["NodeManagerAddress"]),
        cpu_cores=int(resources.get("CPU", 0)),
        memory_bytes=int(resources.get("memory", 0)),
        region=next((labels[name] for name in REGION_LABELS if labels.get(name)), "local"),
        slots=slots,
        labels=dict(labels),
    )


def _name(listed: Mapping[str, Any]) -> str:
    label = listed.get("Labels", {}).get(NAME_LABEL)
    return slug(label or str(listed["NodeManagerHostname"]).split(".")[0]) or "node"
