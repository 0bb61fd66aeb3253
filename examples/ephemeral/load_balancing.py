"""The paper's load balancing: six tasks, three nodes, and a matcher that would fill the first node.

usage: .venv/bin/python examples/ephemeral/load_balancing.py
"""

from collections import Counter

from gavel.ephemeral import InProcess, ResourceTable, match, request_for
from gavel.ephemeral.libraries import Library, LoadBalancing, compose

NEEDS = {"node/cpu": 1}


def main() -> None:
    """Prints how many tasks each node got without the library and with it."""
    print("first fit:", place(compose()))
    print("balanced: ", place(LoadBalancing("app/lb", NEEDS)))


def place(library: Library) -> dict[str, int]:
    """{node: tasks} after the library and the matcher have had six turns each."""
    table = ResourceTable()
    for node in ("node-a", "node-b", "node-c"):
        table.add_node(node, {"cpu": 8})
    waiting = [request_for((f"task-{index}", 1), NEEDS, library, now_s=0.0) for index in range(6)]
    load: Counter[str] = Counter()
    for turn_s in range(6):
        library.apply(InProcess(table, now_s=float(turn_s)))
        load.update(found.nodes[0] for found in match(table, waiting, now_s=float(turn_s)))
    return dict(load)


if __name__ == "__main__":
    main()
