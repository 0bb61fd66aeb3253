"""Nodes for a control plane on this machine: kubelets that run the commands of their pods as processes here.

There are no containers: a pod's command runs as it is, its init containers first, with the variables of its own. Paths
below its emptyDir volumes are replaced by those of a folder of its own; a hostPath volume has to be mounted at its own
path.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.kubernetes.api import STRATEGIC, Api, Object, Refused, items_of
from gavel.backends.kubernetes.watching import Watched
from gavel.errors import BackendUnavailable

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
JSON_PATCH = "application/json-patch+json"
LOOK_EVERY_S = 0.05
MISSING_IMAGE = "missing"
LOG = "output.log"
RUNNING, COMPLETED = (word.capitalize() for word in ("running", "completed"))  # words of Kubernetes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to make: its accelerators, as {"nvidia.com/gpu": 2}, and its labels."""

    name: str
    resources: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 16
    memory: str = "64Gi"

    def body(self) -> Object:
        """Return the node as a kubelet registers it."""
        amounts = {
            "cpu": str(self.cpus),
            "memory": self.memory,
            "pods": "500",
            **{name: str(units) for name, units in self.resources.items()},
        }
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self.labels}},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [ready],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            },
        }


class LocalKubelets:
    """The kubelets of several nodes, as one thread of this process. `folder` has the pods' own folders and logs."""

    def __init__(self, kubeconfig: str, folder: Path, nodes: Sequence[NodeSpec], *, runs_pods: bool = True) -> None:
        self._api = Api(kubeconfig, "", Counter())
        self._folder = folder
        self._runs_pods = runs_pods
        self.nodes = {node.name: node for node in nodes}
        self._lost: set[str] = set()
        self._ends = threading.Event()
        self._running: dict[str, RunningPod] = {}
        self._pods: Watched[Object] = Watched(self._api, PODS, lambda shown: shown, lambda: None)
        self._thread = threading.Thread(target=self._serve, name="gavel-kubelets", daemon=True)

    def start(self) -> None:
        """Make the nodes and serve them. Raises BackendUnavailable, Refused."""
        for node in self.nodes.values():
            self._register(node)
        self._pods.start()
        self._thread.start()

    def stop(self) -> None:
        """Kill what runs, and delete the pods that are here and the nodes."""
        self._ends.set()
        self._pods.close()
        if self._thread.is_alive():
            self._thread.join(10.0)
        for each in self._running.values():
            each.kill()
        with suppress(BackendUnavailable, Refused):
            for pod in items_of(self._api.get(PODS, limit="0")):
                if (pod["spec"].get("nodeName") or "") in {*self.nodes, ""}:
                    self._delete(pod)
            for name in self.nodes:
                self._api.delete(f"{NODES}/{name}")

    def lose(self, name: str) -> None:
        """The node loses power: its processes are gone, its kubelet is not heard, and the cluster marks it so."""
        self._lost.add(name)
        for each in [*self._running.values()]:
            if each.node == name:
                each.kill()
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        self._api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [unknown]}}, STRATEGIC)

    def come_back(self, name: str) -> None:
        """The node registers anew, with nothing running on it: it comes back empty."""
        for pod in items_of(self._api.get(PODS, limit="0")):
            if pod["spec"].get("nodeName") == name:
                self._delete(pod)
        self._api.delete(f"{NODES}/{name}")
        self._running = {key: each for key, each in self._running.items() if each.node != name}
        self._register(self.nodes[name])
        self._lost.discard(name)

    def _register(self, node: NodeSpec) -> None:
        with suppress(Refused):
            self._api.create(NODES, node.body())

    def _delete(self, pod: Object) -> None:
        names = pod["metadata"]
        self._api.delete(f"/api/v1/namespaces/{names['namespace']}/pods/{names['name']}", grace_s=0)

    def _serve(self) -> None:
        while not self._ends.wait(LOOK_EVERY_S):
            with suppress(BackendUnavailable, Refused):
                for pod in self._pods.objects().values() if self._runs_pods else ():
                    self._look(pod)

    def _look(self, pod: Object) -> None:
        """Start a pod that was bound here, end one that is deleted, and tell how it is."""
        node, names = pod["spec"].get("nodeName"), pod["metadata"]
        if node not in self.nodes or node in self._lost:
            return
        running = self._running.get(names["uid"])
        if names.get("deletionTimestamp"):
            if running is None or running.has_ended(int(names.get("deletionGracePeriodSeconds") or 0)):
                self._delete(pod)
        elif running is None:
            self._running[names["uid"]] = self._started(pod, node)
        elif running.poll() != running.reported:
            running.reported = running.poll()
            self._tell(pod, running.status())

    def _started(self, pod: Object, node: str) -> "RunningPod":
        running = RunningPod(pod, node, self._folder / pod["metadata"]["uid"])
        running.reported = running.poll()
        self._tell(pod, running.status())
        if running.unmounted:
            self._warn(pod, "FailedMount", running.unmounted)
        return running

    def _warn(self, pod: Object, reason: str, message: str) -> None:
        names, now = pod["metadata"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{names['name']}.{time.time_ns():x}"},
            "involvedObject": {"kind": "Pod", **{part: names[part] for part in ("name", "namespace", "uid")}},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "kubelet"},
        }
        self._api.create(f"/api/v1/namespaces/{names['namespace']}/events", event)

    def _tell(self, pod: Object, status: Object) -> None:
        names = pod["metadata"]
        path = f"/api/v1/namespaces/{names['namespace']}/pods/{names['name']}/status"
        self._api.patch(path, {"status": status}, STRATEGIC)


class RunningPod:
    """A pod's processes. `reported`: what the API server has heard of it last: its exit code, or None while it runs."""

    def __init__(self, pod: Object, node: str, folder: Path) -> None:
        self.node, self._folder = node, folder
        self._spec = pod["spec"]
        self._asked_s: float | None = None
        self.reported: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._has_image = not any(MISSING_IMAGE in each["image"] for each in self._spec["containers"])
        self.unmounted = next(_unmountable(self._spec.get("volumes") or ()), "")
        if self._has_image and not self.unmounted:
            self._process = self._spawn()

    def poll(self) -> int | None:
        """Return the exit code; None while it runs or waits for its image."""
        return self._process.poll() if self._process is not None else None

    def status(self) -> Object:
        """Return its state as a kubelet tells it."""
        name, code = self._spec["containers"][0]["name"], self.poll()
        state: dict[str, Any] = {"running": {}}
        phase = RUNNING
        if not self._has_image:
            phase = "Pending"
            state = {"waiting": {"reason": "ErrImagePull", "message": "there is no such image"}}
        elif self.unmounted:
            phase = "Pending"
            state = {"waiting": {"reason": "ContainerCreating"}}
        elif code is not None:
            phase = "Failed" if code else "Succeeded"
            words = (self._folder / LOG).read_text(errors="replace")[-2000:] if code and self._folder.exists() else ""
            state = {"terminated": {"exitCode": code % 256, "reason": "Error" if code else COMPLETED, "message": words}}
        shown = {"name": name, "image": "", "imageID": "", "ready": phase == RUNNING, "restartCount": 0}
        return {
            "phase": phase,
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "containerStatuses": [{**shown, "state": state}],
        }

    def has_ended(self, grace_s: int) -> bool:
        """Ask it to end, kill it after so many seconds, and return True once it is gone."""
        if self._process is None or self._process.poll() is not None:
            self.kill()
            return True
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now_s
            self._process.send_signal(signal.SIGTERM)
        elif now_s - self._asked_s > grace_s:
            self.kill()
        return False

    def kill(self) -> None:
        """Kill all that it has started, and delete its folder."""
        if self._process is not None:
            for pid in [*machine.descendants(self._process.pid), self._process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(10.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        container = self._spec["containers"][0]
        before = self._spec.get("initContainers") or ()
        commands = [self._command(each, [*before, container]) for each in (*before, container)]
        shell = " && ".join("{ " + " ".join(_quoted(word) for word in each) + "; }" for each in commands[:-1])
        last = "exec " + " ".join(_quoted(word) for word in commands[-1])
        with (self._folder / LOG).open("ab") as log:
            return subprocess.Popen(
                ["/bin/sh", "-c", f"{shell} && {last}" if shell else last],
                env=self._environment(container),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def _command(self, container: Object, containers: Sequence[Object]) -> list[str]:
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        own = {each["name"] for each in self._spec.get("volumes") or () if "emptyDir" in each}
        for mount in (mount for each in containers for mount in each.get("volumeMounts") or ()):
            if mount["name"] in own:
                folder = self._folder / mount["name"]
                folder.mkdir(exist_ok=True)
                words = [word.replace(mount["mountPath"], str(folder), 1) for word in words]
        return words

    def _environment(self, container: Object) -> dict[str, str]:
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        for each in container.get("env") or ():
            own[each["name"]] = str(each["value"]) if "value" in each else self.node
        return own


def _unmountable(volumes: Sequence[Object]) -> Iterator[str]:
    """Yield what a kubelet says of each hostPath that has to be a directory and is none."""
    for each in volumes:
        host = each.get("hostPath") or {}
        if host.get("type") == "Directory" and not Path(host["path"]).is_dir():
            problem = f"hostPath type check failed: {host['path']} is not a directory"
            yield f'MountVolume.SetUp failed for volume "{each["name"]}" : {problem}'


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
