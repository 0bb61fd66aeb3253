"""The clients' calls about nodes, and about operations, which is what such calls answer with."""

from typing import Any

from gavel.client.answers import Node, Operation
from gavel.client.script import Method, Script, asked, get, listed, part


class NodeCalls:
    """Part of both clients."""

    @Method
    def nodes(self) -> Script[list[Node]]:
        """Nodes with their states, by name."""
        return listed("/v1/nodes")

    @Method
    def node(self, name: str) -> Script[Node]:
        """One node."""
        return get(f"/v1/nodes/{part(name)}")

    @Method
    def cordon(self, node: str, *, wait_s: int = 2) -> Script[Operation]:
        """No new leases there. Waits so long for the scheduler; `pending` afterwards: it will be done."""
        return _wish(node, "cordon", wait_s)

    @Method
    def uncordon(self, node: str, *, wait_s: int = 2) -> Script[Operation]:
        """New leases there again; ends a drain."""
        return _wish(node, "uncordon", wait_s)

    @Method
    def drain(self, node: str, window_s: float, *, wait_s: int = 2) -> Script[Operation]:
        """No lease there outlives the window; the node is `drained` once nothing runs there."""
        return _wish(node, "drain", wait_s, json={"window_s": float(window_s)})

    @Method
    def operation(self, operation_id: str) -> Script[Operation]:
        """What became of something asked of the scheduler."""
        return get(f"/v1/operations/{part(operation_id)}")


def _wish(node: str, what: str, wait_s: int, **request: Any) -> Script[Any]:
    return asked("POST", f"/v1/nodes/{part(node)}/{what}", wait_s, **request)
