"""The client's calls about nodes, and about operations, which is what such calls answer with."""

from typing import Any, cast
from urllib.parse import quote

from gavel.client.answers import Node, Operation


class NodeCalls:
    """Part of `Client`."""

    def nodes(self) -> list[Node]:
        """Nodes with their states, by name."""
        return cast(list[Node], self._call("GET", "/v1/nodes")["items"])

    def cordon(self, node: str, *, wait_s: int = 2) -> Operation:
        """No new leases there. Waits so long for the scheduler; `pending` afterwards: it will be done."""
        return self._ask(node, "cordon", wait_s)

    def uncordon(self, node: str, *, wait_s: int = 2) -> Operation:
        """New leases there again; ends a drain."""
        return self._ask(node, "uncordon", wait_s)

    def drain(self, node: str, window_s: float, *, wait_s: int = 2) -> Operation:
        """No lease there outlives the window; the node is `drained` once nothing runs there."""
        return self._ask(node, "drain", wait_s, json={"window_s": float(window_s)})

    def operation(self, operation_id: str) -> Operation:
        """What became of something asked of the scheduler."""
        return cast(Operation, self._call("GET", f"/v1/operations/{quote(operation_id, safe='')}"))

    def _ask(self, node: str, what: str, wait_s: int, **request: Any) -> Operation:
        path = f"/v1/nodes/{quote(node, safe='')}/{what}"
        return cast(Operation, self._call("POST", path, headers={"Prefer": f"wait={wait_s}"}, **request))

    def _call(self, method: str, path: str, **request: Any) -> Any:
        raise NotImplementedError
