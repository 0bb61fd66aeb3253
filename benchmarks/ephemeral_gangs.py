"""Gangs in the three forms of the paper (ESCHER, SoCC '22, section 6): how long each takes on each cluster.

In the application's own code, by the library, and in the framework, which is what the service uses. Measured is the
time from the request until all tasks have a place: a node (in one process), a started task (Ray), a bound pod
(Kubernetes); in the framework, whose gangs have programs, until the cluster has given the gang all that it asked for.
"""

import ast
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.table import Row
from examples.ephemeral import gang_by_hand
from examples.ephemeral.gang_by_hand import InOneProcess, Tasks, end_gang, start_gang
from gavel.backends.kubernetes.control_plane import missing_programs
from gavel.ephemeral import Member, ResourceTable, match
from gavel.ephemeral.libraries import GangPool, gang
from gavel.ephemeral.libraries.composition import Composition
from gavel.ephemeral.libraries.primitives import Alternative, Primitives, Requirement
from gavel.ephemeral.resources import GangRequest
from gavel.types import GangState

SIZE, NODES, SLOTS = 8, 8, 8
LIMIT_S = 60.0
ROOT = Path(__file__).parents[1]
FRAMEWORK = {
    "in one process": ["gavel/ephemeral/matcher.py"],
    "local": ["gavel/ephemeral/matcher.py", "gavel/backends/local.py"],
    "Ray": ["gavel/ephemeral/matcher.py", "gavel/backends/ray/control.py"],
    "Slurm": ["gavel/ephemeral/matcher.py", "gavel/backends/slurm/control.py"],
    "Kubernetes": [
        "gavel/ephemeral/matcher.py",
        *(f"gavel/backends/kubernetes/{name}.py" for name in ("control", "gates", "resources")),
    ],
}
"""Where a gang's being whole is the framework's own work, by cluster."""


def rows(quick: bool) -> Iterator[Row]:
    """Lines of code of each form, then how long it takes on each cluster that can be had here."""
    repetitions = 5 if quick else 15
    yield Row(
        "lines of a gang in the application",
        float(lines_of([gang_by_hand.__file__], {"start_gang", "end_gang"})),
        "lines",
    )
    yield Row("lines of the library", float(lines_of([gang.__file__])), "lines")
    for cluster, files in FRAMEWORK.items():
        yield Row(f"lines of the framework, {cluster}", float(lines_of([ROOT / each for each in files])), "lines")
    shown: list[Row] = []
    for measure in (lambda count: in_one_process(20 * count), on_ray, on_kubernetes, on_slurm):
        for row in measure(repetitions):
            shown.append(row)
            yield row
    show(shown)


def show(shown: Sequence[Row]) -> None:
    """Print the paper's table: milliseconds by form and cluster."""
    where = [*dict.fromkeys(row.name.rpartition(", ")[2] for row in shown)]
    table = Table("form", *where, title=f"gangs of {SIZE}, ms", title_justify="left")
    for form in dict.fromkeys(row.name.rpartition(", ")[0] for row in shown):
        values = {row.name: f"{row.value:.3g}" for row in shown}
        table.add_row(form, *(values.get(f"{form}, {each}", "") for each in where))
    Console().print(table)


def lines_of(files: Sequence[str | Path], functions: set[str] | None = None) -> int:
    """Return the lines of code: of whole files or of these functions, without comments, docstrings and empty lines."""
    lines = 0
    for file in files:
        tree = ast.parse(Path(file).read_text())
        parts = [each for each in tree.body if functions is None or getattr(each, "name", "") in functions]
        lines += len({line for part in parts for line in _code_of(part)})
    return lines


def _code_of(part: ast.stmt) -> Iterator[int]:
    prose = {
        line
        for each in ast.walk(part)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        for line in range(each.lineno, (each.end_lineno or each.lineno) + 1)
    }
    for each in ast.walk(part):
        if isinstance(each, ast.stmt | ast.expr | ast.arg | ast.alias | ast.keyword):
            yield from {each.lineno, each.end_lineno or each.lineno} - prose


# --- the three forms ------------------------------------------------------------------------------------------------


def by_hand_ms(tasks: Tasks, number: int, needs: Requirement) -> float:
    """A gang in the application's own code."""
    began_s = time.perf_counter()
    assert start_gang(tasks, f"a{number}", SIZE, needs, LIMIT_S)
    spent_s = time.perf_counter() - began_s
    end_gang(tasks, f"a{number}", SIZE)
    return 1000 * spent_s


def by_library_ms(tasks: Tasks, number: int, slots: Mapping[str, int]) -> float:
    """A gang by the library: its tasks require its name, the slots stand for what is physical."""
    own, members = GangPool("app/slots", slots).of(f"l{number}", SIZE), [f"l{number}-{index}" for index in range(SIZE)]
    began_s = time.perf_counter()
    own.apply(tasks.cluster)
    (asked,) = own.asks()
    for each in members:
        tasks.submit(each, asked.requires)
    while len(tasks.placed(members)) < SIZE:
        continue
    spent_s = time.perf_counter() - began_s
    tasks.end(members)
    own.disband(tasks.cluster)
    return 1000 * spent_s


def both(tasks: Tasks, where: str, needs: Requirement, nodes: Sequence[str], repetitions: int) -> Iterator[Row]:
    """The two forms that need nothing of the framework."""
    slots = dict.fromkeys(nodes, SLOTS)
    forms: dict[str, Callable[[int], float]] = {
        "in the application": lambda number: by_hand_ms(tasks, number, needs),
        "by the library": lambda number: by_library_ms(tasks, number, slots),
    }
    for form, measure in forms.items():
        measure(10_000)  # the first one pays for what stays warm
        yield Row(f"gang of {SIZE} {form}, {where}", statistics.median(map(measure, range(repetitions))), "ms")


# --- on each cluster ------------------------------------------------------------------------------------------------


def in_one_process(repetitions: int) -> Iterator[Row]:
    """The embedded matcher, over as many nodes as the clusters have."""
    table, nodes = ResourceTable(), [f"n{index}" for index in range(NODES)]
    for node in nodes:
        table.add_node(node, {"slot": SLOTS})
    yield from both(InOneProcess(table), "in one process", {"node/slot": 1}, nodes, repetitions)

    def whole_ms(number: int) -> float:
        request = GangRequest((f"f{number}", 1), (Member({"node/slot": 1}),) * SIZE)
        began_s = time.perf_counter()
        assert match(table, [request], 0.0)
        spent_s = time.perf_counter() - began_s
        table.release(request.gang)
        return 1000 * spent_s

    where = "in the framework, in one process"
    yield Row(f"gang of {SIZE} {where}", statistics.median(map(whole_ms, range(repetitions))), "ms")


class OnRay:
    """`Tasks` of Ray without work: each runs where the table has a place for it, as soon as there is one."""

    def __init__(self, primitives: Any) -> None:
        import ray

        self.cluster: Primitives = primitives
        self._ray, self._primitives = ray, primitives
        self._where = ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_node_id())
        self._asked: dict[str, Requirement] = {}
        self._held: dict[str, tuple[ExitStack, str]] = {}

    def submit(self, task: str, requires: Requirement) -> None:
        self._asked[task] = requires

    def placed(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """Get the places that are asked for, start a task at each, and return where they ran, by Gavel's names."""
        started = {}
        for task in [each for each in tasks if each in self._asked]:
            held = ExitStack()
            asks = Composition((_Requires(self._asked.pop(task)),))
            (place,) = held.enter_context(self._primitives.placed(asks, within_s=LIMIT_S))
            started[task] = (held, self._where.options(scheduling_strategy=place).remote())
        names = self._names() if started else {}
        for task, (held, answer) in started.items():
            self._held[task] = (held, names[self._ray.get(answer)])
        return {task: self._held[task][1] for task in tasks if task in self._held}

    def _names(self) -> dict[str, str]:
        from gavel.backends.ray.nodes import node_names

        return dict(node_names(self._ray.nodes()))

    def end(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            self._asked.pop(task, None)
            held, _ = self._held.pop(task, (ExitStack(), ""))
            held.close()


class _Requires:
    """A library that only asks: what it asks for has been set."""

    def __init__(self, requires: Requirement) -> None:
        self._requires = requires

    def apply(self, cluster: Primitives, companions: Sequence[Alternative] = ()) -> None:
        """Do nothing."""

    def asks(self) -> tuple[Alternative, ...]:
        return (Alternative(self._requires),)


def on_ray(repetitions: int) -> Iterator[Row]:
    """Three nodes of Ray on this machine."""
    from benchmarks.ray import WORKERS_PER_NODE, opened
    from gavel.backends.ray.local_cluster import LocalRayCluster, NodeSpec

    specs = [NodeSpec(name=f"node-{index}", resources={"gavel:a": WORKERS_PER_NODE}) for index in range(3)]
    with tempfile.TemporaryDirectory() as folder, LocalRayCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        import ray  # it reads the key of the cluster when it is imported

        from gavel.backends.ray.primitives import RayPrimitives

        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            primitives = RayPrimitives("app")
            nodes = [*primitives.get_cluster_state()]
            (accelerator,) = {
                name for each in primitives.get_cluster_state().values() for name in each if "gavel" in name
            }
            yield from both(OnRay(primitives), "on Ray", {accelerator: 1}, nodes, repetitions)
        finally:
            ray.shutdown()
        bench = opened(Path(folder), cluster.address)
        yield from _in_the_framework(bench, "on Ray", repetitions, lambda: _is_held(bench))


class OnKubernetes:
    """`Tasks` as pods that no kubelet starts: what is measured ends when the cluster's scheduler has bound them."""

    def __init__(self, kubeconfig: str) -> None:
        from gavel.backends.kubernetes.api import Api
        from gavel.backends.kubernetes.primitives import KubernetesPrimitives

        self.cluster: Primitives = KubernetesPrimitives("app", kubeconfig=kubeconfig)
        self._api = Api(kubeconfig, "", Counter())

    def submit(self, task: str, requires: Requirement) -> None:
        from gavel.backends.kubernetes.resources import extended_name

        asked = {
            "example.com/a" if name == "node/a" else extended_name(name): str(units) for name, units in requires.items()
        }
        container = {"name": "own", "image": "missing", "resources": {"requests": asked, "limits": asked}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": task}, "spec": {"containers": [container]}}
        self._api.create(PODS, pod)

    def placed(self, tasks: Sequence[str]) -> Mapping[str, str]:
        return {pod.name: pod.node for pod in self._bound() if pod.name in tasks}

    def bound_of(self, gang: str) -> int:
        """How many pods of a gang of the service's have a node."""
        return len([pod for pod in self._bound() if pod.allocation.startswith(gang)])

    def _bound(self) -> list[Any]:
        from gavel.backends.kubernetes.api import items_of
        from gavel.backends.kubernetes.pods import pod_of

        pods = [pod_of(each) for each in items_of(self._api.get(PODS, limit="0"))]
        return [pod for pod in pods if pod.node]

    def end(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            self._api.delete(f"{PODS}/{task}", grace_s=0)


PODS = "/api/v1/namespaces/default/pods"


def on_kubernetes(repetitions: int) -> Iterator[Row]:
    """Eight nodes at a control plane of this machine, if its programs are here."""
    if missing_programs():
        return
    from benchmarks.kubernetes import RESOURCE, opened
    from gavel.backends.kubernetes.kubelets import NodeSpec
    from gavel.backends.kubernetes.local_cluster import LocalKubernetesCluster

    specs = [NodeSpec(name=f"node-{index}", resources={RESOURCE: SLOTS}) for index in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, LocalKubernetesCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        tasks = OnKubernetes(str(cluster.plane.kubeconfig))
        yield from both(tasks, "on Kubernetes", {"node/a": 1}, [spec.name for spec in specs], repetitions)
        bench = opened(Path(folder))
        is_bound = lambda: tasks.bound_of(f"j0.{bench.generation}.") == SIZE  # noqa: E731
        yield from _in_the_framework(bench, "on Kubernetes", repetitions, is_bound)


def on_slurm(repetitions: int) -> Iterator[Row]:
    """Eight nodes of Slurm on this machine, if it is installed: its allocation is the gang, and it has no names."""
    from benchmarks.slurm import SlurmNodeSpec, opened
    from gavel.backends.slurm.local_cluster import LocalSlurmCluster, missing_daemons

    if missing_daemons():
        return
    specs = [SlurmNodeSpec(name=f"node-{index}", gres={"acc:a": SLOTS}, cpus=64) for index in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, LocalSlurmCluster(specs) as cluster:
        os.environ.update(cluster.environment)
        yield from _in_the_framework(opened(Path(folder)), "on Slurm", repetitions, _is_allocated)


def _is_allocated() -> bool:
    """Whether Slurm has given nodes to an allocation."""
    listed = ("squeue", "-h", "-t", "RUNNING", "-o", "%i")
    return bool(subprocess.run(listed, capture_output=True, text=True, check=True).stdout)


def _is_held(bench: Any) -> bool:
    """Whether the cluster holds all that the gang asked for: its agents are told to start it then."""
    gang = bench.backend._gangs.get(("j0", bench.generation))
    return gang is not None and gang.state is GangState.RUNNING


def _in_the_framework(bench: Any, where: str, repetitions: int, is_placed: Callable[[], bool]) -> Iterator[Row]:
    """A gang as the service launches it: until it has all its places, and until all its processes execute."""
    placed_ms, started_ms = [], []
    with ThreadPoolExecutor(1) as watcher:
        for _ in range(repetitions + 1):
            bench.clear()
            instructions, began_s = bench.launch([SIZE]), time.perf_counter()
            placed = watcher.submit(_when, is_placed)
            bench.backend.execute(instructions)
            bench.until(1, GangState.RUNNING)
            started_ms.append(1000 * (time.perf_counter() - began_s))
            placed_ms.append(1000 * (placed.result() - began_s))
    bench.clear()
    bench.backend.close()
    yield Row(f"gang of {SIZE} in the framework, {where}", statistics.median(placed_ms[1:]), "ms")
    yield Row(f"the same, to all processes executing, {where}", statistics.median(started_ms[1:]), "ms")


def _when(holds: Callable[[], bool]) -> float:
    """The instant at which the condition is seen to hold. Raises TimeoutError."""
    gives_up_at_s = time.perf_counter() + LIMIT_S
    while not holds():
        if time.perf_counter() > gives_up_at_s:
            raise TimeoutError("the gang got no place")
        time.sleep(0.002)
    return time.perf_counter()
