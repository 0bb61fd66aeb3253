"""What the API is sent about resources.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict


class ResourcePut(TypedDict):
    """The value of a name. Writing it again before its lease ends renews it; capacity 0 deletes it."""

    capacity: int  # Units on each node; 0 deletes the name there.
    # A node, several, or what a node must have free, {owner/name: amount}: every node that has it now.
    nodes: str | Sequence[str] | Mapping[str, int]
    num_nodes: NotRequired[int | None]  # At most so many of those nodes.
    ttl_s: NotRequired[float]  # Its lease in seconds: the name is deleted when it ends.
    owner: NotRequired[str | None]  # The owner of the name; by default the job's id, or the operator's name.


class Expected(TypedDict):
    """The units of a name on a node, as the caller read them before."""

    capacity: int
    free: int


class ResourceItem(TypedDict):
    """One name of a batch."""

    capacity: int  # Units on each node; 0 deletes the name there.
    # A node, several, or what a node must have free, {owner/name: amount}: every node that has it now.
    nodes: str | Sequence[str] | Mapping[str, int]
    num_nodes: NotRequired[int | None]  # At most so many of those nodes.
    ttl_s: NotRequired[float]  # Its lease in seconds: the name is deleted when it ends.
    owner: NotRequired[str | None]  # The owner of the name; by default the job's id, or the operator's name.
    name: str
    expect_generation: NotRequired[int | None]  # Compare and set: 0 for `there is none`.
    expect: NotRequired[Expected | None]  # Compare and set on the units instead of the generation.


class ResourceBatch(TypedDict):
    """Names that are written together or not at all."""

    resources: Sequence[ResourceItem]
