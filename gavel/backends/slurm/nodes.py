"""Which accelerators a Slurm node has, what others use of them, and why it cannot be used: from `sinfo --json`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gavel.backends.accelerators import slug
from gavel.backends.nodes.protocol import ListedNode, Slot
from gavel.backends.slurm.protocol import SlurmSettings

GRES = re.compile(r"([^:(),]+)(?::([^:(),]+))?(?::(\d+))?(?:\([^)]*\))?")
GONE = {"DOWN", "FUTURE", "ERROR"}
GONE_FLAGS = {"POWERED_DOWN", "POWERING_DOWN", "POWERED_OFF", "REBOOT_ISSUED"}
SILENT = "NOT_RESPONDING"
UNUSABLE = {"DRAIN": "drained", "FAIL": "failing", "MAINTENANCE": "in maintenance", "INVALID_REG": "invalid"}
GPU = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node as Slurm lists it. `used`: units of each resource in use, by anybody; `idle_cpus`: that nobody has.

    `is_silent`: it does not respond to Slurm, which has just started itself, or will soon give the node up.
    `type_feature`: the feature that names the type of accelerators whose resource does not; "": none does.
    """

    listed: ListedNode
    used: Mapping[str, int]
    idle_cpus: int
    is_there: bool
    is_silent: bool
    type_feature: str = ""

    def has(self, resource: str, units: int, feature: str) -> bool:
        """Return True if it has so many units of a resource, of the type that the feature names."""
        return self.type_feature == feature and sum(slot.resource == resource for slot in self.listed.slots) >= units


def nodes_of(listed: Iterable[Mapping[str, Any]], partition: str, settings: SlurmSettings) -> tuple[SlurmNode, ...]:
    """Return the nodes of the partition, sorted by name."""
    ours = [each for each in listed if partition in each.get("partitions", ())]
    return tuple(sorted((_node(each, settings) for each in ours), key=lambda node: node.listed.name))


def _node(row: Mapping[str, Any], settings: SlurmSettings) -> SlurmNode:
    flags, name = {str(each).upper() for each in row.get("state_flags", ())}, str(row["name"])
    state = str(row.get("state", "unknown")).upper()
    features = [each for each in str(row.get("active_features", "")).split(",") if each]
    resources = resources_of(str(row.get("gres", "")), settings.gres)
    return SlurmNode(
        listed=ListedNode(
            node_id=name,
            name=slug(name) or "node",
            address=str(row.get("address") or name),
            cpu_cores=int(row.get("cpus", 1)),
            memory_bytes=int(row.get("real_memory", 0)) << 20,
            slots=tuple(_slots(resources, features, settings)),
            problem=_problem(flags | {state}, str(row.get("reason", ""))),
            labels={label: "true" for each in features if (label := slug(each))},
        ),
        used=resources_of(str(row.get("gres_used", "")), settings.gres),
        idle_cpus=int(row.get("idle_cpus", 0)),
        is_there=state not in GONE and not flags & GONE_FLAGS,
        is_silent=SILENT in flags,
        type_feature=_type_feature(features, settings),
    )


def resources_of(text: str, names: Iterable[str]) -> dict[str, int]:
    """Return the units of each resource, `NAME` or `NAME:TYPE`, in Slurm's `gpu:a100:4(S:0-1),acc:2`."""
    counted: Counter[str] = Counter()
    for name, kind, count in GRES.findall(text):
        if kind.isdigit() and not count:  # NAME:COUNT
            kind, count = "", kind  # noqa: PLW2901
        if name.strip() in names:
            counted[":".join(filter(None, (name.strip(), kind)))] += int(count or 1)
    return dict(counted)


def _slots(resources: Mapping[str, int], features: Iterable[str], settings: SlurmSettings) -> Iterable[Slot]:
    named = _type_feature(features, settings)
    for resource, count in sorted(resources.items()):
        name, _, kind = resource.partition(":")
        for index in range(count):
            yield Slot(accelerator_type=slug(kind or named or name), resource=resource, index=index)


def _type_feature(features: Iterable[str], settings: SlurmSettings) -> str:
    return next((each for each in features if each in settings.type_features), "")


def _problem(flags: Iterable[str], reason: str) -> str:
    """Return why an admin, or Slurm itself, lets nothing start on the node; "" if it may."""
    if SILENT in flags or "UNKNOWN" in flags:
        return "it does not respond to Slurm"
    what = next((text for flag, text in UNUSABLE.items() if flag in flags), "")
    return f"it is {what} in Slurm{f': {reason}' if reason else ''}" if what else ""


def taken_of(node: SlurmNode, ours: Mapping[str, int], cpus_per_worker: int) -> dict[str, int]:
    """Return how many units of each resource others use, or have no core left for.

    `ours`: units that our allocations hold there.
    """
    taken: dict[str, int] = {}
    cores = node.idle_cpus // cpus_per_worker
    for resource, total in Counter(slot.resource for slot in node.listed.slots).items():
        others = max(node.used.get(resource, 0) - ours.get(resource, 0), 0)
        free = total - others - ours.get(resource, 0)
        taken[resource] = others + max(free - cores, 0)
        cores -= min(max(free, 0), cores)
    return {resource: units for resource, units in taken.items() if units}
