"""Operations, and the nodes that many of them are about."""

from typing import Any

from pydantic import Field

from api.schemas.fields import Request, View, example


class OperationError(View):
    """Why an operation failed: `type` as in problem documents."""

    type: str
    detail: str
    field: str | None = Field(description="The field of the request that was refused, if it was one.")


class OperationView(View):
    """What the scheduler was asked to do, and the outcome."""

    id: str
    kind: str
    subject: str
    state: str = Field(description="pending, done or failed")
    result: dict[str, Any]
    error: OperationError | None
    by: str
    created_at_s: float
    finished_at_s: float | None


class DrainRequest(Request):
    """How many seconds the node has to become empty."""

    model_config = example(window_s=60.0)

    window_s: float = Field(
        ge=0, le=31_536_000, description="Seconds until no lease may be left there; gangs checkpoint before they stop."
    )


class NodeView(View):
    """A node, and what it is to the scheduler."""

    name: str
    state: str = Field(description="ready, cordoned, draining, drained or lost")
    since_s: float = Field(description="When it entered that state.")
    drain_by_s: float | None = Field(description="The end of its drain's window.")
    by: str = Field(description="The operator that cordoned, drained or uncordoned it last.")
    region: str | None
    problem: str = Field(description="Why its workers cannot be used now, and what to do; empty if they can.")
    capacity: dict[str, int] = Field(description="Workers by accelerator type; empty while the node is lost.")
    jobs: list[str] = Field(description="Ids of the jobs that hold workers there, of those that you may see.")


class NodeList(View):
    """Sorted by name."""

    items: list[NodeView]
