"""What each library of ephemeral resources does on a few nodes, as frames to be drawn by ephemeral_pictures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gavel.ephemeral import Availability, GangRequest, InProcess, ResourceTable, match, request_for
from gavel.ephemeral import libraries as lib
from gavel.ephemeral.libraries.primitives import UNBOUNDED

CPU = {"node/cpu": 1}


@dataclass(frozen=True)
class Frame:
    """A moment: {node: (tasks on its cores, names with their units)}."""

    caption: str
    nodes: dict[str, tuple[list[str], list[str]]]
    waiting: list[str]


@dataclass
class Stage:
    """Nodes of four cores, and tasks whose first letter is their colour."""

    table: ResourceTable = field(default_factory=ResourceTable)
    waiting: dict[str, GangRequest] = field(default_factory=dict)
    running: dict[str, tuple[str, ...]] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    now_s: float = 0.0

    def nodes(self, *names: str, cores: int = 4) -> "Stage":
        for name in names:
            self.table.add_node(name, {"cpu": cores})
        return self

    def submit(self, library: lib.Library, *names: str, tasks: int = 1) -> None:
        for name in names:
            self.waiting[name] = request_for((name, 1), CPU, library, self.now_s, tasks)

    def play(self, *libraries: lib.Library, times: int = 6) -> None:
        for _ in range(times):
            for library in libraries:
                library.apply(InProcess(self.table, self.now_s))
            for placed in match(self.table, list(self.waiting.values()), self.now_s):
                del self.waiting[placed.gang[0]]
                self.running[placed.gang[0]] = placed.nodes

    def end(self, *names: str) -> None:
        for name in names:
            self.table.release((name, 1))
            del self.running[name]

    def show(self, caption: str) -> None:
        state = self.table.get_cluster_state(self.now_s)
        nodes = {node: (self._cells(node, names["node/cpu"]), list(chips(names))) for node, names in state.items()}
        self.frames.append(Frame(caption, nodes, list(self.waiting)))

    def _cells(self, node: str, cpu: Availability) -> list[str]:
        tasks = [name for name, where in self.running.items() for each in where if each == node]
        return tasks + [""] * (cpu.capacity - len(tasks))


def chips(names: dict[str, Availability]) -> Iterator[str]:
    for full, units in names.items():
        if not full.startswith("node/"):
            yield f"{full.split('/')[1]}: {amount(units)}"


def amount(units: Availability) -> str:
    if units.capacity == UNBOUNDED:
        return "any number"
    return f"{units.free} of {units.capacity} free" if units.capacity else "closed"


def co_location(stage: Stage) -> None:
    group = lib.CoLocation("app/pair", CPU, 3)
    stage.nodes("node-1", cores=2).nodes("node-2").submit(lib.compose(), "x1", "x2")
    stage.submit(group, "a", tasks=3)
    stage.play(group)
    stage.show("Three tasks a go to the one node with room for all of them")


def data_locality(stage: Stage) -> None:
    stage.nodes("node-1", "node-2", "node-3")
    near = lib.DataLocality("app/data", ("node-2",))
    stage.submit(near, "a1", "a2")
    stage.play(near)
    stage.show("Tasks go where the data is, as many as there is room for")


def anti_affinity(stage: Stage) -> None:
    apart, other = lib.AntiAffinity("app/apart-a"), lib.AntiAffinity("app/apart-b")
    stage.nodes("node-1", "node-2").submit(apart, "a1", "a2", "a3")
    stage.submit(other, "b1")
    stage.play(apart, other)
    stage.show("Tasks of a do not share a node; those of b do not mind them")


def load_balancing(stage: Stage) -> None:
    balanced = lib.LoadBalancing("app/lb", CPU)
    stage.nodes("node-1", "node-2", "node-3").submit(balanced, *(f"a{index}" for index in range(1, 6)))
    stage.play(balanced, times=1)
    stage.show("One unit a node: the first three start")
    stage.play(balanced)
    stage.show("All used up: one more a node")


def bin_packing(stage: Stage) -> None:
    packed = lib.BinPacking("app/bin", CPU)
    stage.nodes("node-1", "node-2", "node-3").submit(packed, *(f"a{index}" for index in range(1, 7)))
    stage.play(packed)
    stage.show("The first node is full, the second is open, the third untouched")
    stage.end("a1", "a2")
    stage.play(packed)
    stage.show("One node stays open, the fullest with room; others drain")


def gang(stage: Stage) -> None:
    pool = lib.GangPool("app/slots", {"node-1": 4, "node-2": 4})
    first, second = pool.of("a", 5), pool.of("b", 4)
    stage.nodes("node-1", "node-2")
    stage.submit(first, *(f"a{index}" for index in range(1, 6)))
    stage.submit(second, *(f"b{index}" for index in range(1, 5)))
    stage.play(first, second)
    stage.show("Gang a has all its slots; gang b has none and waits")
    stage.end(*list(stage.running))
    first.disband(InProcess(stage.table, stage.now_s))
    stage.play(second)
    stage.show("Gang a has ended, gang b starts whole")


def soft(stage: Stage) -> None:
    library = lib.Soft((lib.AntiAffinity("app/apart"), lib.compose()), after_s=30)
    stage.nodes("node-1", "node-2").submit(library, "a1", "a2", "a3")
    stage.play(library)
    stage.show("At once: only apart from each other")
    stage.now_s = 30
    stage.play(library)
    stage.show("After 30 s: anywhere")


def priority(stage: Stage) -> None:
    queues = lib.Priority((lib.Queue("q/urgent", 3), lib.Queue("q/other", 4)), CPU)
    stage.nodes("node-1", "node-2", cores=2).submit(queues.of("q/other"), "b1", "b2", "b3", "b4")
    stage.submit(queues.of("q/urgent"), "a1", "a2", "a3")
    stage.play(queues.of("q/urgent"), times=1)
    stage.show("Urgent tasks a first, though they came last; b gets what is left")


def fair_sharing(stage: Stage) -> None:
    team = lib.Share("team", children=(lib.Share("res/ann"), lib.Share("res/bob")))
    root = lib.Share("all", children=(team, lib.Share("res/cem")))
    stage.nodes("node-1", "node-2", "node-3", "node-4", cores=2)
    for users, caption in (
        (("res/ann", "res/bob"), "Ann and Bob, one team, have half each: Cem's idle half is lent to them"),
        (("res/ann", "res/bob", "res/cem"), "Cem comes and gets his half; nobody moves without need"),
    ):
        lib.FairSharing(root, frozenset(users)).of("res/ann").apply(InProcess(stage.table, stage.now_s))
        stage.show(caption)


def objective(stage: Stage) -> None:
    largest = lib.Objective("app/memory", {"node-1": 2, "node-2": 8, "node-3": 4})
    stage.nodes("node-1", "node-2", "node-3").submit(largest, "a1", "a2", "a3")
    stage.play(largest)
    stage.show("Tasks go where the most is left, within a factor of two")
    stage.submit(largest, "a4", "a5", "a6")
    stage.play(largest)
    stage.show("node-2 is full, so node-3 is best with 4; then 3 and 2 count alike")


def barrier(stage: Stage) -> None:
    stage.nodes("node-1", "node-2")
    signals = ("app/a-done", "app/b-done")
    stage.submit(lib.compose(), "a", "b")
    stage.submit(lib.Barrier(signals), "c")
    stage.play(lib.Barrier(signals))
    stage.end("a")
    stage.play(lib.Barrier(signals, frozenset({"app/a-done"})))
    stage.show("Task c waits for both a and b; a is done")
    stage.end("b")
    stage.play(lib.Barrier(signals, frozenset(signals)))
    stage.show("Both are done: c starts, anywhere")


def composition(stage: Stage) -> None:
    balanced = lib.LoadBalancing("app/lb", CPU, together=2)
    stage.nodes("node-1", "node-2")
    for pair in "abc":
        library = lib.compose(balanced, lib.CoLocation(f"app/pair-{pair}", CPU, 2))
        stage.submit(library, pair, tasks=2)
        stage.play(library)
    stage.show("compose(LoadBalancing, CoLocation): pairs together, pairs spread")


SCENES: tuple[Callable[[Stage], None], ...] = (
    *(co_location, data_locality, anti_affinity, load_balancing, bin_packing),
    *(gang, soft, priority, fair_sharing, objective, barrier, composition),
)
