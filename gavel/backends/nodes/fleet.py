"""The nodes as the service sees them: names, problems, clocks and free ports."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gavel.backends import machine
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.nodes.gang import NodesGang
from gavel.backends.nodes.numbering import Numbering, as_node, as_worker
from gavel.backends.nodes.protocol import Answer, ListedNode, Seen, Slot
from gavel.types import Cluster, WorkerId

IDLE_EVERY_S = 1.0  # seconds between two calls to a node without gangs
MEET_LIMIT_S = 15.0  # seconds after the service's start in which every node should answer
OFFSET_WINDOW_S = 10.0  # seconds of answers by which the offset of a node's clock is bounded, and as many before
CPUS_PER_NODE = 1 << 16


@dataclass(slots=True, kw_only=True)
class NodeView:
    """One node. `offset_s`: its boottime minus ours is at least this, in seconds; None: it has not answered yet."""

    node: ListedNode
    workers: dict[WorkerId, Slot]
    offset_s: float | None = None
    boot_id: str = ""
    ports: tuple[int, ...] = ()  # that it has reserved, those of gangs it has not started yet included
    asked_boottime_s: float = 0.0
    found_boottime_s: float = 0.0
    found_problem: str = ""  # what its agent says of it
    _offsets_s: tuple[float, float] = (0.0, 0.0)  # the highest of the window before, and of this one
    _offsets_since_s: float = 0.0

    @property
    def is_usable(self) -> bool:
        """Return True if gangs may start on the node."""
        return self.offset_s is not None and not self.problem

    @property
    def problem(self) -> str:
        """Return why its accelerators cannot be used, as the cluster or its agent says; "" if they can."""
        return self.node.problem or self.found_problem

    @property
    def shown(self) -> tuple[object, ...]:
        """Return all of it that the scheduler is shown."""
        return self.node, self.workers, self.problem, self.is_usable

    def take(self, answer: Answer) -> None:
        """Take an answer that has just come; its age is unknown, so the clock offset is only a lower bound."""
        self._bound_offset(answer)
        self.boot_id, self.found_problem = answer.boot_id, answer.problem
        self.ports = answer.ports

    def _bound_offset(self, answer: Answer) -> None:
        """Keep the highest lower bound of the last answers: older ones are wrong by what the clocks drifted since."""
        now_s = machine.boottime_s()
        offset_s = answer.node_boottime_s - now_s
        if self.offset_s is None or answer.boot_id != self.boot_id:
            self._offsets_s, self._offsets_since_s = (offset_s, offset_s), now_s
        elif now_s - self._offsets_since_s >= OFFSET_WINDOW_S:
            self._offsets_s, self._offsets_since_s = (self._offsets_s[1], offset_s), now_s
        else:
            self._offsets_s = (self._offsets_s[0], max(self._offsets_s[1], offset_s))
        self.offset_s = max(self._offsets_s)


class Fleet:
    """All nodes by name, and all workers that ever had a name."""

    def __init__(self, numbering: Numbering, cluster_name: str, *, is_one_of_several: bool = False) -> None:
        self._cluster_name, self._is_one_of_several = cluster_name, is_one_of_several
        self._numbering = numbering
        self._met_boottime_s: float | None = None  # when the cluster first listed its nodes to us
        self._has_met = False
        self._is_connected = False
        self.nodes: dict[str, NodeView] = {}
        self.place_of: dict[WorkerId, tuple[str, Slot]] = {}
        self.cluster = Cluster()
        self._made_of: tuple[frozenset[WorkerId], list[tuple[object, ...]]] = (frozenset(), [])
        self.asked_cordons: dict[str, bool] = {}  # of nodes
        self.gone: dict[str, str] = {}  # nodes that the cluster has lost -> the reason

    def take(self, seen: Seen, in_use: Collection[WorkerId] = ()) -> None:
        """Take the transport's view; `in_use` are the workers of our gangs. Raises OSError for names not stored."""
        self._is_connected = seen.is_connected and not seen.problem
        if seen.is_connected and self._met_boottime_s is None:
            self._met_boottime_s = machine.boottime_s()
        if seen.is_connected:
            self._take_nodes(seen.nodes)
        by_id = {view.node.node_id: view for view in self.nodes.values()}
        for node_id, answer in seen.answers.items():
            if node_id in by_id:
                by_id[node_id].take(answer)
        made_of = (frozenset(in_use), [view.shown for view in self.nodes.values()])
        if made_of != self._made_of:
            cluster, self._made_of = self._cluster(in_use), made_of
            self.cluster = cluster if cluster != self.cluster else self.cluster

    @property
    def is_met(self) -> bool:
        """Return True once every node had time to report what runs there; before that, absence means nothing."""
        if self._met_boottime_s is not None and not self._has_met:
            views = self.nodes.values()
            all_heard = all(view.offset_s is not None or view.node.problem or not view.workers for view in views)
            self._has_met = all_heard or machine.boottime_s() - self._met_boottime_s > MEET_LIMIT_S
        return self._has_met

    def why_unreached(self, seen: Seen, gangs: Iterable[NodesGang]) -> str:
        """Return why one of several clusters cannot be reached; "" if it can, or a node of these gangs.

        Agents whose orders travel through files or connections of their own answer while the cluster itself does not.
        """
        ids = (view.node.node_id for gang in gangs for name in gang.parts if (view := self.nodes.get(name)))
        is_heard = not self._is_one_of_several or any(node_id in seen.answers for node_id in ids)
        return "" if is_heard else seen.problem

    def has_answered(self, node: str) -> bool:
        """Return True once the node has answered an order of this service, since it last came back."""
        view = self.nodes.get(node)
        return view is not None and view.offset_s is not None

    def may_speak(self, node: str) -> bool:
        """Return True while a silent node may not have been reached yet: its gangs are not lost yet."""
        view = self.nodes.get(node)
        if not self._is_connected or view is None:
            return not self._is_connected
        is_new = machine.boottime_s() - view.found_boottime_s < MEET_LIMIT_S
        return view.offset_s is None and not view.node.problem and is_new

    def cordons(self) -> dict[str, bool]:
        """Return whether each node is cordoned for us, where the cluster can do that."""
        views = self.nodes.items()
        return {name: view.node.is_cordoned for name, view in views if view.node.is_cordoned is not None}

    def open_cordons(self) -> dict[str, bool]:
        """Return the cordons that were asked for and are not seen yet, by id of the node."""
        seen = self.cordons()
        return {
            self.nodes[name].node.node_id: is_cordoned
            for name, is_cordoned in self.asked_cordons.items()
            if seen.get(name, is_cordoned) != is_cordoned
        }

    def due(self, busy: Iterable[str]) -> list[NodeView]:
        """Return the nodes to ask now: those that have gangs, and the others with accelerators now and then."""
        now_s, chosen = machine.boottime_s(), set(busy)
        due = [
            view
            for name, view in self.nodes.items()
            if name in chosen
            or (view.workers and (not view.is_usable or now_s - view.asked_boottime_s >= IDLE_EVERY_S))
        ]
        for view in due:
            view.asked_boottime_s = now_s
        return due

    def accelerators(self) -> list[LocalAccelerator]:
        """Return all workers, with cores numbered over all nodes, to tell which workers share a core."""
        accelerators = []
        for index, view in enumerate(self.nodes.values()):
            for worker, slot in view.workers.items():
                cpus = tuple(index * CPUS_PER_NODE + cpu for cpu in slot.cpus)
                seen = as_worker(worker, view.node.name, slot, shares_core=False)
                accelerators.append(LocalAccelerator(worker=seen, cpus=cpus))
        return accelerators

    def forget(self, in_use: Iterable[WorkerId]) -> None:
        """Free the worker names of lost nodes for reuse, except those that gangs still use."""
        used = {self.place_of[worker][0] for worker in in_use if worker in self.place_of}
        gone = set(self.gone) - used - self.nodes.keys()
        self._numbering.forget(gone)
        self.place_of = {worker: place for worker, place in self.place_of.items() if place[0] not in gone}

    def swap(self, pairs: Iterable[tuple[WorkerId, WorkerId]]) -> None:
        """Let two workers of each pair, of one type, change places. Raises OSError for names that cannot be stored."""
        for one, other in pairs:
            nodes = [self.place_of[worker][0] for worker in (one, other)]
            self._numbering.swap(one, other)
            for view in (self.nodes[name] for name in nodes if name in self.nodes):
                view.workers = self._numbering.workers(view.node.name, view.node.slots)
                self.place_of |= {worker: (view.node.name, slot) for worker, slot in view.workers.items()}

    def _take_nodes(self, listed: Iterable[ListedNode]) -> None:
        by_name = {node.name: node for node in listed}
        for name in self.nodes.keys() - by_name.keys():
            del self.nodes[name]
            self.gone[name] = f"{self._cluster_name} lost node {name}"
        for name, node in by_name.items():
            view = self.nodes.get(name)
            if view is None or view.node.node_id != node.node_id or view.node.slots != node.slots:
                self._meet(node)
            else:
                view.node = node

    def _meet(self, node: ListedNode) -> None:
        """Take a new node, or one with another id or other accelerators: its agent has to report everything anew."""
        workers = self._numbering.workers(node.name, node.slots) if node.slots else {}
        self.nodes[node.name] = NodeView(node=node, workers=workers, found_boottime_s=machine.boottime_s())
        self.place_of |= {worker: (node.name, slot) for worker, slot in workers.items()}
        self.gone.pop(node.name, None)

    def _cluster(self, in_use: Collection[WorkerId]) -> Cluster:
        """Return every node that has accelerators, with the workers of the usable ones."""
        nodes = sorted((view for view in self.nodes.values() if view.workers), key=lambda view: view.node.name)
        cores = [(view.node.name, cpu) for view in nodes for slot in view.workers.values() for cpu in slot.cpus]
        workers = tuple(
            as_worker(worker, view.node.name, slot, shares_core=_shares(view.node.name, slot, cores))
            for view in nodes
            if view.is_usable
            for worker, slot in _free_of_others(view, in_use)
        )
        return Cluster(nodes=tuple(as_node(view.node, view.problem) for view in nodes), workers=workers)


def _free_of_others(view: NodeView, in_use: Collection[WorkerId]) -> list[tuple[WorkerId, Slot]]:
    """Return the node's workers without as many idle ones, the last first, as others of the cluster use."""
    taken = Counter(view.node.taken)
    free = []
    for worker, slot in reversed(view.workers.items()):
        if worker not in in_use and taken[slot.resource] > 0:
            taken[slot.resource] -= 1
        else:
            free.append((worker, slot))
    return free[::-1]


def _shares(node: str, slot: Slot, cores: list[tuple[str, int]]) -> bool:
    return any(cores.count((node, cpu)) > 1 for cpu in slot.cpus)
