"""Random histories of one gang's tasks, with restarts of the service in between, against a model that keeps sets."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gavel.backends.machine import append_json
from gavel.backends.tasks import GangTasks
from gavel.ephemeral import ResourceTable, match

IS_FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
NODES = ("n0", "n1")
LAUNCH: dict[str, Any] = {
    "cwd": "/",
    "ranks": [{"cpus": [index], "env": {"GAVEL_NODE": node}} for index, node in enumerate(NODES)],
}
names, units = st.sampled_from("abcdef"), st.integers(1, 2)


class TaskHistory(RuleBasedStateMachine):
    """The service's side is real, files included; the supervisor's is played by `end`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "job").mkdir()
        self.wants: dict[str, int] = {}  # asked for and not ended
        self.running: dict[str, str] = {}  # name -> node
        self.ended: set[str] = set()
        self.capacity = dict.fromkeys(NODES, 1)
        self.generation = 1
        self.serve()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def serve(self) -> None:
        """A service takes up the gang: a new table, the tasks that run hold again what they held."""
        self.tasks = GangTasks(self.folder, "job", 1, NODES)
        self.table = ResourceTable()
        for node in NODES:
            self.table.add_node(node, {})
            self.set(node, self.capacity[node])
        self.tasks.look()
        for hold, node, requires in self.tasks.holds():
            if self.table.free("job/x", node, 0.0) >= requires["job/x"]:
                self.table.acquire(hold, [(node, requires)], 0.0)

    def set(self, node: str, capacity: int) -> None:
        self.table.set_resource("x", capacity, node, 60.0, "job", 0.0)

    @rule(name=names, amount=units)
    def ask(self, name: str, amount: int) -> None:
        append_json(
            str(self.folder / "job" / "tasks.jsonl"), {"task": name, "argv": ["true"], "requires": {"x": amount}}
        )
        if name not in self.ended:
            self.wants.setdefault(name, amount)

    @rule(text=st.sampled_from(["\n", "[]\n", '{"task": 3}\n', '{"task": "zz", "argv": []}\n']))
    def ask_nonsense(self, text: str) -> None:
        with (self.folder / "job" / "tasks.jsonl").open("a") as file:
            file.write(text)

    @rule(node=st.sampled_from(NODES), capacity=st.integers(0, 4))
    def resize(self, node: str, capacity: int) -> None:
        self.capacity[node] = capacity
        self.set(node, capacity)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        append_json(str(self.folder / "ends.jsonl"), {"task": name, "exit_code": 0, "message": ""})
        del self.running[name], self.wants[name]
        self.ended.add(name)

    @rule()
    def restart(self) -> None:
        self.serve()

    @rule()
    def look(self) -> None:
        """What the backend does at each observation."""
        for hold in self.tasks.look():
            self.table.release(hold)
        for matched in match(self.table, self.tasks.requests(), 0.0):
            self.tasks.start(matched.gang, matched.nodes[0], LAUNCH)
        for line in self.starts()[len(self.running) + len(self.ended) :]:
            assert line["task"] in self.wants, "started unasked, or again after its end"
            self.running[line["task"]] = line["node"]
        free = {node: self.table.free("job/x", node, 0.0) for node in NODES}
        for name in self.wants.keys() - self.running.keys():
            assert all(self.wants[name] > units for units in free.values()), "it fits and waits"

    def starts(self) -> list[dict[str, Any]]:
        path = self.folder / "starts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @invariant()
    def every_task_starts_once(self) -> None:
        started = [line["task"] for line in self.starts()]
        assert len(started) == len(set(started))

    @invariant()
    def nobody_holds_what_has_ended(self) -> None:
        for hold in self.tasks.look():
            self.table.release(hold)
        for node in NODES:
            wanted = sum(self.wants[name] for name, at in self.running.items() if at == node)
            assert self.table.held().get(("job/x", node), 0) <= wanted


TestTaskHistory = TaskHistory.TestCase
TestTaskHistory.settings = settings(max_examples=500 if IS_FULL else 30, stateful_step_count=30)
