"""The client's calls about ephemeral resources (docs/ephemeral-resources.md)."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from gavel.client.answers import Operation

NodeSpec = str | Sequence[str] | Mapping[str, int]
"""A node; several; or a vector {owner/name: amount}: every node that has that much free."""


class ResourceCalls:
    """Part of `Client`."""

    def set_resource(
        self,
        name: str,
        capacity: int,
        nodes: NodeSpec,
        *,
        ttl_s: float = 60.0,
        owner: str | None = None,
        num_nodes: int | None = None,
        generation: int | None = None,
        wait_s: int = 2,
    ) -> Operation:
        """Create, resize or renew a name; what was written is in `result`. `generation` changes that one only."""
        said = {"capacity": capacity, "nodes": nodes, "ttl_s": float(ttl_s), "owner": owner, "num_nodes": num_nodes}
        body = {key: value for key, value in said.items() if value is not None}
        return self._write("PUT", f"resources/{quote(name, safe='')}", wait_s, generation, json=body)

    def delete_resource(
        self, name: str, *, owner: str | None = None, generation: int | None = None, wait_s: int = 2
    ) -> Operation:
        """Delete a name wherever it is: holders keep it, nobody new starts by it."""
        where = {"owner": owner} if owner else {}
        return self._write("DELETE", f"resources/{quote(name, safe='')}", wait_s, generation, params=where)

    def set_resources(self, items: Sequence[Mapping[str, Any]], *, wait_s: int = 2) -> Operation:
        """Many names in one transaction, all or none; items as in `POST /v1/resources:batch`."""
        return self._write("POST", "resources:batch", wait_s, None, json={"resources": list(items)})

    def _write(self, method: str, path: str, wait_s: int, generation: int | None, **request: Any) -> Operation:
        headers = {"Prefer": f"wait={wait_s}"} | ({} if generation is None else {"If-Match": f'"{generation}"'})
        return cast(Operation, self._call(method, f"/v1/{path}", headers=headers, **request))

    def _call(self, method: str, path: str, **request: Any) -> Any:
        raise NotImplementedError
