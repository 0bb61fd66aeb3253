"""Pods: what of any pod matters here, and those that we make."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gavel.backends.accelerators import slug
from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.protocol import ALLOCATION, GATE, KubernetesSettings
from gavel.backends.kubernetes.quantities import number_of
from gavel.backends.nodes.protocol import Group
from gavel.backends.nodes.relay import AgentStart

ENDED = ("Succeeded", "Failed")
RUNTIME = "/gavel-runtime"
UNSTARTABLE = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
}
KILL_S = 30
LABELS = {"app.kubernetes.io/managed-by": "gavel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the API server shows it. `requests`: what it holds of its node; `waits_for`: what keeps it waiting.

    `is_gated`: it has our gate, and is not bound. `problem`: why its container cannot start, and nothing but its user
    can help. `end`: how it ended.
    """

    name: str
    namespace: str
    uid: str = ""
    allocation: str = ""
    node: str = ""
    phase: str = "Pending"
    address: str = ""
    is_leaving: bool = False
    is_gated: bool = False
    requests: Mapping[str, float] = field(default_factory=dict)
    waits_for: str = ""
    problem: str = ""
    end: str = ""

    @property
    def has_ended(self) -> bool:
        """Return True once it runs nothing."""
        return self.phase in ENDED

    @property
    def is_bound(self) -> bool:
        """Return True while it holds something of a node."""
        return bool(self.node) and not self.has_ended


def pod_of(shown: Object) -> Pod:
    """Return what matters of a pod."""
    names, spec, status = shown["metadata"], shown.get("spec", {}), shown.get("status", {})
    states = [each.get("state", {}) for each in _statuses(status)]
    waiting: Object = next((each["waiting"] for each in states if "waiting" in each), {})
    ended: Object = next((each["terminated"] for each in states if "terminated" in each), {})
    scheduled: Object = next(
        (each for each in status.get("conditions") or () if each.get("type") == "PodScheduled"), {}
    )
    gates = [str(each["name"]) for each in spec.get("schedulingGates") or ()]
    unbound = "" if scheduled.get("status") == "True" else _held_back(gates) or str(scheduled.get("message") or "")
    stated = ": ".join(filter(None, (str(waiting.get("reason") or ""), str(waiting.get("message") or ""))))
    code = f"exit code {ended['exitCode']}" if ended.get("exitCode") else ""
    return Pod(
        name=names["name"],
        namespace=names.get("namespace", ""),
        uid=str(names.get("uid") or ""),
        allocation=(names.get("labels") or {}).get(ALLOCATION, ""),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        address=status.get("podIP") or "",
        is_leaving=bool(names.get("deletionTimestamp")),
        is_gated=GATE in gates,
        requests=_requests(spec),
        waits_for=unbound or stated,
        problem=stated if waiting.get("reason") in UNSTARTABLE else "",
        end=", ".join(filter(None, (status.get("reason"), status.get("message"), code, _last_words(ended)))),
    )


def _held_back(gates: list[str]) -> str:
    """Return what keeps the scheduler from looking at a pod; "" if nothing does."""
    others = [gate for gate in gates if gate != GATE]
    if others:
        return f"the gates of others hold the pod back: {', '.join(others)}"
    return "the pod is held back until all of its gang are there" if gates else ""


def _last_words(ended: Object) -> str:
    """Return the end of what a container has printed."""
    return " ".join(str(ended.get("message") or "").split())[-200:]


def _statuses(status: Object) -> Iterable[Object]:
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))


def _requests(spec: Object) -> Mapping[str, float]:
    """Return what a pod holds: the sum of its containers, or what one that runs before them needs, if that is more."""
    held = Counter[str]()
    for container in spec.get("containers") or ():
        held.update(_asked(container))
    for container in spec.get("initContainers") or ():
        for name, amount in _asked(container).items():
            held[name] = max(held[name], amount)
    return dict(held)


def _asked(container: Object) -> dict[str, Any]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: number_of(quantity) for name, quantity in asked.items()}


def needs_of(group: Group) -> dict[str, Counter[str]]:
    """Return the units of each resource that the gang has on each node."""
    needs: dict[str, Counter[str]] = {}
    for node, resource, units in group.bundles:
        needs.setdefault(node, Counter())[resource] += units
    return needs


def pods_for(group: Group, start: AgentStart, names: Mapping[str, str], settings: KubernetesSettings) -> list[Object]:
    """Return the pods of a gang, one for each of its nodes; `names`: the extended resource that pins each to its node.

    `start`: what their agents are told.
    """
    needs = needs_of(group)
    return [_pod(group, start, index, names[node], needs[node], settings) for index, node in enumerate(needs)]


def _pod(
    group: Group, start: AgentStart, index: int, pinned: str, units: Mapping[str, int], settings: KubernetesSettings
) -> Object:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": KILL_S,
        "securityContext": _user(),
        "serviceAccountName": settings.service_account,
        **({"schedulerName": settings.scheduler} if settings.scheduler else {}),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(each) for each in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "volumes": _volumes(settings),
        "initContainers": _runtime(settings) if brings_runtime(group, settings) else [],
        "containers": [_container(group, start, pinned, units, settings)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang_name(start.allocation)}-{index}",
            "namespace": settings.namespace,
            "labels": {**LABELS, ALLOCATION: start.allocation},
            "annotations": {"gavel.internal/gang": group.name, "gavel.internal/tier": group.tier},
        },
        "spec": spec,
    }


def gang_name(allocation: str) -> str:
    """Return by what names of objects of a gang begin."""
    return f"gavel-{slug(allocation, 50)}"


def _user() -> Object:
    """Return whom pods run as: the user of the service, since each has to read what the other writes."""
    return {"runAsUser": os.getuid(), "runAsGroup": os.getgid(), "fsGroup": os.getgid()}


def brings_runtime(group: Group, settings: KubernetesSettings) -> bool:
    """Return True if Gavel has to be brought into the image of the job."""
    return bool(settings.image and group.image)


def _container(
    group: Group, start: AgentStart, pinned: str, units: Mapping[str, int], settings: KubernetesSettings
) -> Object:
    ranks = sum(units.values())
    resources = {pinned: "1", **{name: str(count) for name, count in units.items()}}
    resources |= {"cpu": str(group.cpu_cores * ranks)} if group.cpu_cores else {}
    resources |= {"memory": str(group.memory_bytes * ranks)} if group.memory_bytes else {}
    node = {"name": "GAVEL_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    variables = [{"name": name, "value": value} for name, value in start.environment.items()]
    python = f"{RUNTIME}/bin/python" if brings_runtime(group, settings) else settings.python
    return {
        "name": "gang",
        "image": group.image or settings.image or "none",
        "command": [python, "-P", "-m", "gavel.backends.kubernetes.node", start.where, settings.node_folder],
        "env": [node, *variables],
        "resources": {"requests": resources, "limits": resources},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": _mounts(settings),
    }


def _runtime(settings: KubernetesSettings) -> list[Object]:
    """Return the container that brings Gavel, with an interpreter of its own, into the image of a job."""
    return [
        {
            "name": "runtime",
            "image": settings.image,
            "command": [settings.python, "-P", "-m", "gavel.backends.kubernetes.runtime_copy", RUNTIME],
            "securityContext": {"allowPrivilegeEscalation": False},
            "volumeMounts": [{"name": "gavel-runtime", "mountPath": RUNTIME}],
        }
    ]


def _volumes(settings: KubernetesSettings) -> list[Object]:
    shared = [{"name": "gavel-shared", **settings.shared_volume}] if settings.shared_dir else []
    return [
        *shared,
        {"name": "gavel-node", **settings.node_volume},
        {"name": "gavel-runtime", "emptyDir": {}},
        {"name": "gavel-shm", "emptyDir": {"medium": "Memory"}},
        *settings.volumes,
    ]


def _mounts(settings: KubernetesSettings) -> list[Object]:
    shared = [{"name": "gavel-shared", "mountPath": settings.shared_dir}] if settings.shared_dir else []
    return [
        *shared,
        {"name": "gavel-node", "mountPath": settings.node_folder},
        {"name": "gavel-runtime", "mountPath": RUNTIME, "readOnly": True},
        {"name": "gavel-shm", "mountPath": "/dev/shm"},  # noqa: S108  it is this pod's own
        *settings.mounts,
    ]
