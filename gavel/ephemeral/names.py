"""Checks of the names and amounts of ephemeral resources, made before any backend sees them."""

import math
import re
from collections.abc import Mapping

from gavel.errors import InvalidResource
from gavel.types import EphemeralResource

CAPACITY_MAX = 1_000_000_000
NODE_OWNER = "node"
WORKER_UNITS = 2
"""Units of each worker as a physical resource: a gang takes both, each gang of a packed pair takes one."""

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def full_name(owner: str, name: str) -> str:
    """Return `owner/name`, the form in which tasks require a resource. Raises InvalidResource."""
    for field, label in (("owner", owner), ("name", name)):
        if not LABEL.fullmatch(label):
            raise InvalidResource(
                field, f"{label!r} must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
            )
    return f"{owner}/{name}"


def split_name(full: str, field: str = "name") -> tuple[str, str]:
    """Return (owner, name) of `owner/name`. Raises InvalidResource, which names `field`."""
    owner, slash, name = full.partition("/")
    if not slash:
        raise InvalidResource(field, f"{full!r} must be written owner/name")
    return owner, name


def name_of(resource: EphemeralResource) -> str:
    """Return `owner/name` of a resource. Raises InvalidResource."""
    return full_name(resource.owner, resource.name)


def check_amount(field: str, amount: int, least: int = 0) -> None:
    """Raise InvalidResource unless `amount` is a whole number from `least` to CAPACITY_MAX."""
    if isinstance(amount, bool) or not isinstance(amount, int) or not least <= amount <= CAPACITY_MAX:
        raise InvalidResource(field, f"{amount!r} must be a whole number from {least} to {CAPACITY_MAX}")


def check_requirement(requires: Mapping[str, int]) -> None:
    """Raise InvalidResource unless every key is `owner/name` and every amount at least 1."""
    for key, amount in requires.items():
        full_name(*split_name(key, "requires"))
        check_amount(key, amount, least=1)


def check_resource(resource: EphemeralResource) -> str:
    """Return `owner/name` of a resource; raises InvalidResource unless an application may set it."""
    if resource.owner == NODE_OWNER:
        raise InvalidResource("owner", f"{NODE_OWNER!r} owns the physical resources; choose another owner")
    check_amount("capacity", resource.capacity)
    check_amount("generation", resource.generation, least=1)
    if not math.isfinite(resource.lease_expires_at_s):
        raise InvalidResource("lease_expires_at_s", "must be finite: no ephemeral resource lives for ever")
    return name_of(resource)
