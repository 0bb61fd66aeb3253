"""Calls to Ray's control service: nodes, placement groups, agents. They may hang, so they have their own thread."""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gavel.backends.nodes.agent import NodeAgent
from gavel.backends.nodes.protocol import PROTOCOL, Group, ListedNode
from gavel.backends.ray.nodes import ray_nodes
from gavel.backends.ray.protocol import NAMESPACE, RaySettings

NODES_EVERY_S = 1.0
SILENT_S = 5.0  # seconds without an answer of the control service, after which the operator is told
AGENT_RETRY_S = 5.0
GROUP_PREFIX = "gavel/"
NODE_ID_LABEL = "ray.io/node-id"
NOT_INSTALLED = "gavel is missing there, or another version: pip install 'gavel[ray]' in the Python that runs Ray"
AGENT_PREFIX = "agent-"


class _Reserved:
    """A placement group, and whether all of it is held."""

    def __init__(self, made: PlacementGroup, nodes: tuple[str, ...], group: Group | None) -> None:
        self.made = made
        self.nodes = nodes
        self.group = group  # as it was wanted; None: an earlier bridge made it
        self.held = made.ready()
        self.is_ready = False

    def serves(self, wanted: Group | None) -> bool:
        """Return False if the group is not wanted, or a node of it has another id now: it would wait for ever."""
        return wanted is not None and self.group in (None, wanted)


class Control(threading.Thread):
    """Lists nodes, keeps one agent on each that has accelerators, and creates the groups that were last wanted."""

    def __init__(self, settings: RaySettings, calls: Counter[str]) -> None:
        super().__init__(name="gavel-ray-control", daemon=True)
        self._settings = settings
        self._calls = calls
        folder = hashlib.sha256(settings.node_folder.encode()).hexdigest()[:8]
        self._agent_prefix = f"{AGENT_PREFIX}{version('gavel')}.{PROTOCOL}.{folder}-"
        self._lock = threading.Condition()
        self._work = threading.Event()
        self._wanted: dict[str, Group] = {}
        self._groups: dict[str, _Reserved] = {}
        self._freed_at_s: dict[str, float] = {}  # Ray id of a node -> when a group there was removed
        self._is_whole = False
        self._nodes: tuple[ListedNode, ...] = ()
        self._agents: dict[str, Any] = {}
        self._problems: dict[str, str] = {}
        self._retry_at_s: dict[str, float] = {}
        self._heard_at_s = time.monotonic()
        self._listed_at_s = 0.0
        self.has_listed = False

    # --- for the bridge's thread ---

    def want(self, groups: Iterable[Group], *, is_whole: bool) -> None:
        """Set the groups that must exist; groups of an earlier bridge are removed once `is_whole` is set."""
        wanted = {group.name: group for group in groups}
        with self._lock:
            is_new = wanted != self._wanted or is_whole != self._is_whole
            self._wanted, self._is_whole = wanted, is_whole
        if is_new:
            self._work.set()

    def ready(self) -> frozenset[str]:
        """Return the names of the groups that are held."""
        self._look()
        with self._lock:
            return frozenset(name for name, group in self._groups.items() if group.is_ready)

    def unready(self, names: Collection[str]) -> bool:
        """Return True if one of these groups is not held yet."""
        return bool(names) and not self.ready().issuperset(names)

    def wait_for_group(self, limit_s: float) -> None:
        """Wait until a group was created, at most `limit_s` seconds."""
        with self._lock:
            self._lock.wait(limit_s)

    def agent(self, node_id: str) -> Any:
        """Return the node's agent; None if it has none (yet)."""
        with self._lock:
            return self._agents.get(node_id)

    def nodes(self, late: Collection[str]) -> tuple[ListedNode, ...]:
        """Return the nodes as last listed, each with its problem."""
        with self._lock:
            problems = self._problems | dict.fromkeys(late, "its agent does not answer")
            return tuple(replace(node, problem=problems.get(node.node_id, "")) for node in self._nodes)

    def problem(self) -> str:
        """Return why the listed nodes may be outdated; "" if they are not."""
        silent = time.monotonic() - self._heard_at_s > SILENT_S
        return "Ray's control service does not answer: what runs goes on, no gang can start" if silent else ""

    def lose_agent(self, node_id: str, problem: RayActorError) -> None:
        """Handle the death of a node's agent: Ray restarts it; if it cannot, a new one is made later."""
        missing = "ModuleNotFoundError" in str(problem) or "ImportError" in str(problem)
        self._drop(node_id, NOT_INSTALLED if missing else f"its agent died: {_short(problem)}")

    def refuse_node(self, node_id: str, problem: RayError) -> None:
        """Mark a node whose agent answers with errors: it is still asked, but its accelerators are not used."""
        with self._lock:
            self._problems[node_id] = f"its agent cannot work: {_short(problem)}"

    def accept_node(self, node_id: str) -> None:
        """Clear the problem of a node whose agent answered."""
        with self._lock:
            self._problems.pop(node_id, None)

    def _drop(self, node_id: str, text: str) -> None:
        with self._lock:
            self._agents.pop(node_id, None)
            self._problems[node_id] = text
            self._retry_at_s[node_id] = time.monotonic() + AGENT_RETRY_S
        self._work.set()

    def _look(self) -> None:
        with self._lock:
            pending = {group.held: group for group in self._groups.values() if not group.is_ready}
        done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0) if pending else ([], [])
        for ref in done:
            pending[ref].is_ready = True

    # --- this thread ---

    def run(self) -> None:
        """Serve until the process ends; what fails is tried again."""
        while True:
            try:
                if time.monotonic() - self._listed_at_s >= NODES_EVERY_S:
                    self._list()
                pause_s = self._apply()
            except Exception as problem:  # whatever Ray raises: the thread goes on, and the next turn may succeed
                print(f"control: {type(problem).__name__}: {problem}", flush=True)
                pause_s = NODES_EVERY_S
            self._work.wait(pause_s)
            self._work.clear()

    def _list(self) -> None:
        """1 list the nodes, 2 find groups of an earlier bridge, 3 make an agent on each node that has accelerators."""
        nodes = ray_nodes(ray.nodes())  # type: ignore[no-untyped-call]
        self._heard_at_s = self._listed_at_s = time.monotonic()
        with self._lock:
            self._nodes = nodes
            alive = {node.node_id for node in nodes}
            for each in (self._agents, self._problems, self._retry_at_s):
                for gone in each.keys() - alive:
                    del each[gone]
        if not self.has_listed:
            self._end_older_agents()
            self._find_groups()
        for node in nodes:
            if node.slots and node.node_id not in self._agents and self._may_try(node.node_id):
                self._make_agent(node)
        self.has_listed = True

    def _may_try(self, node_id: str) -> bool:
        return time.monotonic() >= self._retry_at_s.get(node_id, 0.0)

    def _make_agent(self, node: ListedNode) -> None:
        """Return the agent of this node, made if there is none; it stays when this process ends."""
        self._calls["actor"] += 1
        made = (
            ray.remote(NodeAgent)
            .options(
                name=self._agent_prefix + node.node_id,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
            )
            .remote(node.name, self._settings.node_folder, PROTOCOL)
        )
        with self._lock:
            self._agents[node.node_id] = made

    def _end_older_agents(self) -> None:
        """End agents of another version, which would hold the nodes' folders, and agents of another folder."""
        for name in ray.util.list_named_actors():
            if name.startswith(AGENT_PREFIX) and not name.startswith(self._agent_prefix):
                ray.kill(ray.get_actor(name), no_restart=True)

    def _find_groups(self) -> None:
        for row in placement_group_table().values():
            name = row["name"]
            if name.startswith(GROUP_PREFIX) and row["state"] != "REMOVED":
                nodes = tuple(node for node in row["bundles_to_node_id"].values() if node)
                group = _Reserved(ray.util.get_placement_group(name), nodes, None)
                with self._lock:
                    self._groups[name] = group

    # --- groups ---

    def _apply(self) -> float:
        """Remove groups first, then create; return the seconds until the next attempt.

        Ray knows of freed capacity only after its node's next report.
        """
        with self._lock:
            wanted = dict(self._wanted)
            unwanted = [name for name, group in self._groups.items() if not group.serves(wanted.get(name))]
        for name in unwanted:
            if self._is_whole or self._groups[name].group is not None:
                self._remove(name)
        waits_s = [self._create(group) for name, group in wanted.items() if name not in self._groups]
        return min([NODES_EVERY_S, *(wait_s for wait_s in waits_s if wait_s > 0)])

    def _remove(self, name: str) -> None:
        self._calls["group.remove"] += 1
        group = self._groups[name]
        remove_placement_group(group.made)
        with self._lock:
            del self._groups[name]
            self._freed_at_s.update(dict.fromkeys(group.nodes, time.monotonic()))

    def _create(self, group: Group) -> float:
        """Create the group and return 0, or the seconds to wait if one of its nodes has just freed capacity.

        A request that Ray refuses would cost about a second.
        """
        nodes = tuple(node for node, _, _ in group.bundles)
        freed_at_s = max(self._freed_at_s.get(node, 0.0) for node in nodes)
        wait_s = freed_at_s + self._settings.settle_s - time.monotonic()
        if wait_s > 0:
            return wait_s
        self._calls["group.create"] += 1
        made = placement_group(
            [{resource: float(units)} for _, resource, units in group.bundles],
            lifetime="detached",
            name=group.name,
            bundle_label_selector=[{NODE_ID_LABEL: node} for node in nodes],
        )
        with self._lock:
            self._groups[group.name] = _Reserved(made, nodes, group)
            self._lock.notify_all()
        return 0.0


def _short(problem: BaseException) -> str:
    """Return the last line of Ray's message, which holds the cause."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[-1] if lines else type(problem).__name__)[:200]
