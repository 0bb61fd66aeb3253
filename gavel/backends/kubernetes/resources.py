"""Ephemeral resources as extended resources: the names, and the full set of a node by one server-side apply."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from gavel.backends.kubernetes.api import Api, Object
from gavel.backends.kubernetes.pods import needs_of
from gavel.backends.kubernetes.protocol import DOMAIN
from gavel.backends.nodes.protocol import Group
from gavel.ephemeral.names import CAPACITY_MAX, full_name, split_name
from gavel.errors import InvalidResource

NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
NAME_LETTERS = 63
SET_LETTERS = 253 - len("requests.")  # quotas name a resource so
APPLIED_TO_STATUS = "status"
OWNED = f".ephemeral.{DOMAIN}"


def check_extended(name: str) -> str:
    """Return the name of an extended resource. Raises InvalidResource where nodes would take it and pods could not.

    An API server accepts names on nodes that no pod can ask for, so they are checked here.
    """
    domain, slash, own = name.partition("/")
    is_free = not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or domain.startswith("requests."))
    if not (slash and is_free and NAME.fullmatch(own) and SUBDOMAIN.fullmatch(domain) and len(domain) <= SET_LETTERS):
        raise InvalidResource("name", f"{name!r} is no name of an extended resource that pods can ask for")
    return name


def extended_name(full: str) -> str:
    """Return the extended resource of an ephemeral one, `owner/name`. Raises InvalidResource."""
    owner, name = split_name(full)
    full_name(owner, name)
    return check_extended(f"{owner}{OWNED}/{name}")


def ephemeral_name(extended: str) -> str:
    """Return `owner/name` of an extended resource; "" if it is no ephemeral one."""
    domain, _, name = extended.partition("/")
    return f"{domain.removesuffix(OWNED)}/{name}" if domain.endswith(OWNED) else ""


def names_of_gang(group: Group, domain: str) -> dict[str, str]:
    """Return the extended resource that pins a pod to each node of the gang.

    It is the gang's one name, with a number where the pods need different things, so that each finds its own node.
    """
    shapes: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for node, units in needs_of(group).items():
        shapes.setdefault(tuple(sorted(units.items())), []).append(node)
    _, job_id, generation = group.name.split("/")
    own = f"{job_id}.{generation}"
    if not NAME.fullmatch(own) or len(own) > NAME_LETTERS - 4:
        own = f"{hashlib.sha256(job_id.encode()).hexdigest()[:32]}.{generation}"
    numbered = enumerate(shapes.values())
    return {
        node: check_extended(f"{domain}/{own}{f'.{number}' if number else ''}")
        for number, nodes in numbered
        for node in nodes
    }


def wanted_on_nodes(groups: Iterable[Group], domain: str) -> dict[str, dict[str, str]]:
    """Return the full set of every node that has any gang: its extended resources and their amounts."""
    wanted: dict[str, dict[str, str]] = {}
    for group in groups:
        for node, name in names_of_gang(group, domain).items():
            wanted.setdefault(node, {})[name] = "1"
    return wanted


def set_of_node(node: str, amounts: Mapping[str, int | str], version: str = "") -> Object:
    """Return what is applied to the status of a node: the whole set that this manager has there.

    With a `version` it is refused if the node has changed since.
    """
    for name, amount in amounts.items():
        check_extended(name)
        if not 0 <= int(amount) <= CAPACITY_MAX:
            raise InvalidResource("capacity", f"{amount!r} of {name} must be a whole number from 0 to {CAPACITY_MAX}")
    quantities = {name: str(amount) for name, amount in amounts.items()}
    names = {"name": node, **({"resourceVersion": version} if version else {})}
    status = {"capacity": quantities, "allocatable": quantities}
    return {"apiVersion": "v1", "kind": "Node", "metadata": names, "status": status}


def apply_set(api: Api, node: str, amounts: Mapping[str, int | str], manager: str, version: str = "") -> Object:
    """Return the node, on which this manager now has exactly these resources. Raises Refused, BackendUnavailable."""
    path = f"/api/v1/nodes/{quote(node, safe='')}/{APPLIED_TO_STATUS}"
    return api.apply(path, set_of_node(node, amounts, version), manager)
