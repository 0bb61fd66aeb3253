"""A gang in the application's own code, with nothing but the two primitives: to be compared with `GangPool`.

This is the paper's first form of gang scheduling: placeholder tasks hold what the gang needs, one each; once all of
them run, the gang's name is put where they are, and its tasks require only that name. If they do not all start in time,
they are ended, and the gang holds nothing.

usage: .venv/bin/python examples/ephemeral/gang_by_hand.py
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from gavel.ephemeral import InProcess, Member, ResourceTable, match
from gavel.ephemeral.libraries.primitives import Primitives, Requirement, Write
from gavel.ephemeral.resources import GangRequest


class Tasks(Protocol):
    """A scheduler that starts tasks one by one, wherever what a task requires is free."""

    cluster: Primitives

    def submit(self, task: str, requires: Requirement) -> None:
        """Start a task once some node has what it requires."""

    def placed(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """Return the node of each of these tasks that has one."""

    def end(self, tasks: Sequence[str]) -> None:
        """End tasks, or their wait."""


def start_gang(tasks: Tasks, name: str, size: int, needs: Requirement, within_s: float) -> bool:
    """Start `size` tasks called `NAME-0` .. or, if there is no room for all in time, none; return which it was."""
    holders = [f"{name}-holder-{index}" for index in range(size)]
    for each in holders:
        tasks.submit(each, needs)
    gives_up_at_s = time.monotonic() + within_s
    while len(places := tasks.placed(holders)) < size:
        if time.monotonic() > gives_up_at_s:
            tasks.end(holders)
            return False
    for node, units in Counter(places.values()).items():
        tasks.cluster.set_resource(Write(f"app/{name}", node, units))
    members = [f"{name}-{index}" for index in range(size)]
    for each in members:
        tasks.submit(each, {f"app/{name}": 1})
    while len(tasks.placed(members)) < size:
        continue
    return True


def end_gang(tasks: Tasks, name: str, size: int) -> None:
    """End the tasks of a gang and what holds their places, and take its name away."""
    holders = [f"{name}-holder-{index}" for index in range(size)]
    nodes = set(tasks.placed(holders).values())
    tasks.end([*(f"{name}-{index}" for index in range(size)), *holders])
    tasks.cluster.set_resource(*(Write(f"app/{name}", node, 0) for node in nodes))


class InOneProcess:
    """`Tasks` over a table of this process, whose matcher knows nothing of gangs."""

    def __init__(self, table: ResourceTable) -> None:
        self.cluster: Primitives = InProcess(table, now_s=0.0)
        self._table = table
        self._waiting: dict[str, GangRequest] = {}
        self._nodes: dict[str, str] = {}

    def submit(self, task: str, requires: Requirement) -> None:
        """Put the task into the queue."""
        self._waiting[task] = GangRequest((task, 1), (Member(requires),))

    def placed(self, tasks: Sequence[str]) -> Mapping[str, str]:
        """Match what waits, and return where each of these tasks is."""
        for found in match(self._table, [*self._waiting.values()], 0.0):
            self._nodes[found.gang[0]] = found.nodes[0]
            del self._waiting[found.gang[0]]
        return {task: self._nodes[task] for task in tasks if task in self._nodes}

    def end(self, tasks: Sequence[str]) -> None:
        """Release what the tasks hold."""
        for task in tasks:
            self._table.release((task, 1))
            self._waiting.pop(task, None)
            self._nodes.pop(task, None)


def main() -> None:
    """Prints whether two gangs of three, that race for four slots, start: before and after the first one ends."""
    table = ResourceTable()
    for node in ("node-a", "node-b"):
        table.add_node(node, {"slot": 2})
    tasks = InOneProcess(table)
    print("first: ", start_gang(tasks, "first", 3, {"node/slot": 1}, within_s=1.0))
    print("second:", start_gang(tasks, "second", 3, {"node/slot": 1}, within_s=0.1))
    end_gang(tasks, "first", 3)
    print("second:", start_gang(tasks, "second", 3, {"node/slot": 1}, within_s=1.0))


if __name__ == "__main__":
    main()
