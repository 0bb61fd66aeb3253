"""The paper's co-location: a predictor on any node with a GPU, and beside it, once it runs, its board generators.

usage: .venv/bin/python examples/ephemeral/co_location.py
"""

from gavel.ephemeral import GangRequest, InProcess, ResourceTable, match, request_for
from gavel.ephemeral.libraries import DataLocality, compose


def main() -> None:
    """Prints where each task went."""
    table = ResourceTable()
    table.add_node("node-a", {"gpu": 1, "cpu": 4})
    table.add_node("node-b", {"gpu": 1, "cpu": 4})
    cluster = InProcess(table, now_s=0.0)

    predictor = request_for(("predictor", 1), {"node/gpu": 1, "node/cpu": 2}, compose(), now_s=0.0)
    near = DataLocality("app/near-predictor", nodes=())
    generators = request_for(("generators", 1), {"node/cpu": 1}, near, now_s=0.0, tasks=2)
    print("generators, submitted before the predictor runs:", where(table, generators))

    (found,) = match(table, [predictor], now_s=0.0)
    print("predictor:", found.nodes)
    DataLocality("app/near-predictor", found.nodes).apply(cluster)  # what the predictor does once it runs
    print("generators:", where(table, generators))


def where(table: ResourceTable, request: GangRequest) -> tuple[str, ...] | str:
    """Nodes of the tasks, or why they wait."""
    found = match(table, [request], now_s=0.0)
    return found[0].nodes if found else f"wait, as {table.missing(request, now_s=0.0)}"


if __name__ == "__main__":
    main()
