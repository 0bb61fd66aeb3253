"""Which accelerators a node of Kubernetes has, what others use of them, and why it cannot be used."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gavel.backends.accelerators import slug
from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.cordons import is_cordoned_for_us
from gavel.backends.kubernetes.pods import Pod
from gavel.backends.kubernetes.protocol import DOMAIN, KubernetesSettings
from gavel.backends.kubernetes.quantities import number_of
from gavel.backends.nodes.protocol import ListedNode, Slot

TYPE_LABELS = {
    "nvidia.com": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name", "amd.com/gpu.family"),
    "google.com": ("cloud.google.com/gke-tpu-accelerator",),
}
OWN_TYPE, OWN_PRICE, OWN_MEMORY = (f"{DOMAIN}/{name}" for name in ("type", "price-usd-per-hour", "memory-gb"))
REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
MIG = "nvidia.com/mig-"
CORDONED = "node.kubernetes.io/unschedulable"
MIB = 1 << 20
GENERIC = {"gpu", "tpu", "i915", "xe"}  # names of resources that say little without their vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the API server shows it.

    `own`: our extended resources on it; `is_silent`: its kubelet is not heard; `is_closed`: somebody has cordoned it.
    """

    listed: ListedNode
    own: Mapping[str, str]
    is_silent: bool
    is_closed: bool = False


def node_of(shown: Object, settings: KubernetesSettings) -> Node:
    """Return a node with its accelerators; none of them are ours to use where the selector of our pods excludes it."""
    names, status, own = shown["metadata"], shown.get("status", {}), f"{settings.domain}/"
    labels, units = names.get("labels") or {}, status.get("allocatable") or {}
    is_chosen = all(labels.get(name) == value for name, value in settings.node_selector.items())
    spec, is_cordoned = shown.get("spec", {}), is_cordoned_for_us(shown, settings) if settings.cordons else None
    ready: Object = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), {})
    return Node(
        listed=ListedNode(
            node_id=names["name"],
            name=slug(names["name"]) or "node",
            address=_address(status) or names["name"],
            cpu_cores=int(number_of(units.get("cpu", "1"))),
            memory_bytes=int(number_of(units.get("memory", "0"))),
            region=next((labels[name] for name in REGIONS if labels.get(name)), "local"),
            slots=tuple(_slots(units, labels, settings)) if is_chosen else (),
            problem=_problem({**spec, "unschedulable": False} if is_cordoned else spec, ready, settings),
            labels={name: str(value) for name, value in labels.items()},
            is_cordoned=is_cordoned,
        ),
        own={name: str(amount) for name, amount in (status.get("capacity") or {}).items() if name.startswith(own)},
        is_silent=ready.get("status") != "True",
        is_closed=bool(spec.get("unschedulable")),
    )


def _address(status: Object) -> str:
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    return str(addresses.get("InternalIP") or addresses.get("Hostname") or "")


def _slots(units: Mapping[str, str], labels: Mapping[str, str], settings: KubernetesSettings) -> Iterable[Slot]:
    for resource in sorted(units):
        if resource in settings.resources or resource.startswith(MIG):
            for index in range(int(number_of(units[resource]))):
                yield Slot(
                    accelerator_type=_type(resource, labels),
                    resource=resource,
                    index=index,
                    price_usd_per_hour=_price(labels.get(OWN_PRICE, "")),
                    memory_bytes=_memory(resource, labels),
                )


def _type(resource: str, labels: Mapping[str, str]) -> str:
    """Return the type of a resource's accelerators: as our label says, else the vendor's labels, else its own name."""
    domain, _, name = resource.partition("/")
    stated = labels.get(OWN_TYPE) or next(
        (labels[each] for each in TYPE_LABELS.get(domain, ()) if labels.get(each)), ""
    )
    if resource.startswith(MIG):
        return slug(f"{stated or 'nvidia'}-{name}")
    if stated:
        return slug(stated if domain != "amd.com" or "amd" in stated.lower() else f"amd-{stated}")
    return slug(name if name not in GENERIC else f"{domain.split('.')[-2]}-{name}")


def _price(label: str) -> float:
    return float(label) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", label) else 1.0


def _memory(resource: str, labels: Mapping[str, str]) -> int:
    """Return the memory of each accelerator in bytes, of our label in GB, NVIDIA's in MiB or AMD's; 0: not known."""
    if OWN_MEMORY in labels:
        return int(number_of(f"{labels[OWN_MEMORY]}G"))
    named = resource if resource.startswith(MIG) else "nvidia.com/gpu"
    if resource.startswith("nvidia.com/"):
        return int(number_of(labels.get(f"{named}.memory", "0"))) * MIB
    size = labels.get("amd.com/gpu.vram", "") if resource.startswith("amd.com/") else ""
    return int(number_of(f"{size}i" if size[-1:].isalpha() else size))


def _problem(spec: Object, ready: Object, settings: KubernetesSettings) -> str:
    """Return why nothing of ours may start on the node; "" if it may."""
    if spec.get("unschedulable"):
        return "it is cordoned in Kubernetes"
    if ready.get("status") != "True":
        why = ready.get("reason") or "its kubelet has not spoken"
        return f"it is not ready in Kubernetes: {why}"
    taints = [each for each in spec.get("taints") or () if each.get("effect") in ("NoSchedule", "NoExecute")]
    refused = [each for each in taints if each["key"] != CORDONED and not _is_tolerated(each, settings)]
    if not refused:
        return ""
    taint = "{key}={value}:{effect}".format(**{"value": "", **refused[0]})
    return f"its taint {taint} keeps pods away: add it to tolerations of the section kubernetes"


def _is_tolerated(taint: Object, settings: KubernetesSettings) -> bool:
    """Return True if our pods tolerate the taint, by the rules of Kubernetes."""
    for each in settings.tolerations:
        is_any = each.get("operator") == "Exists"
        has_key = each.get("key") == taint["key"] or (is_any and not each.get("key"))
        has_value = is_any or each.get("value", "") == taint.get("value", "")
        if has_key and has_value and each.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def taken_of(pods: Iterable[Pod], resources: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return how many units of each accelerator resource these pods hold, by node."""
    names, taken = set(resources), dict[str, Counter[str]]()
    for pod in pods:
        for name, amount in pod.requests.items() if pod.is_bound else ():
            if name in names or name.startswith(MIG):
                taken.setdefault(pod.node, Counter())[name] += int(amount)
    return {node: dict(held) for node, held in taken.items()}
