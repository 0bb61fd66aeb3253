"""A small cluster on which libraries are applied and tasks start and end."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import settings

from gavel.ephemeral import GangRequest, InProcess, ResourceTable, match, request_for
from gavel.ephemeral.libraries import Library, compose
from gavel.ephemeral.libraries.primitives import room

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
histories = settings(max_examples=500 if FULL else 40)


@dataclass
class Scene:
    """Nodes with `cpu`, libraries, tasks that wait and tasks that run; time moves only when told."""

    table: ResourceTable = field(default_factory=ResourceTable)
    now_s: float = 0.0
    waiting: dict[str, GangRequest] = field(default_factory=dict)
    running: dict[str, tuple[str, ...]] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)

    @property
    def cluster(self) -> InProcess:
        return InProcess(self.table, self.now_s)

    def submit(self, name: str, library: Library | None = None, tasks: int = 1, cpu: int = 1) -> None:
        needs = {"node/cpu": cpu} if cpu else {}
        self.waiting[name] = request_for((name, 1), needs, library or compose(), self.now_s, tasks)

    def start(self) -> list[str]:
        """Match what waits; names of what started."""
        matches = match(self.table, list(self.waiting.values()), self.now_s)
        for each in matches:
            name = each.gang[0]
            del self.waiting[name]
            self.running[name], self.choices[name] = each.nodes, each.choice
        return [each.gang[0] for each in matches]

    def end(self, *names: str) -> None:
        for name in names:
            self.table.release((name, 1))
            del self.running[name]

    def settle(self, *libraries: Library) -> None:
        """Apply and match in turn until nothing starts any more."""
        for _ in range(100):
            before = self.capacities()
            for library in libraries:
                library.apply(self.cluster)
            if not self.start() and self.capacities() == before:
                return
        raise AssertionError("the libraries do not come to rest")

    def capacities(self) -> dict[str, dict[str, int]]:
        """{owner/name: {node: capacity}} of what is not physical."""
        shown: dict[str, dict[str, int]] = {}
        for node, names in self.cluster.get_cluster_state().items():
            for full, units in names.items():
                if units.capacity and not full.startswith("node/"):
                    shown.setdefault(full, {})[node] = units.capacity
        return shown


def a_scene(**cpus: int) -> Scene:
    scene = Scene()
    for node, cpu in cpus.items():
        scene.table.add_node(node, {"cpu": cpu})
    return scene


def load(placed: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """{node: tasks on it}."""
    nodes = [node for where in placed.values() for node in where]
    return {node: nodes.count(node) for node in sorted(set(nodes))}


def has_room(scene: Scene, cpu: int = 1) -> bool:
    """True if a node has that much free."""
    state = scene.cluster.get_cluster_state()
    return any(room(state, node, {"node/cpu": cpu}) > 0 for node in state)
