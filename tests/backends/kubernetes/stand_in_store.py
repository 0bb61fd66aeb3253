"""The objects of the stand-in for Kubernetes: what is stored, scheduled, merged and refused."""

import copy
import threading
import uuid
from collections.abc import Sequence

from gavel.backends.kubernetes.api import Object
from gavel.backends.kubernetes.gates import NATIVE, PodGroupKind
from gavel.backends.kubernetes.quantities import number_of
from tests.backends.kubernetes.stand_in_rights import Call, Granted

KIND, DEFINITIONS = "trainingjobs", "customresourcedefinitions"
PLURALS = ("nodes", "pods", "namespaces", "events", DEFINITIONS, KIND)
BY_TYPE = {"conditions", "addresses"}  # lists that a strategic merge merges by their type


class Failure(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Store:
    """The objects, their versions, and what has happened to them.

    `granted`: rules of roles that the user `service` has, each with its namespace ("": all); `calls`: what it asked.
    `has_gates`: it knows gates of pods, as releases from 1.27 on do; `kinds`: those of PodGroups that it serves. These
    two are made after the documentation of Kubernetes: the release that the transcript is of knows neither.
    """

    def __init__(self, granted: Granted = (), *, has_gates: bool = False, kinds: Sequence[PodGroupKind] = ()) -> None:
        self.granted, self.has_gates = granted, has_gates
        self.kinds = {kind.path: kind for kind in kinds}
        self.calls: set[Call] = set()
        self.lock = threading.Condition()
        self.objects: dict[str, dict[str, Object]] = {plural: {} for plural in (*PLURALS, *self.kinds)}
        self.events: list[tuple[int, str, str, Object]] = []
        self.version = 1
        self.applied: dict[tuple[str, str], set[str]] = {}  # (node, manager) -> names

    def changed(self, plural: str, event: str, key: str, shown: Object) -> Object:
        self.version += 1
        shown["metadata"]["resourceVersion"] = str(self.version)
        if event == "DELETED":
            self.objects[plural].pop(key, None)
        else:
            self.objects[plural][key] = shown
        self.events.append((self.version, plural, event, copy.deepcopy(shown)))
        self.lock.notify_all()
        return copy.deepcopy(shown)

    def shown(self, plural: str, key: str) -> Object:
        if key not in self.objects[plural]:
            raise Failure(404, "NotFound", f'{plural} "{key.rsplit("/", 1)[-1]}" not found')
        return copy.deepcopy(self.objects[plural][key])

    def create(self, plural: str, key: str, body: Object) -> Object:
        if key in self.objects[plural]:
            raise Failure(409, "AlreadyExists", f'{plural} "{body["metadata"]["name"]}" already exists')
        made = copy.deepcopy(body)
        made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2020-01-01T00:00:00Z"}
        if plural == "pods":
            made["metadata"]["namespace"] = key.split("/", maxsplit=1)[0]
            made["status"] = {"phase": "Pending"}
            _check_pod(made)
            self._gate(made)
        if plural == KIND:
            made["metadata"] |= {"namespace": key.split("/", maxsplit=1)[0], "generation": 1}
        return self.changed(plural, "ADDED", key, made)

    def _gate(self, pod: Object) -> None:
        """A release that does not know a field drops it."""
        if not self.has_gates:
            pod["spec"].pop("schedulingGates", None)
        if NATIVE.path not in self.kinds:
            pod["spec"].pop("schedulingGroup", None)
        if pod["spec"].get("schedulingGates"):
            text = "Scheduling is blocked due to non-empty scheduling gates"
            gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": text}
            pod["status"]["conditions"] = [gated]

    def _collect(self) -> None:
        """The collector of garbage: a PodGroup goes with the last of its owners."""
        there = {pod["metadata"]["uid"] for pod in self.objects["pods"].values()}
        for kind in self.kinds:
            for key, group in [*self.objects[kind].items()]:
                if not there & {owner["uid"] for owner in group["metadata"]["ownerReferences"]}:
                    self.changed(kind, "DELETED", key, group)

    def delete(self, plural: str, key: str, grace_s: int | None) -> Object:
        shown = self.shown(plural, key)
        has_ended = shown.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if plural == "pods" and shown["spec"].get("nodeName") and not has_ended and grace_s != 0:
            wanted_s = grace_s if grace_s is not None else shown["spec"].get("terminationGracePeriodSeconds", 30)
            shown["metadata"] |= {
                "deletionTimestamp": "2020-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": wanted_s,
            }
            return self.changed(plural, "MODIFIED", key, shown)
        if plural == KIND and shown["metadata"].get("finalizers"):
            is_first = "deletionTimestamp" not in shown["metadata"]
            shown["metadata"] |= {"deletionTimestamp": "2020-01-01T00:00:00Z"}
            shown["metadata"]["generation"] += is_first
            return self.changed(plural, "MODIFIED", key, shown) if is_first else shown
        if plural == "nodes":
            self.applied = {place: names for place, names in self.applied.items() if place[0] != key}
        deleted = self.changed(plural, "DELETED", key, shown)
        self._collect()
        return deleted

    def merge(self, plural: str, key: str, body: Object, part: str) -> Object:
        shown = self.shown(plural, key)
        before = copy.deepcopy(shown)
        _merge(shown, {part: body[part]} if part in body else {name: body[name] for name in body if name != "status"})
        return shown if shown == before else self.changed(plural, "MODIFIED", key, shown)

    def merge_object(self, key: str, body: Object) -> Object:
        """A change of an object of a defined kind: of `spec` it has a number, the last finalizer lets it go."""
        shown = self.shown(KIND, key)
        before = copy.deepcopy(shown)
        _check_same(shown, body)
        _merge(shown, {name: value for name, value in body.items() if name != "status"})
        if shown["metadata"].get("deletionTimestamp") and not shown["metadata"].get("finalizers"):
            return self.changed(KIND, "DELETED", key, shown)
        shown["metadata"]["generation"] += shown.get("spec") != before.get("spec")
        return shown if shown == before else self.changed(KIND, "MODIFIED", key, shown)

    def apply_status(self, key: str, body: Object) -> Object:
        """A status of one manager: what it leaves out goes."""
        shown = self.shown(KIND, key)
        before = copy.deepcopy(shown)
        _check_same(shown, body)
        shown["status"] = body.get("status") or {}
        return shown if shown == before else self.changed(KIND, "MODIFIED", key, shown)

    def patch(self, plural: str, key: str, operations: list[Object]) -> Object:
        shown = self.shown(plural, key)
        for each in operations:
            *way, last = (step.replace("~1", "/").replace("~0", "~") for step in each["path"].split("/")[1:])
            place = shown
            for step in way:
                place = place[step]
            if each["op"] == "test" and place.get(last) != each["value"]:
                raise Failure(422, "Invalid", "the server rejected our request due to an error in our request")
            if each["op"] in ("add", "replace"):
                place[last] = each["value"]
            elif each["op"] == "remove":
                del place[last]
        return self.changed(plural, "MODIFIED", key, shown)

    def apply(self, key: str, body: Object, manager: str) -> Object:
        shown = self.shown("nodes", key)
        version = body["metadata"].get("resourceVersion")
        if version and version != shown["metadata"]["resourceVersion"]:
            text = "the object has been modified; please apply your changes to the latest version and try again"
            raise Failure(409, "Conflict", f'Operation cannot be fulfilled on nodes "{key}": {text}')
        before, wanted = copy.deepcopy(shown), body.get("status", {}).get("capacity", {})
        for name, amount in wanted.items():
            if number_of(amount) % 1:
                raise Failure(422, "Invalid", f'Node "{key}" is invalid: status.capacity.{name}: must be an integer')
        for part in ("capacity", "allocatable"):
            there = shown["status"].setdefault(part, {})
            for name in self.applied.get((key, manager), set()) - wanted.keys():
                there.pop(name, None)
            there |= wanted
        self.applied[key, manager] = set(wanted)
        return shown if shown == before else self.changed("nodes", "MODIFIED", key, shown)

    # --- the scheduler ---

    def schedule(self) -> None:
        for key, pod in [*self.objects["pods"].items()]:
            is_open = not pod["spec"].get("schedulingGates") and self._has_group(pod)
            if is_open and not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                self._place(key, copy.deepcopy(pod))

    def _has_group(self, pod: Object) -> bool:
        """Whether the PodGroup is there that a pod names."""
        named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        return not named or f"{pod['metadata']['namespace']}/{named}" in self.objects[NATIVE.path]

    def _place(self, key: str, pod: Object) -> None:
        needs, lacking = _needs(pod), set[str]()
        for name, node in self.objects["nodes"].items():
            short = {each for each, amount in needs.items() if self._free(name, node, each) < amount}
            short |= {"unschedulable"} if node.get("spec", {}).get("unschedulable") else set()
            if not short:
                pod["spec"]["nodeName"] = name
                pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
                self.changed("pods", "MODIFIED", key, pod)
                return
            lacking |= short
        short = ", ".join(f"1 Insufficient {each}" for each in sorted(lacking))
        text = f"0/{len(self.objects['nodes'])} nodes are available: {short}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        if pod["status"].get("conditions") != [condition]:
            pod["status"]["conditions"] = [condition]
            self.changed("pods", "MODIFIED", key, pod)

    def _free(self, name: str, node: Object, resource: str) -> float:
        used = sum(
            _needs(pod).get(resource, 0.0)
            for pod in self.objects["pods"].values()
            if pod["spec"].get("nodeName") == name and pod["status"].get("phase") not in ("Succeeded", "Failed")
        )
        return number_of(node.get("status", {}).get("allocatable", {}).get(resource, "0")) - used


def _needs(pod: Object) -> dict[str, float]:
    needs: dict[str, float] = {}
    for container in pod["spec"]["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            needs[name] = needs.get(name, 0.0) + number_of(amount)
    return needs


def _check_same(shown: Object, body: Object) -> None:
    current = shown["metadata"]["resourceVersion"]
    if body.get("metadata", {}).get("resourceVersion", current) != current:
        raise Failure(409, "Conflict", "Operation cannot be fulfilled: the object has been modified")


def _check_pod(pod: Object) -> None:
    for index, container in enumerate(pod["spec"]["containers"]):
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            if "/" in name and number_of(amount) % 1:
                where = f"spec.containers[{index}].resources.requests[{name}]"
                problem = f'{where}: Invalid value: "{amount}": must be an integer'
                raise Failure(422, "Invalid", f'Pod "{pod["metadata"]["name"]}" is invalid: {problem}')


def _merge(into: Object, body: Object) -> None:
    for name, value in body.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif name == "schedulingGates":
            into[name] = _left(into.get(name) or [], value)
        elif name in BY_TYPE:
            merged = {each["type"]: each for each in into.get(name) or ()}
            for each in value:
                merged[each["type"]] = {**merged.get(each["type"], {}), **each}
            into[name] = [*merged.values()]
        else:
            into[name] = value


def _left(gates: list[Object], value: list[Object]) -> list[Object]:
    """The gates that are left after a strategic merge: they may be removed, and never added."""
    removed = {each["name"] for each in value if each.get("$patch") == "delete"}
    if {each["name"] for each in value} - removed - {each["name"] for each in gates}:
        raise Failure(422, "Invalid", "spec.schedulingGates: Forbidden: only deletion is allowed")
    return [each for each in gates if each["name"] not in removed]
