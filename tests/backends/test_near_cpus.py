"""Which cores are near a GPU, by the kernel or else by `nvidia-smi topo -m`.

The tables have the tabs, columns and faults of tables that drivers 418 to 580 print on machines of these layouts.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gavel.backends import accelerators, nvidia, pci
from gavel.backends.accelerators import discover
from gavel.backends.gpus import UNKNOWN, cpus_of, near_by, ranges_of
from gavel.config import Settings
from gavel.daemon.doctor import findings

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: CPU Affinity
"""
ROWS: dict[str, tuple[list[str], dict[str, str]]] = {
    "two sockets and a network card": (
        [
            "\x1b[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m",
            "GPU0\t X \tNV12\tPXB\t0-3,8-11\t0\t\tN/A",
            "GPU1\tNV12\t X \tSYS\t4-7\t1\t\tN/A",
            "NIC0\tPXB\tSYS\t X \t\t\t\t",
        ],
        {"GPU0": "0-3,8-11", "GPU1": "4-7", "NIC0": ""},
    ),
    "one GPU in a container": (
        ["\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", "GPU0\t X \t4-7\t\tN/A\t\tN/A"],
        {"GPU0": "4-7"},
    ),
    "a driver without columns of NUMA": (
        [
            "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity",
            "GPU0\t X \tPIX\tSOC\t0-5",
            "GPU1\tPIX\t X \tSOC\t6-11",
            "mlx5_0\tSOC\tSOC\t X",
        ],
        {"GPU0": "0-5", "GPU1": "6-11"},
    ),
    "cores in turns, cut to the width of the column": (
        [
            "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity",
            "GPU0\t X \tSYS\t0,2,4,6,8,10\t0",
            "GPU1\tSYS\t X \t1,3,5,7,9,11\t1",
        ],
        {"GPU0": "0,2,4,6,8,10", "GPU1": "1,3,5,7,9,11"},
    ),
    "WSL, which says nothing": (
        ["\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", "GPU0\t X \t\t\t\tN/A"],
        {"GPU0": ""},
    ),
    "an affinity that is not available": (
        ["\tGPU0\tCPU Affinity\tNUMA Affinity", "GPU0\t X \tN/A\t\tN/A"],
        {"GPU0": ""},
    ),
    "rows written over each other, whose next column is the NUMA node": (
        ["\tGPU0\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", "GPU0\t X \tPHB\tPH0-115\t0-3\t\tN/A"],
        {},
    ),
    "no column of affinities": (["\tGPU0\tGPU1", "GPU0\t X \tNV1", "GPU1\tNV1\t X "], {}),
    "a range without end": (["\tGPU0\tCPU Affinity", "GPU0\t X \t0-99999999999"], {"GPU0": ""}),
    "a range beyond all CPUs": (["\tGPU0\tCPU Affinity", "GPU0\t X \t0-8192"], {"GPU0": ""}),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_table_names_the_cores_near_each_gpu_or_none(name: str) -> None:
    rows, near = ROWS[name]
    expected = {device: near_by(ranges, "nvidia-smi topo") for device, ranges in near.items()}
    assert nvidia.read_topology("\n".join(rows) + "\n" + LEGEND) == expected
    assert all((each == UNKNOWN) is not bool(near[device]) for device, each in expected.items())


CELLS = st.sampled_from(
    ["GPU0", "GPU1", " X ", "NV12", "SYS", "CPU Affinity", "0-3", "N/A", "", "7-", "٣-٤", "\x1b[4m"]
)


@given(st.text(max_size=200) | st.lists(st.lists(CELLS, max_size=6).map("\t".join), max_size=5).map("\n".join))
@example("\tCPU Affinity\nGPU0\t-1\n")
def test_whatever_the_table_is_there_are_cores_or_none(printed: str) -> None:
    for near in nvidia.read_topology(printed).values():
        assert near == UNKNOWN or near.cpus <= set(range(8192))


@given(st.frozensets(st.integers(0, 8191), max_size=40))
def test_lists_of_cpus_are_read_as_they_are_written(cpus: frozenset[int]) -> None:
    assert cpus_of(ranges_of(cpus)) == cpus


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], None]:
    """Puts a stand-in for nvidia-smi with a MIG slice and a GPU first on the path, on a machine of twelve cores."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(accelerators, "_cores", lambda: (list(range(12)), []))
    monkeypatch.setattr(pci, "PCI_DEVICES", tmp_path / "devices")

    def write(topology: Sequence[str]) -> None:
        program = f"""#!/bin/sh
case "$1" in
  -L) echo "GPU 0: NVIDIA H200 (UUID: GPU-11)"
      echo "  MIG 1g.18gb Device 0: (UUID: MIG-1)" ;;
  topo) [ "$2" = "-m" ] || exit 2; {"; ".join(topology)} ;;
  --query-gpu=index,name,uuid,memory.total,pci.bus_id)
    echo "0, NVIDIA H200, GPU-11, 143771, 00000000:07:00.0"
    echo "1, NVIDIA H200, GPU-22, 143771, 00000000:0A:00.0" ;;
esac
"""
        (tmp_path / "nvidia-smi").write_text(program)
        (tmp_path / "nvidia-smi").chmod(0o700)

    return write


def printing(name: str, folder: Path) -> list[str]:
    (folder / "topology").write_text("\n".join(ROWS[name][0]) + "\n" + LEGEND)
    return [f"cat {folder / 'topology'}"]


def test_where_the_kernel_says_nothing_the_driver_is_asked(
    install: Callable[[Sequence[str]], None], tmp_path: Path
) -> None:
    """And where the kernel says something, that holds. A slice has the cores of its GPU."""
    install(printing("two sockets and a network card", tmp_path))
    assert [each.cpus for each in discover().accelerators] == [(0, 1, 2, 3, 8, 9), (4, 5, 6, 7, 10, 11)]
    (tmp_path / "devices" / "0000:07:00.0").mkdir(parents=True)
    (tmp_path / "devices" / "0000:07:00.0" / "local_cpulist").write_text("6-11\n")
    first, second = discover().accelerators
    assert (first.cpus, first.near.source) == ((6, 7, 8, 9, 10, 11), "the kernel")
    assert (second.cpus, second.near.source) == ((0, 1, 2, 3, 4, 5), "nvidia-smi topo")


@pytest.mark.parametrize("topology", [["exit 6"], ["printf '\\377\\t\\376'"], ["kill -9 $$"], [":"]])
def test_a_driver_that_cannot_say_leaves_it_unknown(
    install: Callable[[Sequence[str]], None], topology: list[str]
) -> None:
    install(topology)
    discovery = discover()
    assert [each.cpus for each in discovery.accelerators] == [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)]
    assert [each.near for each in discovery.accelerators] == [UNKNOWN, UNKNOWN]


def test_doctor_names_the_cores_near_a_gpu_and_who_says_so(
    install: Callable[[Sequence[str]], None], tmp_path: Path
) -> None:
    def seen() -> list[str]:
        about = {each.about: each.text for each in findings(Settings(state_dir=tmp_path / "state"))}
        return [about[name] for name in ("nvidia-h200-mig-1g-18gb-0", "nvidia-h200-0")]

    install(printing("two sockets and a network card", tmp_path))
    first, second = seen()
    assert "near it: 0-3,8-11 (nvidia-smi topo)" in first and "near it: 4-7 (nvidia-smi topo)" in second
    install(["exit 6"])
    assert all("near it: unknown" in text for text in seen())
