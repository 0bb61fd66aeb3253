"""The rights that the service needs at the API server, and which of them it does not have."""

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from gavel.backends.kubernetes.api import Api, Refused, rule_text
from gavel.errors import BackendUnavailable

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
AGAIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource, in all namespaces or, `is_namespaced`, in that of the service's pods only."""

    verb: str
    resource: str
    group: str = ""
    is_namespaced: bool = False


OF_GANGS = (
    *(Right(verb=verb, resource=resource) for resource in ("nodes", "pods") for verb in ("list", "watch")),
    Right(verb="patch", resource="nodes/status"),
    *(Right(verb=verb, resource="pods", is_namespaced=True) for verb in ("create", "delete")),
)
"""What the backend calls on any cluster."""
OF_EVENTS = Right(verb="list", resource="events", is_namespaced=True)
"""By which a pod that does not start is told with its reason. Without it gangs run as well."""


OF_CORDONS = Right(verb="patch", resource="nodes")
"""By which nodes that an operator closes are cordoned; asked for only when one is."""


class Rights:
    """Knows which of these rights the service does not have; asked again for as long as any is missing."""

    def __init__(self, api: Api, rights: Iterable[Right], namespace: str) -> None:
        self._api, self._rights, self._namespace = api, tuple(rights), namespace
        self._due_s = 0.0
        self._lacking: tuple[Right, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each right that is missing, with the rule that grants it."""
        return tuple(_sentence(each) for each in self._lacking)

    @property
    def lacking(self) -> tuple[Right, ...]:
        """Return the rights that are missing, as far as is known."""
        return self._lacking

    def need(self, rights: Iterable[Right]) -> None:
        """Set the rights that are needed from now on."""
        needed = tuple(rights)
        if needed != self._rights:
            self._rights = needed
            self.ask_again()

    def ask_again(self) -> None:
        """Ask at the next look, since a call was refused."""
        self._due_s = 0.0

    def look(self) -> None:
        """Ask if it is time to; any user may ask what it may. While the server does not answer, nothing is known."""
        if time.monotonic() < self._due_s:
            return
        with suppress(BackendUnavailable):
            self._lacking = lacking_rights(self._api, self._rights, self._namespace)
            self._due_s = time.monotonic() + AGAIN_S if self._lacking else math.inf


def missing_rights(api: Api, rights: Iterable[Right], namespace: str) -> tuple[str, ...]:
    """Return a sentence for each right that this service does not have, with the rule that grants it.

    Raises BackendUnavailable.
    """
    return tuple(_sentence(each) for each in lacking_rights(api, rights, namespace))


def lacking_rights(api: Api, rights: Iterable[Right], namespace: str) -> tuple[Right, ...]:
    """Return the rights that this service does not have.

    Where the API server does not tell, nothing counts as missing. Raises BackendUnavailable.
    """
    try:
        return tuple(each for each in rights if not _has(api, each, namespace))
    except Refused:
        return ()


def _sentence(right: Right) -> str:
    rule = rule_text(right.verb, right.resource, right.group, is_namespaced=right.is_namespaced)
    return f"the service may not {right.verb} {right.resource} in Kubernetes{rule}"


def _has(api: Api, right: Right, namespace: str) -> bool:
    resource, _, part = right.resource.partition("/")
    asked = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
    where = {"namespace": namespace} if right.is_namespaced else {}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**asked, **where}},
    }
    return bool(api.create(REVIEWS, body)["status"].get("allowed"))
