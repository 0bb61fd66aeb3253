"""The paper's gangs: two of three tasks each race for four slots; one starts whole, the other holds nothing and waits.

usage: .venv/bin/python examples/ephemeral/gang.py
"""

from gavel.ephemeral import InProcess, ResourceTable, match, request_for
from gavel.ephemeral.libraries import Gang, GangPool


def main() -> None:
    """Prints which tasks of which gang start, before and after the first gang ends."""
    table = ResourceTable()
    slots = {"node-a": 2, "node-b": 2}
    for node in slots:
        table.add_node(node, {})
    cluster = InProcess(table, now_s=0.0)
    pool = GangPool("app/slots", slots)
    first, second = pool.of("first", tasks=3), pool.of("second", tasks=3)
    for gang in (first, second):
        gang.apply(cluster)
    print("started:", start(table, second) + start(table, first))

    for index in range(3):
        table.release((f"first-{index}", 1))
    first.disband(cluster)
    second.apply(cluster)
    print("then:   ", start(table, second))


def start(table: ResourceTable, gang: Gang) -> list[str]:
    """Submit the tasks one by one: the matcher knows nothing of gangs."""
    tasks = [request_for((f"{gang.label}-{index}", 1), {}, gang, now_s=0.0) for index in range(gang.tasks)]
    return [found.gang[0] for found in match(table, tasks, now_s=0.0)]


if __name__ == "__main__":
    main()
