"""The clients' calls about nodes and operations. A call that changes a node returns an operation."""

from typing import Any

from gavel.client.answers import InfeasibleType, Node, Operation
from gavel.client.script import Method, Script, asked, get, listed, part


class NodeCalls:
    """Calls about nodes, part of both clients."""

    @Method
    def nodes(self) -> Script[list[Node]]:
        """Return nodes with their states, by name."""
        return listed("/v1/nodes")

    @Method
    def node(self, name: str) -> Script[Node]:
        """Return one node."""
        return get(f"/v1/nodes/{part(name)}")

    @Method
    def cordon(self, node: str, *, wait_s: int = 2) -> Script[Operation]:
        """Give no new leases on the node.

        Waits `wait_s` for the scheduler. A `pending` operation will still be done.
        """
        return _request(node, "cordon", wait_s)

    @Method
    def uncordon(self, node: str, *, wait_s: int = 2) -> Script[Operation]:
        """Give leases on the node again. This ends a drain."""
        return _request(node, "uncordon", wait_s)

    @Method
    def drain(self, node: str, window_s: float, *, wait_s: int = 2) -> Script[Operation]:
        """Empty the node within the window: no lease outlives it. The node is `drained` once nothing runs there."""
        return _request(node, "drain", wait_s, json={"window_s": float(window_s)})

    @Method
    def infeasible_types(self) -> Script[list[InfeasibleType]]:
        """Return the accelerator types on which the caller's jobs did not fit (operators: everybody's)."""
        return listed("/v1/infeasible-types")

    @Method
    def clear_infeasible_type(self, mark: str, *, wait_s: int = 2) -> Script[Operation]:
        """Let the jobs of that mark, an id of the list, run on the accelerator type again."""
        return asked("DELETE", f"/v1/infeasible-types/{part(mark)}", wait_s)

    @Method
    def operation(self, operation_id: str) -> Script[Operation]:
        """Return the outcome of a command to the scheduler."""
        return get(f"/v1/operations/{part(operation_id)}")


def _request(node: str, what: str, wait_s: int, **request: Any) -> Script[Any]:
    return asked("POST", f"/v1/nodes/{part(node)}/{what}", wait_s, **request)
