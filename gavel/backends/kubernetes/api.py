"""Calls to the API server by the official client, in plain JSON: its classes take longer than the calls."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from gavel.errors import BackendUnavailable, InvalidRequest

LIMIT_S = 10.0  # seconds for a call
WATCH_S = 300  # seconds after which a watch is asked for anew, from where it was
CONNECTIONS_MAX = 32
SILENT_S = 400.0  # seconds without a byte after which a watch counts as broken
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"

Object = Mapping[str, Any]


class Refused(Exception):
    """The API server does not do it. `status` is that of HTTP, `reason` its own word, such as AlreadyExists."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Api:
    """The API server. `calls` counts calls by verb. Raises InvalidRequest if nothing says where it is."""

    def __init__(self, kubeconfig: str, context: str, calls: Counter[str]) -> None:
        self._client = _client(kubeconfig, context)
        self._calls = calls

    def get(self, path: str, **query: str) -> Object:
        """Return an object, or a list of them. Raises Refused, BackendUnavailable."""
        return self._call("get" if not query else "list", "GET", path, query)

    def create(self, path: str, body: Object) -> Object:
        """Return the object as the server made it. Raises Refused, BackendUnavailable."""
        return self._call("create", "POST", path, {}, body)

    def delete(self, path: str, *, grace_s: int | None = None) -> None:
        """Delete an object; one that is not there is no fault. Raises Refused, BackendUnavailable."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        try:
            self._call(
                "delete", "DELETE", path, {}, {**body, **({} if grace_s is None else {"gracePeriodSeconds": grace_s})}
            )
        except Refused as problem:
            if problem.status != 404:
                raise

    def patch(self, path: str, body: object, kind: str) -> Object:
        """Return the changed object; `kind` is the patch's media type. Raises Refused, BackendUnavailable."""
        return self._call("patch", "PATCH", path, {}, body, kind)

    def apply(self, path: str, body: Object, manager: str) -> Object:
        """Return the object after a server-side apply: what this manager does not name any more is removed.

        Raises Refused, BackendUnavailable.
        """
        return self._call("apply", "PATCH", path, {"fieldManager": manager, "force": "true"}, body, APPLY)

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """Yield the events after a version, until the server ends the watch. Raises Refused, BackendUnavailable."""
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        self._calls["watch"] += 1
        response = self._request("GET", path, query, None, "application/json", (LIMIT_S, SILENT_S))
        rest = b""
        try:
            for part in response.stream(1 << 16, decode_content=False):
                *lines, rest = (rest + part).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        except urllib3.exceptions.HTTPError as problem:
            raise BackendUnavailable(f"Kubernetes does not answer: {problem}") from None
        finally:
            response.close()

    def _call(
        self, verb: str, method: str, path: str, query: Mapping[str, str], body: object = None, kind: str = ""
    ) -> Object:
        self._calls[verb] += 1
        response = self._request(method, path, query, body, kind or "application/json", LIMIT_S)
        answer: Object = json.loads(response.data)
        return answer

    def _request(
        self, method: str, path: str, query: Mapping[str, str], body: object, kind: str, limit_s: Any
    ) -> urllib3.HTTPResponse:
        text = None if body is None else json.dumps(body) if kind == APPLY else body
        headers = {"Accept": "application/json", "Content-Type": kind}
        parts = self._client.param_serialize(
            method, path, query_params=[*query.items()], header_params=headers, body=text, auth_settings=["BearerToken"]
        )
        try:
            response: urllib3.HTTPResponse = self._client.call_api(*parts, _request_timeout=limit_s).response
            if response.status >= 300:
                raise _refusal(response.status, response.data)
        except (urllib3.exceptions.HTTPError, OSError) as problem:
            raise BackendUnavailable(f"Kubernetes does not answer: {_short(problem)}") from None
        except client.ApiException as problem:
            raise BackendUnavailable(f"Kubernetes does not answer: {problem.reason}") from None
        return response


def _client(kubeconfig: str, context: str) -> client.ApiClient:
    path = kubeconfig or os.environ.get("KUBECONFIG", "")  # the client reads the variable at its import only
    own = client.Configuration()
    own.retries, own.connection_pool_maxsize = 0, CONNECTIONS_MAX
    try:
        if not path and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=own)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=path or None, context=context or None, client_configuration=own
            )
        return client.ApiClient(own)
    except (ConfigException, OSError, ValueError, KeyError, TypeError) as problem:
        text = f"no Kubernetes cluster to run on: {_short(problem)}"
        raise InvalidRequest("backend", f"{text}; set kubeconfig and context of the section kubernetes") from None


def _refusal(status: int, body: bytes) -> Exception:
    try:
        answer = json.loads(body)
        message, reason = str(answer["message"]), str(answer.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        message, reason = body.decode(errors="replace")[:200] or f"HTTP {status}", ""
    if status >= 500 or status == 429:
        return BackendUnavailable(f"Kubernetes does not answer: {message}")
    if status == 401:
        return Refused(status, reason, "Kubernetes does not know this user: renew the credentials of the kubeconfig")
    return Refused(status, reason, f"{message}{_rule(message)}")


def _rule(message: str) -> str:
    """Return the rule that grants what a message says is forbidden; "" if it is about something else."""
    match = re.search(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(.*)', message)
    if match is None:
        return ""
    verb, resource, group, where = match.groups()
    return rule_text(verb, resource, group, is_namespaced="in the namespace" in where)


def rule_text(verb: str, resource: str, group: str, *, is_namespaced: bool) -> str:
    """Return what grants a right, to be put after the sentence that says that it is missing."""
    kind = "Role" if is_namespaced else "ClusterRole"
    return f'; grant it by a {kind} with the rule apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]'


def _short(problem: BaseException) -> str:
    return " ".join(str(problem).split())[-200:]


def items_of(listed: Object) -> Sequence[Object]:
    """Return the objects of a list."""
    items: Sequence[Object] = listed.get("items") or ()
    return items
