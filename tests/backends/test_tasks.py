"""Tasks that a job launches beside its ranks, on virtual nodes: real processes, the runtime's own calls."""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.harness import exit_of, gang, is_in, resource, stop
from gavel.backends.tasks import TASKS_MAX, GangTasks
from gavel.ports import LaunchGang, SetResources
from gavel.types import GangState
from tests.backends.clusters import LocalHarness, accelerators, eventually

ASK = "import sys, time; from gavel_runtime import job\n"
SHOW = "import os; print('ran on', os.environ['GAVEL_NODE'], flush=True)"


def virtual() -> tuple[LocalAccelerator, ...]:
    """a-0 on north, a-1 and b-0 on south: two nodes of one machine."""
    nodes = ("north", "south", "south")
    return tuple(
        replace(each, worker=replace(each.worker, node=node)) for each, node in zip(accelerators(), nodes, strict=True)
    )


class TwoNodes(LocalHarness):
    """The local harness over two virtual nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.crash()
        self.here = virtual()
        self.recover()

    def start(self, script: str, *workers: str, job_id: str = "j1", env: Mapping[str, str] | None = None) -> None:
        """A gang whose ranks run this script, with the runtime at hand."""
        _, launched = gang(self, job_id, *workers)
        assert isinstance(launched, LaunchGang)
        node_of = {each.worker.id: each.worker.node for each in virtual()}
        for node in {node_of[worker] for worker in launched.worker_ids}:
            count = [node_of[worker] for worker in launched.worker_ids].count(node)
            self.set("gavel", f"gang-{job_id}-1", node, count)
        argv = (sys.executable, "-c", ASK + script)
        self.backend.execute([replace(launched, argv=argv, env=dict(env or {}), total_steps=100)])
        self.wait_until(is_in(GangState.RUNNING, job_id))

    def set(self, owner: str, name: str, node: str, capacity: int, generation: int = 1) -> None:
        template = resource(self, name, capacity, generation=generation).resources[0]
        self.backend.execute([SetResources(resources=(replace(template, owner=owner, node=node),))])

    def log(self, job_id: str = "j1") -> str:
        return self.backend.read_log(job_id)[0].decode()

    def says(self, text: str, job_id: str = "j1") -> None:
        self.wait_until(lambda _: text in self.log(job_id))

    def held(self, name: str) -> dict[str, int]:
        """Units of owner/name that are held, by node."""
        return {node: units for (full, node), units in self.backend.observe().held.items() if full == name}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path / "state")
    yield made
    made.close()


def test_virtual_nodes_are_nodes_with_their_own_workers(nodes: TwoNodes) -> None:
    seen = nodes.backend.observe().cluster
    assert [node.name for node in seen.nodes] == ["north", "south"]
    assert {worker.id: worker.node for worker in seen.workers} == {"a-0": "north", "a-1": "south", "b-0": "south"}
    assert sum(node.memory_bytes for node in seen.nodes) <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("is_set_first", [True, False])
def test_a_task_starts_where_its_resource_is_in_either_order(nodes: TwoNodes, is_set_first: bool) -> None:
    if is_set_first:
        nodes.set("j1", "near", "south", 1)
    ask = f"task = job.launch([sys.executable, '-c', {SHOW!r}], requires={{'near': 1}}); print('asked', flush=True)\n"
    nodes.start(f"if job.rank == 0:\n {ask} print('code', task.wait(30), task.node)\n", "a-0", "a-1")
    if not is_set_first:
        nodes.says("asked")
        assert "ran on" not in nodes.log()
        nodes.set("j1", "near", "south", 1)
    assert exit_of(nodes, "j1").exit_code == 0
    assert "[rank-0-1] ran on south\n" in nodes.log()
    assert "[0] code 0 south\n" in nodes.log()
    assert nodes.held("j1/near") == {}


def test_a_task_that_waits_knows_for_what(nodes: TwoNodes) -> None:
    nodes.set("shared", "lb", "south", 1)
    ask = """
tasks = {name: job.launch(["true"], requires={name: 1}) for name in ("near", "shared/lb")}
while not all(task.waiting_for for task in tasks.values()):
    time.sleep(0.01)
for task in tasks.values():
    print(task.waiting_for)
try:
    tasks["near"].wait(0)
except TimeoutError as error:
    print(error)
"""
    nodes.start(ask, "a-0")
    exit_of(nodes, "j1")
    assert nodes.log().splitlines() == [
        "j1/near is not there (needs 1)",
        "what it requires is free together on nodes of other jobs only",
        "task rank-0-1 waits (j1/near is not there (needs 1)) after 0 s",
    ]


def test_tasks_share_what_there_is(nodes: TwoNodes) -> None:
    """Ten tasks, two units: never more than two at once, and all of them in the end."""
    nodes.set("j1", "slots", "north", 2)
    ask = "tasks = [job.launch(['true'], requires={'slots': 1}) for _ in range(10)]\n"
    nodes.start(ask + "print('codes', sum(each.wait(60) for each in tasks), flush=True)")

    def is_over(_: object) -> bool:
        assert nodes.held("j1/slots").get("north", 0) <= 2
        return "codes 0" in nodes.log()

    nodes.wait_until(is_over)


def test_a_task_that_fails_says_so_and_the_gang_goes_on(nodes: TwoNodes) -> None:
    nodes.set("j1", "slots", "north", 3)
    ask = """
fails, dies, missing = (job.launch(argv, requires={"slots": 1}) for argv in
    (["bash", "-c", "exit 3"], ["bash", "-c", "kill -9 $$"], ["no-such-program"]))
print("codes", fails.wait(30), dies.wait(30), missing.wait(30), missing.message)
"""
    nodes.start(ask)
    assert exit_of(nodes, "j1").exit_code == 0
    assert "codes 3 -9 127 cannot run the program 'no-such-program'" in nodes.log()


@pytest.mark.parametrize(
    ("asked", "blamed"),
    [
        ("['true'], requires={'node/worker-b-0': 1}", "requires: node/worker-b-0 is given by the scheduler only"),
        ("['true'], requires={'gavel/gang-j2-1': 1}", "requires: gavel/gang-j2-1 is given by the scheduler only"),
        ("['true'], requires={'UPPER': 1}", "must be 1 to 63"),
        ("['true'], requires={'near': 0}", "must be a whole number from 1"),
        ("['true'], requires={'near': 1}, env={'GAVEL_TOKEN': '9'}", "env: GAVEL_TOKEN cannot be set"),
        ("['true'], requires={'near': 1}, name='No'", "name: 'No' must be 1 to 63"),
        ("['a\\0b'], requires={'near': 1}", "argv: must be a program"),
    ],
)
def test_what_a_task_may_not_ask_is_answered(nodes: TwoNodes, asked: str, blamed: str) -> None:
    nodes.start(f"task = job.launch({asked})\nprint(task.wait(30), task.message)\n")
    assert exit_of(nodes, "j1").exit_code == 0
    assert nodes.log().startswith("127 ")
    assert blamed in nodes.log()


def test_a_task_runs_on_its_jobs_nodes_only(nodes: TwoNodes) -> None:
    """A name that anybody may require is on both nodes; the job holds one of them."""
    for node in ("north", "south"):
        nodes.set("shared", "lb", node, 1)
    nodes.start(
        f"task = job.launch([sys.executable, '-c', {SHOW!r}], requires={{'shared/lb': 1}}); task.wait(30)", "a-1"
    )
    exit_of(nodes, "j1")
    assert "ran on south" in nodes.log()


def test_tasks_end_with_their_gang_and_give_back_what_they_held(nodes: TwoNodes) -> None:
    nodes.set("j1", "near", "north", 1)
    nodes.start("job.launch(['sleep', '60'], requires={'near': 1}, name='long'); time.sleep(60)")
    nodes.wait_until(lambda _: nodes.held("j1/near") == {"north": 1})
    eventually(lambda: nodes.processes() == 2)
    nodes.backend.execute(stop("j1"))
    exit_of(nodes, "j1")
    assert nodes.processes() == 0
    assert nodes.held("j1/near") == {}


def test_a_new_service_goes_on_with_running_and_waiting_tasks(nodes: TwoNodes) -> None:
    """1 one task runs, one waits for the same unit, 2 the service is replaced, 3 the first ends, the second starts."""
    nodes.set("j1", "near", "north", 1)
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    ask = f"tasks = [job.launch([sys.executable, '-c', {wait!r}], requires={{'near': 1}}) for _ in range(2)]\n"
    nodes.start(ask + "print('codes', [each.wait(60) for each in tasks])")
    nodes.wait_until(lambda _: nodes.held("j1/near") == {"north": 1})
    eventually(lambda: nodes.processes() == 2)
    nodes.crash()
    nodes.recover()
    nodes.wait_until(lambda _: nodes.held("j1/near") == {"north": 1})
    assert nodes.processes() == 2
    (nodes.folder / "work" / "j1" / "go").touch()
    assert exit_of(nodes, "j1").exit_code == 0
    assert "codes [0, 0]" in nodes.log()


def test_a_name_is_one_task_however_often_it_is_launched(nodes: TwoNodes) -> None:
    nodes.set("j1", "near", "north", 9)
    ask = "tasks = [job.launch(['echo', 'once'], requires={'near': 1}, name='one') for _ in range(3)]\n"
    nodes.start(ask + "print('codes', [each.wait(30) for each in tasks])")
    exit_of(nodes, "j1")
    assert nodes.log().count("] once") == 1
    assert "codes [0, 0, 0]" in nodes.log()


def test_a_gang_has_a_bounded_number_of_tasks(tmp_path: Path) -> None:
    line = '{"task": "t%d", "argv": ["true"], "requires": {"near": 1}, "env": {}}\n'
    (tmp_path / "job").mkdir()
    lines = "".join(line % index for index in range(TASKS_MAX + 2))
    (tmp_path / "job" / "tasks.jsonl").write_text(f"{lines}nonsense\n[1]\n")
    tasks = GangTasks(tmp_path, "j1", 1, ["north"])
    tasks.look()
    assert len(tasks.requests()) == TASKS_MAX
    assert (tmp_path / "ends.jsonl").read_text().count(f"{TASKS_MAX} tasks of this gang") == 2
