"""A job's calls to the service over REST: read the cluster's state, set ephemeral resources of its own."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

_CALL_LIMIT_S = 20.0
_OPERATION_LIMIT_S = 30.0
_POLL_S = 0.02

NodeSpec = str | list[str] | Mapping[str, int]
"""A node; several; or a vector {owner/name: amount}: every node that has that much free."""


class ServiceError(RuntimeError):
    """The service refused, with the reason, or did not answer. `status` is HTTP's, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Units:
    """Units of a resource on a node, and those that nobody holds (negative after a shrink)."""

    capacity: int
    free: int


class Write(Protocol):
    """A name's new capacity on a node, as gavel.ephemeral.libraries defines it."""

    @property
    def name(self) -> str:
        """`owner/name`."""

    @property
    def node(self) -> str:
        """The node."""

    @property
    def capacity(self) -> int:
        """The new capacity; 0 deletes."""

    @property
    def expect(self) -> Any:
        """The units that were read, with `capacity` and `free`; None accepts any."""


class JobCluster:
    """The cluster as this job may read and change it, by the two calls that the libraries of gavel.ephemeral use.

    What is set has a lease of `ttl_s` seconds, the job as owner (`job.id/...`), and is on nodes that the job holds.
    """

    def __init__(self, url: str, token: str, ttl_s: float) -> None:
        self._url, self._token, self._ttl_s = url, token, ttl_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get_cluster_state(self) -> dict[str, dict[str, Units]]:
        """Return {node: {owner/name: units}}, one consistent view. Raises ServiceError."""
        cluster = self._call("GET", "/v1/cluster")
        state: dict[str, dict[str, Units]] = {node["name"]: {} for node in cluster["nodes"]}
        for worker in cluster["workers"]:
            state[worker["node"]][f"node/worker-{worker['id']}"] = Units(1, 0 if worker["busy"] else 1)
        for each in cluster["resources"]:
            state.setdefault(each["node"], {})[f"{each['owner']}/{each['name']}"] = Units(
                each["capacity"], each["free"]
            )
        return state

    def set_resource(self, *writes: Write) -> None:
        """Write all of them in one transaction or, on an error, none. Raises ServiceError."""
        self.set_all(_item(write, self._ttl_s) for write in writes)

    def set_all(self, items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Write items of `POST /v1/resources/batch`, all or none; return what was written. Raises ServiceError."""
        body = {"resources": list(items)}
        return list(self._finished(self._call("POST", "/v1/resources/batch", body))["resources"])

    def _finished(self, operation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Wait until the scheduler has applied an operation; return its result. Raises ServiceError."""
        deadline_s = time.monotonic() + _OPERATION_LIMIT_S
        while operation["state"] == "pending":
            if time.monotonic() > deadline_s:
                raise ServiceError(0, f"the scheduler did not come to it within {_OPERATION_LIMIT_S:g} s")
            time.sleep(_POLL_S)
            operation = self._call("GET", f"/v1/operations/{quote(operation['id'], safe='')}")
        if operation["state"] == "failed":
            raise ServiceError(409, str(operation["error"]))
        result: Mapping[str, Any] = operation["result"]
        return result

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  the address is the service's own
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "Prefer": "wait=2",
            },
        )
        try:
            with self._opener.open(request, timeout=_CALL_LIMIT_S) as answer:
                value: dict[str, Any] = json.load(answer)
                return value
        except urllib.error.HTTPError as error:
            with error:
                raise ServiceError(error.code, _detail(error.read())) from None
        except (OSError, ValueError) as error:
            raise ServiceError(0, f"the service at {self._url} did not answer: {error}") from error


def _item(write: Write, ttl_s: float) -> dict[str, Any]:
    expect = None if write.expect is None else {"capacity": write.expect.capacity, "free": write.expect.free}
    owner, _, name = write.name.partition("/")
    item = {"owner": owner, "name": name, "nodes": write.node, "capacity": write.capacity, "ttl_s": ttl_s}
    return item | ({"expect": expect} if expect else {})


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:500]
