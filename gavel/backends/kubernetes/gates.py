"""How the scheduler is kept from binding a part of a gang: a gate of its pods, and a PodGroup where one is served."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gavel.backends.kubernetes.api import STRATEGIC, Api, Object, Refused
from gavel.backends.kubernetes.pods import LABELS, Pod
from gavel.backends.kubernetes.protocol import ALLOCATION, GATE
from gavel.backends.kubernetes.rights import Right

GATES_SINCE = (1, 27)  # the first release that has gates without being asked for them
PLURAL = "podgroups"
ALREADY_EXISTS = 409
NOT_FOUND = 404
OF_GATES = Right(verb="patch", resource="pods", is_namespaced=True)
"""Without it nobody could remove the gate, so pods get none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupKind:
    """A kind of PodGroup that an API server may serve, for the gang scheduler that reads it."""

    group: str
    version: str

    @property
    def right(self) -> Right:
        """Return what the service needs to make one."""
        return Right(verb="create", group=self.group, resource=PLURAL, is_namespaced=True)

    @property
    def path(self) -> str:
        """Return where the API server says what it serves of this group and version."""
        return f"/apis/{self.group}/{self.version}"

    def marked(self, pod: Object, name: str) -> Object:
        """Return the pod as a member of the PodGroup of this name."""
        if self is NATIVE:
            return {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": name}}}
        names = pod["metadata"]
        labels = {**names["labels"], f"{self.group}/pod-group": name}
        return {**pod, "metadata": {**names, "labels": labels}}

    def spec(self, pods: int) -> Object:
        """Return the spec of a PodGroup whose pods are bound all or none."""
        return {"schedulingPolicy": {"gang": {"minCount": pods}}} if self is NATIVE else {"minMember": pods}


COSCHEDULING = PodGroupKind(group="scheduling.x-k8s.io", version="v1alpha1")
NATIVE = PodGroupKind(group="scheduling.k8s.io", version="v1beta1")
KINDS = (COSCHEDULING, NATIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """By what a cluster holds the pods of a gang back until all are there: nothing, gates, gates and PodGroups."""

    has_gates: bool = False
    kinds: tuple[PodGroupKind, ...] = ()

    @property
    def rights(self) -> tuple[Right, ...]:
        """Return what the service needs to use all of it."""
        return (OF_GATES, *(kind.right for kind in self.kinds)) if self.has_gates else ()

    def without(self, missing: Iterable[Right]) -> "Holding":
        """Return what can be used without these rights."""
        lacking = set(missing)
        if not self.has_gates or OF_GATES in lacking:
            return Holding()
        return Holding(has_gates=True, kinds=tuple(kind for kind in self.kinds if kind.right not in lacking))

    def held(self, pods: Sequence[Object], name: str) -> Sequence[Object]:
        """Return the pods of a gang as they are created; `name` is that of its PodGroup. A single pod is not held."""
        if not self.has_gates or len(pods) == 1:
            return pods
        gated: list[Object] = [{**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": GATE}]}} for pod in pods]
        for kind in self.kinds:
            gated = [kind.marked(pod, name) for pod in gated]
        return gated


def served(api: Api) -> Holding:
    """Return what the API server knows. Raises BackendUnavailable.

    A PodGroup is owned by the pods of its gang, and so made after them: it is of use only where gates hold them back.
    """
    if _release(api) < GATES_SINCE:
        return Holding()
    return Holding(has_gates=True, kinds=tuple(kind for kind in KINDS if _is_served(api, kind)))


def _release(api: Api) -> tuple[int, ...]:
    """Return major and minor version, which any user may ask; zeros where the server does not tell."""
    try:
        shown = api.get("/version")
    except Refused:
        return 0, 0
    numbers = (re.match(r"\d+", str(shown.get(part) or "")) for part in ("major", "minor"))
    return tuple(int(number[0]) if number else 0 for number in numbers)


def _is_served(api: Api, kind: PodGroupKind) -> bool:
    try:
        return any(each["name"] == PLURAL for each in api.get(kind.path).get("resources") or ())
    except Refused:
        return False


def open_gate(api: Api, path: str) -> None:
    """Remove our gate of a pod, and nobody else's; one without it, or that is gone, is no fault.

    Raises Refused, BackendUnavailable.
    """
    removed: dict[str, Any] = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
    try:
        api.patch(path, removed, STRATEGIC)
    except Refused as problem:
        if problem.status != NOT_FOUND:
            raise


def make_pod_group(api: Api, kind: PodGroupKind, name: str, pods: Iterable[Pod]) -> None:
    """Create the PodGroup of a gang, unless it is there. Raises Refused, BackendUnavailable."""
    made = pod_group(kind, name, [*pods])
    path = f"{kind.path}/namespaces/{quote(made['metadata']['namespace'], safe='')}/{PLURAL}"
    try:
        api.create(path, made)
    except Refused as problem:
        if problem.status != ALREADY_EXISTS:
            raise


def pod_group(kind: PodGroupKind, name: str, pods: list[Pod]) -> Object:
    """Return the PodGroup of a gang. Its pods own it: Kubernetes deletes it when the last of them is gone."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid} for pod in pods]
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": pods[0].namespace,
            "labels": {**LABELS, ALLOCATION: pods[0].allocation},
            "ownerReferences": owners,
        },
        "spec": kind.spec(len(pods)),
    }
