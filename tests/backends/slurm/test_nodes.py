"""What Slurm says of its nodes, and what is made of it: no cluster is needed."""

from typing import Any

import pytest

from gavel.backends.slurm.commands import hosts_of, seconds_of
from gavel.backends.slurm.nodes import SlurmNode, nodes_of, resources_of, taken_of
from gavel.backends.slurm.protocol import SlurmSettings

ROW: dict[str, Any] = {
    "name": "n0",
    "address": "10.0.0.1",
    "cpus": 16,
    "idle_cpus": 16,
    "real_memory": 4000,
    "gres": "gpu:a100:4(S:0-1)",
    "gres_used": "gpu:a100:0(IDX:N/A)",
    "state": "idle",
    "state_flags": [],
    "reason": "",
    "active_features": "fast,nvme",
    "partitions": ["main"],
}


def node(settings: SlurmSettings | None = None, **over: object) -> SlurmNode:
    (one,) = nodes_of([{**ROW, **over}], "main", settings or SlurmSettings())
    return one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100:4(S:0-1)", {"gpu:a100": 4}),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:1)", {"gpu:a100": 2, "gpu:v100": 1}),
        ("gpu:4", {"gpu": 4}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100:0(IDX:N/A)", {"gpu:a100": 0}),
        ("craynetwork:2,gpu:1", {"gpu": 1}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_resources_are_read_as_slurm_writes_them(text: str, expected: dict[str, int]) -> None:
    assert resources_of(text, ("gpu",)) == expected


def test_a_node_has_a_worker_for_each_unit_of_its_type() -> None:
    listed = node().listed
    assert [(slot.accelerator_type, slot.resource, slot.index) for slot in listed.slots] == [
        ("a100", "gpu:a100", index) for index in range(4)
    ]
    assert listed.address == "10.0.0.1"
    assert listed.memory_bytes == 4000 << 20
    assert listed.labels == {"fast": "true", "nvme": "true"}


def test_a_feature_may_name_the_type_of_resources_that_have_none() -> None:
    settings = SlurmSettings(type_features=("v100", "fast"))
    assert {slot.accelerator_type for slot in node(settings, gres="gpu:2").listed.slots} == {"fast"}
    assert {slot.accelerator_type for slot in node(gres="gpu:2").listed.slots} == {"gpu"}


def test_nodes_of_other_partitions_are_not_ours() -> None:
    assert nodes_of([{**ROW, "partitions": ["other"]}], "main", SlurmSettings()) == ()


@pytest.mark.parametrize("state", ["down", "future", "error"])
def test_a_node_that_is_down_is_not_there(state: str) -> None:
    assert not node(state=state).is_there
    assert not node(state_flags=["POWERED_DOWN"]).is_there
    assert node(state="mixed").is_there


def test_a_node_that_does_not_respond_is_not_used_and_not_lost_yet() -> None:
    """A controller that has just started has not heard of any node."""
    for over in ({"state_flags": ["NOT_RESPONDING"]}, {"state": "unknown"}):
        assert node(**over).is_there
        assert node(**over).listed.problem == "it does not respond to Slurm"


def test_a_drained_node_is_listed_with_the_reason() -> None:
    assert node(state_flags=["DRAIN"], reason="fan").listed.problem == "it is drained in Slurm: fan"
    assert node().listed.problem == ""


@pytest.mark.parametrize(
    ("used", "ours", "idle_cpus", "taken"),
    [
        ("gpu:a100:0", {}, 16, {}),
        ("gpu:a100:3", {}, 16, {"gpu:a100": 3}),
        ("gpu:a100:3", {"gpu:a100": 2}, 8, {"gpu:a100": 1}),
        ("gpu:a100:1", {"gpu:a100": 2}, 8, {}),  # ours has started since
        ("gpu:a100:0", {}, 0, {"gpu:a100": 4}),  # somebody has all cores
        ("gpu:a100:2", {"gpu:a100": 2}, 4, {"gpu:a100": 1}),
    ],
)
def test_what_others_use_is_what_ours_do_not(
    used: str, ours: dict[str, int], idle_cpus: int, taken: dict[str, int]
) -> None:
    assert taken_of(node(gres_used=used, idle_cpus=idle_cpus), ours, cpus_per_worker=4) == taken


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:00", 60), ("2-03:04:05", 183_845), ("15", 15), ("UNLIMITED", None), ("infinite", None), ("INVALID", None)],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("n0", ["n0"]),
        ("n[0-2]", ["n0", "n1", "n2"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("rack[1-2]-n[0,7]", ["rack1-n0", "rack1-n7", "rack2-n0", "rack2-n7"]),
        ("a-1,b[3]x", ["a-1", "b3x"]),
    ],
)
def test_nodes_are_read_as_slurm_writes_them(text: str, expected: list[str]) -> None:
    assert hosts_of(text) == expected


def test_a_node_fits_that_has_as_much_of_the_type() -> None:
    typed, by_feature = node(), node(SlurmSettings(type_features=("fast",)), gres="gpu:4")
    assert [typed.has("gpu:a100", units, "") for units in (4, 5)] == [True, False]
    assert [by_feature.has("gpu", 4, feature) for feature in ("fast", "slow", "")] == [True, False, False]
