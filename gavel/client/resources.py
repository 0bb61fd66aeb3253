"""The clients' calls about ephemeral resources (docs/ephemeral-resources.md)."""

from collections.abc import Mapping, Sequence

from gavel.client.answers import Operation
from gavel.client.bodies import ResourceItem
from gavel.client.script import Method, Script, asked, part

NodeSpec = str | Sequence[str] | Mapping[str, int]
"""A node; several; or a vector {owner/name: amount}: every node that has that much free."""


class ResourceCalls:
    """Calls about ephemeral resources, part of both clients."""

    @Method
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
    ) -> Script[Operation]:
        """Create, resize or renew a name. `result` holds what was written. `generation`: change only this one."""
        fields = {"capacity": capacity, "nodes": nodes, "ttl_s": float(ttl_s), "owner": owner, "num_nodes": num_nodes}
        body = {key: value for key, value in fields.items() if value is not None}
        return asked("PUT", f"/v1/resources/{part(name)}", wait_s, _generation(generation), json=body)

    @Method
    def delete_resource(
        self, name: str, *, owner: str | None = None, generation: int | None = None, wait_s: int = 2
    ) -> Script[Operation]:
        """Delete a name on all nodes. Tasks that hold it keep it; no new task starts by it."""
        where = {"owner": owner} if owner else {}
        return asked("DELETE", f"/v1/resources/{part(name)}", wait_s, _generation(generation), params=where)

    @Method
    def set_resources(self, items: Sequence[ResourceItem], *, wait_s: int = 2) -> Script[Operation]:
        """Write many names in one transaction, all or none; items as in `POST /v1/resources/batch`."""
        return asked("POST", "/v1/resources/batch", wait_s, json={"resources": [dict(item) for item in items]})


def _generation(expected: int | None) -> dict[str, str]:
    return {} if expected is None else {"If-Match": f'"{expected}"'}
