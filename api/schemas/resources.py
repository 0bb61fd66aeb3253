"""Ephemeral resources of applications."""

from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.fields import NAME_PATTERN, Name, NodeName, Request, View, example

FullName = Annotated[str, StringConstraints(pattern=NAME_PATTERN[:-1] + "/" + NAME_PATTERN[1:], max_length=127)]
Amount = Annotated[int, Field(ge=1, le=1_000_000_000)]
Nodes = (
    NodeName
    | Annotated[list[NodeName], Field(min_length=1, max_length=1000)]
    | Annotated[dict[FullName, Amount], Field(min_length=1, max_length=64)]
)


class ResourcePut(Request):
    """The value of a name. Writing it again before its lease ends renews it; capacity 0 deletes it."""

    model_config = example(capacity=2, nodes="node-1", ttl_s=60.0)

    capacity: int = Field(ge=0, le=1_000_000_000, description="Units on each node; 0 deletes the name there.")
    nodes: Nodes = Field(
        description="A node, several, or what a node must have free, {owner/name: amount}: every node that has it now."
    )
    num_nodes: int | None = Field(None, ge=1, le=1000, description="At most so many of those nodes.")
    ttl_s: float = Field(60.0, gt=0, le=604_800, description="Its lease in seconds: the name is deleted when it ends.")
    owner: Name | None = Field(
        None, description="The owner of the name; by default the job's id, or the operator's name."
    )


class Expected(Request):
    """The units of a name on a node, as the caller read them before."""

    capacity: int
    free: int


class ResourceItem(ResourcePut):
    """One name of a batch."""

    name: Name
    expect_generation: int | None = Field(None, ge=0, description="Compare and set: 0 for `there is none`.")
    expect: Expected | None = Field(None, description="Compare and set on the units instead of the generation.")


class ResourceBatch(Request):
    """Names that are written together or not at all."""

    model_config = example(resources=[{"name": "lb", "capacity": 1, "nodes": ["node-1", "node-2"]}])

    resources: list[ResourceItem] = Field(min_length=1, max_length=1000)


class ResourceView(View):
    """An ephemeral resource of an application on one node, as of the scheduler's last commit."""

    owner: str
    name: str
    node: str
    capacity: int
    free: int = Field(description="Units that no task holds; negative after a shrink.")
    generation: int = Field(description="Grows with each change of meaning; send it as If-Match.")
    lease_expires_at_s: float
