"""Requests of the backend, in the order of a small story, and what of each answer it relies on.

`python -m tests.backends.kubernetes.transcript` records transcript.json anew, from the control plane of KUBERNETES_BIN.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gavel.backends.kubernetes.api import Api, Object, Refused
from gavel.backends.kubernetes.cordons import is_cordoned_for_us, set_cordon
from gavel.backends.kubernetes.kubelets import JSON_PATCH, NODES, PODS, STRATEGIC, NodeSpec
from gavel.backends.kubernetes.pods import pod_of
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.kubernetes.resources import apply_set
from gavel.backends.kubernetes.rights import OF_GANGS, missing_rights
from gavel.errors import BackendUnavailable

RECORDED = Path(__file__).with_name("transcript.json")
HERE = "/api/v1/namespaces/default/pods"
NODE, STATUS = f"{NODES}/n0", f"{NODES}/n0/status"
A, B, C = (f"app.ephemeral.gavel.internal/{name}" for name in "abc")
ACCELERATOR = "example.com/a"
LIMIT_S = 20.0

Step = tuple[str, Any]


def play(kubeconfig: str) -> list[Step]:
    """Return each request with what came of it, on an empty cluster; it is empty again afterwards."""
    return [*_play(Api(kubeconfig, "", Counter()), kubeconfig)]


def _play(api: Api, kubeconfig: str) -> Iterator[Step]:
    yield "no node yet", _named(api.get(NODES, limit="0"))
    made = api.create(
        NODES, NodeSpec(name="n0", resources={ACCELERATOR: 2}, labels={"gavel.internal/type": "a"}).body()
    )
    version = str(made["metadata"]["resourceVersion"])
    yield "a node is made", _amounts(made)
    yield "it is made again", _refusal(lambda: api.create(NODES, NodeSpec(name="n0", resources={}).body()))
    yield from _sets(api)
    yield from _patches(api)
    yield from _pods(api)
    yield "events after the first version, of nodes", _events(api, NODES, version)
    api.delete(NODE)
    yield "the node is deleted", _refusal(lambda: api.get(NODE))
    yield "it is deleted again", _refusal(lambda: api.delete(NODE))
    yield "a name is set on a node that is not there", _refusal(lambda: apply_set(api, "n0", {A: 1}, "gavel-app"))
    again = api.create(NODES, NodeSpec(name="n0", resources={ACCELERATOR: 2}).body())
    yield "made again it comes back empty", _amounts(again)
    api.delete(NODE)
    nobody = Api(kubeconfig, "nobody", Counter())
    yield "a user without rights lists nodes", _refusal(lambda: nobody.get(NODES, limit="0"))
    yield "and patches the status of one", _refusal(lambda: apply_set(nobody, "n0", {A: 1}, "gavel"))
    yield (
        "and cordons one",
        _refusal(lambda: set_cordon(nobody, "n0", KubernetesSettings(resources=()), is_cordoned=True)),
    )
    yield "and creates a pod", _refusal(lambda: nobody.create(HERE, _pod("p9", {})))
    yield "it asks what it may", [len(missing_rights(each, OF_GANGS, "default")) for each in (api, nobody)]


def _sets(api: Api) -> Iterator[Step]:
    yield "two names are set", _amounts(apply_set(api, "n0", {A: 1, B: 2}, "gavel-app"))
    yield "another manager sets a third", _amounts(apply_set(api, "n0", {C: 3}, "gavel-other"))
    yield "a name left out is removed, no other", _amounts(apply_set(api, "n0", {B: 5}, "gavel-app"))
    yield "a set with an old version", _refusal(lambda: apply_set(api, "n0", {B: 6}, "gavel-app", "1"))
    current = str(api.get(NODE)["metadata"]["resourceVersion"])
    yield "a set with the current version", _amounts(apply_set(api, "n0", {B: 7}, "gavel-app", current))
    half = {"capacity": {A: "500m"}, "allocatable": {A: "500m"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}, "status": half}
    yield "half a unit", _refusal(lambda: api.apply(STATUS, body, "gavel-app"))
    yield "an empty set removes exactly its own", _amounts(apply_set(api, "n0", {}, "gavel-app"))
    yield "the other's, too", _amounts(apply_set(api, "n0", {}, "gavel-other"))


def _patches(api: Api) -> Iterator[Step]:
    path = "/status/capacity/other.example.com~1x"
    add = [{"op": "add", "path": path, "value": "4"}]
    yield "a patch adds a foreign name", _amounts(api.patch(STATUS, add, JSON_PATCH), "capacity")
    test = [{"op": "test", "path": path, "value": "9"}, {"op": "replace", "path": path, "value": "10"}]
    yield "a patch whose test fails", _refusal(lambda: api.patch(STATUS, test, JSON_PATCH))
    api.patch(STATUS, [{"op": "remove", "path": path}], JSON_PATCH)
    cordoned = api.patch(NODE, {"spec": {"unschedulable": True}}, STRATEGIC)
    yield "cordoned", cordoned["spec"].get("unschedulable")
    yield (
        "uncordoned",
        api.patch(NODE, {"spec": {"unschedulable": None}}, STRATEGIC).get("spec", {}).get("unschedulable"),
    )
    ours = KubernetesSettings(resources=(ACCELERATOR,))
    closed = set_cordon(api, "n0", ours, is_cordoned=True)
    yield "cordoned for an operator of Gavel", is_cordoned_for_us(closed, ours)
    yield "seen by another namespace", is_cordoned_for_us(closed, replace(ours, namespace="other"))
    opened = set_cordon(api, "n0", ours, is_cordoned=False)
    yield "let go", [opened.get("spec", {}).get("unschedulable"), opened["metadata"].get("annotations") or {}]
    yield "a node that is not there is cordoned", _refusal(lambda: set_cordon(api, "n9", ours, is_cordoned=True))
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    silent = api.patch(STATUS, {"status": {"conditions": [unknown]}}, STRATEGIC)
    yield "not heard", [(each["type"], each["status"]) for each in silent["status"]["conditions"]]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    api.patch(STATUS, {"status": {"conditions": [ready]}}, STRATEGIC)


def _pods(api: Api) -> Iterator[Step]:
    made = api.create(HERE, _pod("p1", {ACCELERATOR: "1", A: "1"}))
    yield "a pod is created before its name is set", (made["status"]["phase"], bool(made["metadata"].get("uid")))
    yield "created again", _refusal(lambda: api.create(HERE, _pod("p1", {})))
    yield "half an accelerator", _refusal(lambda: api.create(HERE, _pod("p2", {ACCELERATOR: "500m"})))
    yield "it waits and says for what", A in _until(api, "p1", lambda pod: bool(pod_of(pod).waits_for))
    apply_set(api, "n0", {A: 1}, "gavel-app")
    yield "its name is set: it is bound", bool(_until(api, "p1", lambda pod: pod["spec"].get("nodeName") == "n0"))
    api.create(HERE, _pod("p2", {A: "1"}))
    _until(api, "p2", lambda pod: bool(pod_of(pod).waits_for))
    yield "a second one waits", pod_of(api.get(f"{HERE}/p2")).node
    yield "the name is removed under its user, who stays", _amounts(apply_set(api, "n0", {}, "gavel-app"))
    yield "bound still", pod_of(api.get(f"{HERE}/p1")).node
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    shown = api.patch(f"{HERE}/p1/status", {"status": status}, STRATEGIC)
    yield "its kubelet tells its state", (shown["status"]["phase"], shown["status"]["podIP"])
    api.delete(f"{HERE}/p1")
    leaving = api.get(f"{HERE}/p1")["metadata"]
    yield "deleted, it is leaving", (bool(leaving.get("deletionTimestamp")), leaving["deletionGracePeriodSeconds"])
    api.delete(f"{HERE}/p1", grace_s=0)
    yield "its kubelet lets it go", _refusal(lambda: api.get(f"{HERE}/p1"))
    api.delete(f"{HERE}/p2")
    yield "one that was never bound goes at once", _refusal(lambda: api.get(f"{HERE}/p2"))
    yield "no pod is left", _named(api.get(PODS, limit="0"))


def _pod(name: str, requests: dict[str, str]) -> Object:
    container = {"name": "own", "image": "x", "resources": {"requests": requests, "limits": requests}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def _named(listed: Object) -> list[str]:
    return sorted(each["metadata"]["name"] for each in listed.get("items") or ())


def _amounts(node: Object, part: str = "allocatable") -> dict[str, str]:
    return {name: amount for name, amount in sorted(node["status"][part].items()) if "/" in name}


def _refusal(call: Callable[[], object]) -> list[Any]:
    """Return status, reason and whether our own text names a rule; what is told besides is not relied on."""
    try:
        call()
    except Refused as problem:
        return [problem.status, problem.reason, "with the rule" in str(problem)]
    return []


def _until(api: Api, name: str, holds: Callable[[Object], bool]) -> str:
    """Return what the pod waits for once the condition holds, and a word if it is nothing."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        pod = api.get(f"{HERE}/{name}")
        if holds(pod):
            return pod_of(pod).waits_for or "nothing"
        time.sleep(0.02)
    return ""


def _events(api: Api, path: str, version: str) -> list[Any]:
    """Return the first three events after a version: kind, name and amounts."""
    events: list[Any] = []
    with suppress(BackendUnavailable):
        for event in api.watch(path, version):
            if event["type"] != "BOOKMARK":
                events.append([event["type"], event["object"]["metadata"]["name"], _amounts(event["object"])])
            if len(events) == 3:
                break
    return events


if __name__ == "__main__":
    from gavel.backends.kubernetes.control_plane import ControlPlane

    with ControlPlane(users=("nobody",)) as plane:
        RECORDED.write_text(json.dumps(play(str(plane.kubeconfig)), indent=1) + "\n")
