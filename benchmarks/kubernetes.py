"""How fast names are set, pods bound and gangs started on a control plane of this machine: wall times, medians.

Control plane, kubelets and agents share its cores, so that the figures are upper bounds of what separate machines show.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.ray import Bench, replaced_s, started_ms
from benchmarks.table import Row, run
from gavel.backends.kubernetes.api import Api
from gavel.backends.kubernetes.backend import KubernetesBackend
from gavel.backends.kubernetes.kubelets import NODES as NODES_PATH
from gavel.backends.kubernetes.kubelets import PODS, LocalKubelets, NodeSpec
from gavel.backends.kubernetes.local_cluster import LocalKubernetesCluster
from gavel.backends.kubernetes.pods import Pod, pod_of
from gavel.backends.kubernetes.protocol import KubernetesSettings
from gavel.backends.kubernetes.resources import apply_set
from gavel.backends.kubernetes.watching import Watched
from gavel.clock import SystemClock
from gavel.types import GangState

NODES, WORKERS_PER_NODE = 8, 8
RESOURCE = "example.com/a"
HERE = "/api/v1/namespaces/default/pods"
DOMAIN = "bench.ephemeral.gavel.internal"
LIMIT_S = 60.0
MANY_NODES, MANY_PODS = 1000, 5000


def rows(quick: bool) -> Iterator[Row]:
    """Against the targets."""
    specs = [NodeSpec(name=f"node-{index}", resources={RESOURCE: WORKERS_PER_NODE}) for index in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, LocalKubernetesCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        yield from of_the_scheduler(cluster, 9 if quick else 30)
        bench = opened(Path(folder))
        try:
            yield from of_gangs(bench, 3 if quick else 7)
        finally:
            bench.clear()
            bench.backend.close()
        cluster.kubelets.stop()
        yield from of_a_large_cluster(cluster, 200 if quick else MANY_NODES, 1000 if quick else MANY_PODS)


class Binding:
    """Pods of one name each, made and bound; no kubelet runs them."""

    def __init__(self, kubeconfig: str) -> None:
        self.api = Api(kubeconfig, "", Counter())
        self._changed = threading.Event()
        self._pods = Watched[Pod](self.api, PODS, pod_of, self._changed.set)
        self._pods.start()
        self._round = 0

    def bound_ms(self, nodes: Sequence[str], per_node: int, *, at_once: int = 8) -> tuple[float, float, float]:
        """Milliseconds to set the names, from there to all pods created, and from the start to all of them bound."""
        self._round += 1
        name = f"{DOMAIN}/g{self._round}"
        names = [f"bench-{self._round}-{index}" for index in range(len(nodes) * per_node)]
        with ThreadPoolExecutor(at_once) as pool:
            began_s = time.perf_counter()
            [*pool.map(lambda node: apply_set(self.api, node, {name: per_node}, "bench"), nodes)]
            set_s = time.perf_counter()
            [*pool.map(lambda pod: self.api.create(HERE, _pod(pod, name)), names)]
            made_s = time.perf_counter()
        self._until(lambda: sum(bool(pod.node) for pod in self._pods.objects().values()) == len(names))
        bound_s = time.perf_counter()
        for pod in names:
            self.api.delete(f"{HERE}/{pod}", grace_s=0)
        self._until(lambda: not self._pods.objects())
        return 1000 * (set_s - began_s), 1000 * (made_s - set_s), 1000 * (bound_s - began_s)

    def _until(self, holds: Any) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end_s, "the pods did not get there"
            self._changed.wait(0.05)
            self._changed.clear()

    def close(self) -> None:
        self._pods.close()


def _pod(name: str, extended: str) -> dict[str, Any]:
    resources = {"requests": {extended: "1"}, "limits": {extended: "1"}}
    spec = {"containers": [{"name": "own", "image": "missing", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def of_the_scheduler(cluster: LocalKubernetesCluster, repetitions: int) -> Iterator[Row]:
    """What Kubernetes itself takes, without agents."""
    binding, names = Binding(str(cluster.plane.kubeconfig)), [f"node-{index}" for index in range(NODES)]
    one = [binding.bound_ms(names[:1], 1) for _ in range(repetitions)]
    yield Row("set_resource on a node", statistics.median(each[0] for each in one), "ms", 5.0)
    yield Row("a pod from its resource to bound", statistics.median(each[2] for each in one), "ms", 20.0)
    for per_node, limit_ms in ((1, 100.0), (8, 600.0)):
        times = [binding.bound_ms(names, per_node) for _ in range(max(repetitions // 3, 3))]
        size = NODES * per_node
        yield Row(f"gang of {size} pods, from its resource to bound", _median(times, 2), "ms", limit_ms)
        yield Row(f"gang of {size} pods created", _median(times, 1), "ms", 300.0 if size == 64 else None)
    binding.close()
    for name in names:
        apply_set(binding.api, name, {}, "bench")


def _median(times: Sequence[tuple[float, float, float]], index: int) -> float:
    return statistics.median(each[index] for each in times)


def opened(folder: Path) -> Bench:
    """A service on the cluster that KUBECONFIG names."""
    clock = SystemClock()
    shared, nodes = folder / "shared", folder / "nodes"
    settings = KubernetesSettings(
        folder=str(shared),
        node_folder=str(nodes),
        shared_volume={"hostPath": {"path": str(shared)}},
        node_volume={"hostPath": {"path": str(nodes)}},
        python=sys.executable,
        resources=(RESOURCE,),
    )
    backend = KubernetesBackend(
        state_dir=folder / "state", kubernetes=settings, clock=clock, lease_grace_s=1.0, log_bytes_per_job=1 << 16
    )
    return Bench(backend, clock, nodes=NODES, per_node=WORKERS_PER_NODE)


def of_gangs(bench: Bench, repetitions: int) -> Iterator[Row]:
    """What a gang takes from its launch to all of its processes, one pod a node."""
    for size in (8, 64):
        times = [started_ms(bench, [size]) for _ in range(repetitions)]
        yield Row(f"gang of {size} over {NODES} nodes, to all started", statistics.median(times), "ms")
    bench.clear()
    bench.backend.execute(bench.launch([4] * 16, is_spread=False))
    bench.until(16, GangState.RUNNING)
    waits = [replaced_s(bench, is_spread=False) for _ in range(repetitions)]
    yield Row("round that replaces 16 gangs of 4", 1000 * statistics.median(waits), "ms")


def of_a_large_cluster(cluster: LocalKubernetesCluster, nodes: int, pods: int) -> Iterator[Row]:
    """What a look costs where many foreign pods run on many nodes, none of which is asked for anything."""
    specs = [NodeSpec(name=f"many-{index}", resources={RESOURCE: 8}) for index in range(nodes)]
    made = LocalKubelets(str(cluster.plane.kubeconfig), cluster.plane.folder / "many", specs, runs_pods=False)
    made.start()
    api = Api(str(cluster.plane.kubeconfig), "", Counter())
    with ThreadPoolExecutor(8) as pool, tempfile.TemporaryDirectory() as folder:
        [*pool.map(lambda index: api.create(HERE, _foreign(index, f"many-{index % nodes}")), range(pods))]
        clock = SystemClock()
        settings = KubernetesSettings(folder=f"{folder}/shared", resources=(RESOURCE,))
        backend = KubernetesBackend(
            state_dir=Path(folder) / "state",
            kubernetes=settings,
            clock=clock,
            lease_grace_s=1.0,
            log_bytes_per_job=1 << 16,
        )
        try:
            yield from _looks(backend, nodes, pods)
        finally:
            backend.close()
        [*pool.map(lambda index: api.delete(f"{HERE}/foreign-{index}", grace_s=0), range(pods))]
        [*pool.map(lambda spec: api.delete(f"{NODES_PATH}/{spec.name}"), specs)]


def _looks(backend: KubernetesBackend, nodes: int, pods: int) -> Iterator[Row]:
    Bench(backend, SystemClock(), nodes=nodes, per_node=8 - pods // nodes)
    before, began_s = dict(backend.calls), time.process_time()
    for _ in range(20):
        backend.observe()
        time.sleep(1.0)
    cpu_ms = 1000 * (time.process_time() - began_s) / 20
    yield Row(f"a tick with {nodes} nodes and {pods} pods watched, all threads", cpu_ms, "CPU ms", 50.0)
    lists = backend.calls.get("list", 0) - before.get("list", 0)
    yield Row("list calls after the first", float(lists), "calls", 0.0)


def _foreign(index: int, node: str) -> dict[str, Any]:
    resources = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}
    spec = {"nodeName": node, "containers": [{"name": "own", "image": "missing", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"foreign-{index}"}, "spec": spec}


if __name__ == "__main__":
    run("Kubernetes backend", rows)
