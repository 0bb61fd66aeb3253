"""The paper's composition: pairs that stay together, and pairs spread evenly, in one expression.

usage: .venv/bin/python examples/ephemeral/composition.py
"""

from gavel.ephemeral import InProcess, ResourceTable, match, request_for
from gavel.ephemeral.libraries import CoLocation, LoadBalancing, compose

NEEDS = {"node/cpu": 1}


def main() -> None:
    """Prints the node of each task of four pairs."""
    table = ResourceTable()
    for node in ("node-a", "node-b"):
        table.add_node(node, {"cpu": 8})
    balanced = LoadBalancing("app/lb", NEEDS, together=2)
    pairs = {f"pair-{index}": compose(balanced, CoLocation(f"app/pair-{index}", NEEDS, tasks=2)) for index in range(4)}
    waiting = [request_for((pair, 1), NEEDS, library, now_s=0.0, tasks=2) for pair, library in pairs.items()]
    for turn_s in range(4):
        for library in pairs.values():
            library.apply(InProcess(table, now_s=float(turn_s)))
        for found in match(table, waiting, now_s=float(turn_s)):
            print(f"{found.gang[0]}: {' '.join(found.nodes)}")


if __name__ == "__main__":
    main()
