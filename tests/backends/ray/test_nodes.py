"""Nodes, workers and slots as Ray lists them: plain functions and one file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends.meeting import devices_of_gang
from gavel.backends.nodes.devices import environment_of
from gavel.backends.nodes.numbering import Numbering, as_worker
from gavel.backends.nodes.protocol import Slot
from gavel.backends.ray.nodes import ray_nodes
from gavel.backends.ray.slots import slots_of


def listed(name: str, node_id: str = "", **over: Any) -> dict[str, Any]:
    """A row of `ray.nodes()`."""
    return {
        "NodeID": node_id or f"{name}-id",
        "Alive": True,
        "NodeManagerAddress": "192.0.2.7",
        "NodeManagerHostname": name,
        "Resources": {"CPU": 8.0, "memory": 1e9},
        "Labels": {},
        **over,
    }


@pytest.mark.parametrize(
    ("resources", "labels", "expected"),
    [
        ({"gavel:v100": 2.0, "CPU": 4.0}, {}, [("v100", "gavel:v100", 0), ("v100", "gavel:v100", 1)]),
        ({"gavel:b": 1.0, "gavel:a": 1.0}, {}, [("a", "gavel:a", 0), ("b", "gavel:b", 0)]),
        ({"GPU": 2.0, "accelerator_type:A100": 1.0}, {}, [("a100", "GPU", 0), ("a100", "GPU", 1)]),
        ({"GPU": 1.0}, {"ray.io/accelerator-type": "H100"}, [("h100", "GPU", 0)]),
        ({"GPU": 1.0, "accelerator_type:L4": 1.0}, {"gavel/accelerator-type": "L4-mig"}, [("l4-mig", "GPU", 0)]),
        ({"TPU": 1.0, "accelerator_type:TPU-V4": 1.0}, {}, [("tpu-v4", "TPU", 0)]),
        ({"gavel:a": 1.0, "GPU": 1.0}, {}, [("a", "gavel:a", 0)]),
        ({"GPU": 0.5, "CPU": 4.0}, {}, []),
        ({"CPU": 64.0}, {}, []),
    ],
)
def test_accelerators_are_found_in_resources_and_labels(
    resources: dict[str, float], labels: dict[str, str], expected: list[tuple[str, str, int]]
) -> None:
    slots = slots_of(resources, labels)
    assert [(slot.accelerator_type, slot.resource, slot.index) for slot in slots] == expected


def test_labels_pin_workers_in_turn_and_price_them() -> None:
    slots = slots_of({"gavel:a": 3.0}, {"gavel/cpus": "0_4", "gavel/price-usd-per-hour": "2.48"})
    assert [slot.cpus for slot in slots] == [(0,), (4,), (0,)]
    assert {slot.price_usd_per_hour for slot in slots} == {2.48}


def test_a_label_says_how_much_memory_each_accelerator_has() -> None:
    for label, memory_bytes in (("80", 80 * 10**9), ("1.5", 1_500_000_000), ("much", 0)):
        (slot,) = slots_of({"GPU": 1.0}, {"gavel/accelerator-memory-gb": label})
        assert as_worker("w", "n", slot, shares_core=False).memory_bytes == slot.memory_bytes == memory_bytes


def test_a_label_that_is_no_price_costs_the_default() -> None:
    (slot,) = slots_of({"gavel:a": 1.0}, {"gavel/price-usd-per-hour": "nan"})
    assert slot.price_usd_per_hour == 1.0


def test_a_rank_sees_its_own_gpu_only() -> None:
    assert environment_of(Slot(accelerator_type="a100", resource="GPU", index=3)) == {"CUDA_VISIBLE_DEVICES": "3"}
    assert environment_of(Slot(accelerator_type="v100", resource="gavel:v100", index=3)) == {}
    amd = [Slot(accelerator_type="amd-instinct-mi300x", resource="GPU", index=index) for index in (1, 2)]
    assert devices_of_gang([environment_of(each) for each in amd]) == {"HIP_VISIBLE_DEVICES": "1,2"}
    intel = [replace(each, accelerator_type="intel-gpu-max-1550") for each in amd]
    assert devices_of_gang([environment_of(each) for each in intel]) == {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,2"}


def test_nodes_are_called_by_label_then_host_then_host_and_id() -> None:
    rows = [
        listed("gpu-1.example.org", Labels={"gavel/node": "Rack 7"}),
        listed("gpu-2.example.org"),
        listed("twin", "abcdef0123"),
        listed("twin", "ffff000000"),
        listed("dead", Alive=False),
    ]
    assert [node.name for node in ray_nodes(rows)] == ["gpu-2", "rack-7", "twin-abcdef", "twin-ffff00"]


def test_workers_keep_their_names_when_nodes_come_go_and_return(tmp_path: Path) -> None:
    two, one = slots_of({"gavel:a": 2.0}, {}), slots_of({"gavel:a": 1.0}, {})
    numbering = Numbering(tmp_path / "workers.json", is_current=True)
    assert list(numbering.workers("n1", two)) == ["a-0", "a-1"]
    assert list(numbering.workers("n2", one)) == ["a-2"]
    numbering.forget(["n1"])
    assert list(numbering.workers("n3", one)) == ["a-0"]
    restarted = Numbering(tmp_path / "workers.json", is_current=True)
    assert list(restarted.workers("n2", one)) == ["a-2"]
    assert list(restarted.workers("n1", two)) == ["a-1", "a-3"]


def test_a_service_with_another_folder_names_workers_as_the_store_does(tmp_path: Path) -> None:
    """Else a lease of a node that is away would be that of another node, and its gang would be started twice."""
    two, one = slots_of({"gavel:a": 2.0}, {}), slots_of({"gavel:a": 1.0}, {})
    Numbering(tmp_path / "workers.json", is_current=True).workers("n2", two)
    node_of = {"a-3": "n1", "a-2": "n1", "a-0": "", "local": "n9"}
    for is_current in (False, True):  # what it has named is stored
        numbering = Numbering(tmp_path / "workers.json", node_of, is_current=is_current)
        assert list(numbering.workers("n1", two)) == ["a-3", "a-2"]
        assert list(numbering.workers("n2", one)) == ["a-1"]


def test_without_a_file_the_names_are_those_of_the_store(tmp_path: Path) -> None:
    numbering = Numbering(tmp_path / "workers.json", {"a-1": "n1"}, is_current=True)
    assert list(numbering.workers("n2", slots_of({"gavel:a": 1.0}, {}))) == ["a-0"]
    assert list(numbering.workers("n1", slots_of({"gavel:a": 1.0}, {}))) == ["a-1"]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3), st.booleans()), max_size=30))
def test_no_two_nodes_ever_share_a_worker(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Nodes come with any number of workers, grow, shrink, go for good; names stay apart, and those of a node stay."""
    numbering = Numbering(tmp_path_factory.mktemp("n") / "workers.json", is_current=True)
    named: dict[str, list[str]] = {}
    for node, count, leaves in steps:
        if leaves:
            numbering.forget([node])
            named.pop(node, None)
            continue
        now = list(numbering.workers(node, slots_of({"gavel:a": float(count)}, {})))
        before = named.get(node, [])
        assert now[: len(before)] == before[: len(now)]
        named[node] = max(now, before, key=len)
        everything = [worker for workers in named.values() for worker in workers]
        assert len(everything) == len(set(everything))
