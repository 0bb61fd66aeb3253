"""What the API answers about nodes.

Made by scripts/client_types.py of the API's description: change that, then `make client-types`.
"""

from typing import Any, TypedDict


class Node(TypedDict):
    """A node, and what it is to the scheduler."""

    name: str
    state: str  # ready, cordoned, draining, drained or lost
    since_s: float  # When it entered that state.
    drain_by_s: float | None  # The end of its drain's window.
    by: str  # The operator that cordoned, drained or uncordoned it last.
    region: str | None
    problem: str  # Why its workers cannot be used now, and what to do; empty if they can.
    capacity: dict[str, int]  # Workers by accelerator type; empty while the node is lost.
    jobs: list[str]  # Ids of the jobs that hold workers there, of those that you may see.


class OperationError(TypedDict):
    """Why an operation failed: `type` as in problem documents."""

    type: str
    detail: str
    field: str | None  # The field of the request that was refused, if it was one.


class Operation(TypedDict):
    """What the scheduler was asked to do, and the outcome."""

    id: str
    kind: str
    subject: str
    state: str  # pending, done or failed
    result: dict[str, Any]
    error: OperationError | None
    by: str
    created_at_s: float
    finished_at_s: float | None
