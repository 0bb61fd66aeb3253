"""Which accelerators a Ray node has, from the resources and labels that it was started with.

* `gavel:TYPE` custom resources: that many workers of the type, whatever they are;
* else `GPU`, `TPU` and the like, of the type that Ray found (`accelerator_type:A100`, label `ray.io/accelerator-type`),
  or that label `gavel/accelerator-type` states.
"""

import re
from collections.abc import Mapping

from gavel.backends.accelerators import slug
from gavel.backends.nodes.protocol import Slot

OWN_PREFIX = "gavel:"
FOUND_PREFIX = "accelerator_type:"
VENDOR_RESOURCES = ("GPU", "TPU", "neuron_cores", "HPU", "NPU")
TYPE_LABELS = ("gavel/accelerator-type", "ray.io/accelerator-type")
CPUS_LABEL = "gavel/cpus"
PRICE_LABEL = "gavel/price-usd-per-hour"
MEMORY_LABEL = "gavel/accelerator-memory-gb"


def slots_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> tuple[Slot, ...]:
    """Return the accelerators of a node, grouped by type. Fractions of a unit are no accelerator."""
    price = _price(labels.get(PRICE_LABEL, ""))
    memory_bytes = _memory_bytes(labels.get(MEMORY_LABEL, ""))
    cpus = _cpus(labels.get(CPUS_LABEL, ""))
    counted = _own(resources) or _vendors(resources, labels)
    units = [(kind, resource, index) for kind, resource, count in counted for index in range(count)]
    return tuple(
        Slot(
            accelerator_type=kind,
            resource=resource,
            index=index,
            cpus=(cpus[place % len(cpus)],) if cpus else (),
            price_usd_per_hour=price,
            memory_bytes=memory_bytes,
        )
        for place, (kind, resource, index) in enumerate(units)
    )


def _own(resources: Mapping[str, float]) -> list[tuple[str, str, int]]:
    """Return (type, resource, count) of each `gavel:TYPE`."""
    mine = sorted(name for name in resources if name.startswith(OWN_PREFIX))
    return [(slug(name.removeprefix(OWN_PREFIX)), name, int(resources[name])) for name in mine]


def _vendors(resources: Mapping[str, float], labels: Mapping[str, str]) -> list[tuple[str, str, int]]:
    stated = next((labels[name] for name in TYPE_LABELS if labels.get(name)), "")
    detected = next(
        (name.removeprefix(FOUND_PREFIX) for name in sorted(resources) if name.startswith(FOUND_PREFIX)), ""
    )
    return [
        (slug(stated or detected or name), name, int(resources[name])) for name in VENDOR_RESOURCES if name in resources
    ]


def _cpus(label: str) -> tuple[int, ...]:
    """Return the cores of the label `0_1_2`, to which the workers are pinned in turn; labels may hold no comma."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", label))


def _price(label: str) -> float:
    return float(label) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", label) else 1.0


def _memory_bytes(label: str) -> int:
    """Return the memory of each accelerator of a node, of its label in GB (10^9 bytes); 0: not known."""
    return int(float(label) * 10**9) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", label) else 0
