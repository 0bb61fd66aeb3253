"""What the layer of gangs on other machines and a transport tell each other of groups: no cluster is needed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gavel.backends import machine
from gavel.backends.nodes.allocations import Holdings
from gavel.backends.nodes.devices import environment_of
from gavel.backends.nodes.fleet import Fleet
from gavel.backends.nodes.gang import NodesGang, Part
from gavel.backends.nodes.numbering import Numbering
from gavel.backends.nodes.orders import LaunchSettings, parts_of
from gavel.backends.nodes.protocol import Answer, ListedNode, Seen, Slot
from gavel.ports import LaunchGang
from gavel.types import GangState


def listed(name: str = "n0", workers: int = 3, **over: Any) -> ListedNode:
    slots = tuple(Slot(accelerator_type="a", resource="acc:a", index=index) for index in range(workers))
    return ListedNode(node_id=f"id-{name}", name=name, slots=slots, **over)


def answer(**over: Any) -> Answer:
    return Answer(boot_id="b", node_boottime_s=machine.boottime_s(), **over)


def fleet(folder: Path, node: ListedNode, in_use: tuple[str, ...] = ()) -> Fleet:
    made = Fleet(Numbering(folder / "workers.json", is_current=True), "Slurm")
    made.take(Seen(nodes=(node,), answers={node.node_id: answer(ports=(1, 2))}, is_connected=True), in_use)
    return made


def gang(folder: Path, job_id: str, *workers: str, lease_s: float = 60.0, **over: Any) -> NodesGang:
    instruction = LaunchGang(
        job_id=job_id,
        generation=1,
        user="ann",
        argv=("true",),
        env={},
        accelerator_type="a",
        worker_ids=workers,
        resource="gavel/x",
        lease_expires_at_s=0.0,
        start_step=0,
        total_steps=None,
        checkpoint=None,
        tier="gold",
        **over,
    )
    return NodesGang(instruction=instruction, directory=folder, lease_boottime_s=lease_s)


def running(each: NodesGang) -> NodesGang:
    each.state = GangState.RUNNING
    each.parts = {"n0": Part(node="n0", launch=None, lease_boottime_s=0.0, lease_node_boottime_s=0.0)}  # type: ignore[arg-type]
    return each


def test_accelerators_that_a_node_gets_later_are_used_once_its_agent_has_answered(tmp_path: Path) -> None:
    node = listed()
    grown = replace(node, slots=(*node.slots, Slot(accelerator_type="a", resource="acc:a", index=len(node.slots))))
    made = fleet(tmp_path, node)
    made.take(Seen(nodes=(grown,), is_connected=True))
    assert made.cluster.workers == ()
    made.take(Seen(nodes=(grown,), answers={grown.node_id: answer()}, is_connected=True))
    assert [worker.id for worker in made.cluster.workers] == ["a-0", "a-1", "a-2", "a-3"]


def test_a_node_that_has_lost_its_accelerators_is_asked_while_a_gang_is_there(tmp_path: Path) -> None:
    """Its reports and its end are taken like any other's; without a gang there is nothing to ask for."""
    made = fleet(tmp_path, listed())
    made.take(Seen(nodes=(listed(workers=0),), is_connected=True))
    assert [view.node.name for view in made.due({"n0"})] == ["n0"]
    assert made.due(()) == []


def test_what_others_use_is_taken_from_idle_workers(tmp_path: Path) -> None:
    """1 the last idle ones go, 2 never one that a gang of ours has, 3 also where others use more than is idle."""

    def left(taken: int, *in_use: str) -> list[str]:
        made = fleet(tmp_path, listed(taken={"acc:a": taken, "gpu": 7}), in_use)
        return [worker.id for worker in made.cluster.workers]

    assert left(0) == ["a-0", "a-1", "a-2"]
    assert left(1) == ["a-0", "a-1"]
    assert left(1, "a-2") == ["a-0", "a-2"]
    assert left(3, "a-1") == ["a-1"]


def test_a_group_says_until_when_and_for_whom_it_is_needed(tmp_path: Path) -> None:
    """Two gangs on the same workers have one group, until the later of their leases; what it reserves stays."""
    holdings = Holdings(fleet(tmp_path, listed()), (), "Slurm")
    first = running(gang(tmp_path, "j1", "a-0", lease_s=60.0, cpu_cores=2, shares_with="j2"))
    second = running(gang(tmp_path, "j2", "a-0", lease_s=90.0, shares_with="j1"))
    (group,) = holdings.groups([first, second])
    assert (group.name, group.until_boottime_s, group.tier, group.cpu_cores) == ("gavel/j1/1", 90.0, "gold", 2)
    assert holdings.names_of_groups([first, second]) == {first.key: "gavel/j1/1", second.key: "gavel/j1/1"}
    second.lease_boottime_s = 120.0
    (later,) = holdings.groups([first, second])
    assert later == group
    assert later.until_boottime_s == 120.0


def test_a_gang_meets_at_ports_of_its_own_agent_where_it_has_one(tmp_path: Path) -> None:
    settings = LaunchSettings(environment={}, lease_grace_s=1.0, log_bytes=1, checkpoints="/shared")
    made, one = fleet(tmp_path, listed()), gang(tmp_path, "j1", "a-0")

    def ports(own: dict[str, tuple[int, ...]], *in_use: int) -> tuple[int, ...] | None:
        parts = parts_of(one, made, settings, lambda _: in_use, own.get)
        return None if parts is None else parts["n0"].launch.ports

    assert ports({}) == (1, 2)
    assert ports({"id-n0": (7, 8, 9)}) == (7, 8)
    assert ports({"id-n0": (7, 8, 9)}, 8) == (7, 9)
    assert ports({"id-n0": (7,)}) is None


def test_what_the_cluster_says_of_a_wait_is_a_reason(tmp_path: Path) -> None:
    holdings = Holdings(fleet(tmp_path, listed()), (), "Slurm")
    one = running(gang(tmp_path, "j1", "a-0"))
    holdings.update([one], 0.0)
    assert "others may hold them" in holdings.missing(one, 0.0)
    assert "Slurm says Priority" in holdings.missing(one, 0.0, {"gavel/j1/1": "Slurm says Priority"})


def test_a_process_uses_the_device_that_its_cluster_names() -> None:
    slot = Slot(accelerator_type="a100", resource="GPU", index=3, device="MIG-7")
    assert environment_of(slot) == {"CUDA_VISIBLE_DEVICES": "MIG-7"}
    assert environment_of(Slot(accelerator_type="a100", resource="GPU", index=3)) == {"CUDA_VISIBLE_DEVICES": "3"}
