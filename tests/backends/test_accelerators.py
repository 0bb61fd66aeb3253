"""What this machine, and others, have to offer."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends import accelerators, nvidia, pci
from gavel.backends.accelerators import LocalAccelerator, discover
from gavel.backends.nvidia import find_gpus
from gavel.backends.probe import probe
from gavel.types import Worker

AVX512 = ["X86_V3", "X86_V4", "AVX512_ICL"]
NVIDIA_SMI = """#!/bin/sh
[ "$1" = "-L" ] && exit
[ "$1 $2" = "--query-gpu=index,name,uuid,memory.total,pci.bus_id --format=csv,noheader,nounits" ] || exit 2
echo "0, NVIDIA H200, GPU-11, 143771, 00000000:07:00.0"
echo "1, NVIDIA H200, GPU-22, 143771, 00000000:0A:00.0"
echo "2, Tesla V100-SXM2-16GB, GPU-33, 16384, 00000000:47:00.0"
"""


def names(features: list[str], cores: int) -> list[str]:
    matches = [each.name for each in accelerators._cpu_types(features, cores)]
    assert {*matches} <= accelerators.CPU_TYPES
    return matches


@pytest.mark.parametrize(
    ("features", "cores", "types"),
    [
        (AVX512, 1, ["avx512", "scalar"]),
        (AVX512, 2, ["avx512", "scalar"]),
        (AVX512, 3, ["avx512", "scalar"]),
        (AVX512, 4, ["avx512", "scalar"]),
        (AVX512, 6, ["avx512", "scalar", "lowsimd"]),
        (AVX512, 64, ["avx512", "scalar", "lowsimd", "lowblas"]),
        (["AVX2", "FMA3", "F16C", "SSE42"], 8, ["avx2", "scalar", "lowsimd", "lowblas"]),  # numpy 2.2's names
        (["SSE42"], 8, []),
        (["NEON", "ASIMD"], 8, []),
    ],
)
def test_types_are_as_many_as_there_are_cores_for(features: list[str], cores: int, types: list[str]) -> None:
    assert names(features, cores) == types


def test_only_instruction_sets_that_numpy_names_are_switched_off() -> None:
    features = ["SSE42", "AVX", "F16C", "FMA3", "AVX2", "AVX512F", "AVX512_SKX"]
    scalar = accelerators._cpu_types(features, 2)[1]
    assert scalar.env["NPY_DISABLE_CPU_FEATURES"].split() == features[1:]


def test_each_type_can_hold_a_gang_of_two() -> None:
    discovery = discover()
    types = [each.worker.accelerator_type for each in discovery.accelerators if not each.is_gpu]
    assert len(set(types)) >= 2
    assert all(types.count(name) >= 2 for name in types)
    assert {cpu for each in discovery.accelerators for cpu in each.cpus} <= os.sched_getaffinity(0)
    assert len({each.worker.id for each in discovery.accelerators}) == len(discovery.accelerators)
    assert any("gang of 2" in note for note in discovery.notes)


def test_a_core_carries_as_many_workers_as_are_stated() -> None:
    cores, workers = {each.cpus for each in discover().accelerators}, discover(per_core=3).accelerators
    assert [[each.cpus for each in workers].count(core) for core in cores] == [3] * len(cores)
    assert all(each.worker.shares_core for each in workers)


def test_virtual_nodes_are_dealt_the_workers_of_each_type() -> None:
    alone, dealt = discover(), discover(virtual_nodes=2)
    assert {each.worker.id for each in dealt.accelerators} == {each.worker.id for each in alone.accelerators}
    assert len({each.worker.node for each in alone.accelerators}) == 1
    for kind in {each.worker.accelerator_type for each in dealt.accelerators}:
        nodes = [each.worker.node for each in dealt.accelerators if each.worker.accelerator_type == kind]
        assert len(set(nodes)) == 2 and abs(nodes.count(nodes[0]) - nodes.count(nodes[1])) <= 1
    assert any("poses as 2 nodes" in note for note in dealt.notes)


@pytest.mark.parametrize(("cores", "types"), [([3], 2), ([0, 1], 2), (list(range(8)), 2)])
def test_cpus_without_avx_differ_by_threads(monkeypatch: pytest.MonkeyPatch, cores: list[int], types: int) -> None:
    monkeypatch.setattr(accelerators, "_numpy_features", lambda: ["NEON"])
    workers, notes = accelerators._cpu_accelerators(cores)
    assert len({each.worker.accelerator_type for each in workers}) == types
    threads = {each.worker.accelerator_type: each.env["OPENBLAS_NUM_THREADS"] for each in workers}
    assert threads == {"threads-1": "1", "threads-2": "2"}
    assert any("threads" in note for note in notes)
    assert {cpu for each in workers for cpu in each.cpus} == set(cores)


def test_one_core_carries_every_type_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "_numpy_features", lambda: AVX512)
    workers, notes = accelerators._cpu_accelerators([5])
    assert [each.worker.id for each in workers] == ["avx512-0", "avx512-1", "scalar-0", "scalar-1"]
    assert {each.cpus for each in workers} == {(5,)}
    assert "one core only" in notes[0]


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a stand-in for nvidia-smi first on the path, on a machine of twelve cores."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(accelerators, "_cores", lambda: (list(range(12)), []))
    monkeypatch.setattr(accelerators, "_numpy_features", lambda: AVX512)
    monkeypatch.setattr(pci, "PCI_DEVICES", tmp_path / "devices")

    def install(program: str) -> None:
        (tmp_path / "nvidia-smi").write_text(program)
        (tmp_path / "nvidia-smi").chmod(0o700)

    return install


def test_gpus_are_the_only_workers_and_have_all_cores(gpus: Callable[[str], None]) -> None:
    gpus(NVIDIA_SMI)
    discovery = discover()
    assert [(each.worker.id, each.cpus, each.env["CUDA_VISIBLE_DEVICES"]) for each in discovery.accelerators] == [
        ("nvidia-h200-0", (0, 1, 2, 3), "GPU-11"),
        ("nvidia-h200-1", (4, 5, 6, 7), "GPU-22"),
        ("tesla-v100-sxm2-16gb-0", (8, 9, 10, 11), "GPU-33"),
    ]
    assert [each.worker.memory_bytes >> 20 for each in discovery.accelerators] == [143771, 143771, 16384]
    assert any("cpu_workers = all" in note for note in discovery.notes)


def test_what_a_machine_with_an_h200_printed(gpus: Callable[[str], None]) -> None:
    """Driver 580.159.04: the answers to the queries as they came, underlines and empty cells included."""
    gpus(r"""#!/bin/sh
case "$1" in
-L) echo "GPU 0: NVIDIA H200 (UUID: GPU-ab0427df-1edc-5c0a-7a0b-fc688ee35bbc)" ;;
topo) printf '\t\033[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\nGPU0\t X \t0-15\t0\t\tN/A\n\nLegend:\n' ;;
*) echo "0, NVIDIA H200, GPU-ab0427df-1edc-5c0a-7a0b-fc688ee35bbc, 143771, 00000000:00:06.0" ;;
esac
""")
    (gpu,) = find_gpus(lambda argv: subprocess.run(argv, capture_output=True, text=True, check=True).stdout)[0]
    assert (gpu.name, gpu.memory_bytes >> 20) == ("NVIDIA H200", 143771)
    assert (sorted(gpu.near.cpus), gpu.near.source) == ([*range(16)], "nvidia-smi topo")
    (worker,) = discover().accelerators
    assert worker.env["CUDA_VISIBLE_DEVICES"] == gpu.uuid and len(worker.cpus) == 12


def test_cpu_workers_beside_gpus_have_half_of_the_cores_and_see_no_gpu(gpus: Callable[[str], None]) -> None:
    gpus(NVIDIA_SMI)
    workers = discover(cpu_workers="all").accelerators
    assert [each.cpus for each in workers[:3]] == [(0, 1), (2, 3), (4, 5)]
    assert {cpu for each in workers[3:] for cpu in each.cpus} == set(range(6, 12))
    for each in workers[3:]:
        hidden = {name: value for name, value in each.env.items() if name.endswith("VISIBLE_DEVICES")}
        assert hidden == accelerators.NO_GPU and not each.is_gpu


@pytest.mark.parametrize(("cpu_workers", "count"), [("none", 0), ("0", 0), ("2", 2), ("100", 6)])
def test_cpu_workers_are_as_many_as_are_wanted(gpus: Callable[[str], None], cpu_workers: str, count: int) -> None:
    gpus(NVIDIA_SMI)
    assert sum(not each.is_gpu for each in discover(cpu_workers=cpu_workers).accelerators) == count


def test_a_machine_without_any_worker_says_so(gpus: Callable[[str], None]) -> None:
    gpus("#!/bin/sh\n")
    discovery = discover(cpu_workers="none")
    assert discovery.accelerators == () and "has no workers" in discovery.notes[-1]


def test_each_gpu_has_the_cores_near_it(gpus: Callable[[str], None], tmp_path: Path) -> None:
    """As the kernel says; of a GPU of which it says nothing the rest is taken, and no core is given twice."""
    for bus, near in (("0000:07:00.0", "6-11"), ("0000:0a:00.0", "0-1,6")):
        (tmp_path / "devices" / bus).mkdir(parents=True)
        (tmp_path / "devices" / bus / "local_cpulist").write_text(f"{near}\n")
    gpus(NVIDIA_SMI)
    assert [each.cpus for each in discover().accelerators] == [(6, 7, 8, 9), (0, 1, 2, 3), (4, 5, 10, 11)]


def test_slices_of_a_gpu_are_types_of_their_own(gpus: Callable[[str], None]) -> None:
    """The lines have the form that NVIDIA's MIG User Guide shows for `nvidia-smi -L`, in "Creating GPU Instances"."""
    listed = """#!/bin/sh
if [ "$1" = "-L" ]; then cat <<'END'
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/1/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-22)
END
else
echo "0, NVIDIA A100-SXM4-40GB, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, 40960, 00000000:07:00.0"
echo "1, NVIDIA A100-SXM4-40GB, GPU-22, 40960, 00000000:0A:00.0"
fi
"""
    gpus(listed)
    workers = discover().accelerators
    assert [(each.worker.accelerator_type, each.worker.memory_bytes, len(each.cpus)) for each in workers] == [
        ("nvidia-a100-sxm4-40gb-mig-3g-20gb", 20 * 10**9, 4),
        ("nvidia-a100-sxm4-40gb-mig-1c-3g-20gb", 20 * 10**9, 4),
        ("nvidia-a100-sxm4-40gb", 40960 << 20, 4),
    ]
    assert workers[0].env["CUDA_VISIBLE_DEVICES"] == "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


def test_a_line_that_names_no_gpu_is_a_note_and_others_are_used(gpus: Callable[[str], None]) -> None:
    gpus(NVIDIA_SMI + "echo '3, [Unknown Error], [GPU is lost], [N/A], [N/A]'\n")
    discovery = discover()
    assert len(discovery.accelerators) == 3
    assert "cannot be used: 3, [Unknown Error]" in discovery.notes[0]


@given(st.text(max_size=300))
def test_whatever_nvidia_smi_prints_gives_gpus_or_notes(listed: str) -> None:
    gpus_, notes = nvidia.read_gpus(listed)
    assert all(gpu.uuid.startswith("GPU-") and gpu.memory_bytes >= 0 for gpu in gpus_.values())
    assert len(gpus_) + len(notes) <= len(listed.splitlines())
    nvidia.read_slices(listed)


@pytest.mark.parametrize(("cores", "per_core"), [(2, 2), (3, 2), (4, 1), (8, 1)])
def test_workers_share_a_core_only_where_cores_are_few(
    monkeypatch: pytest.MonkeyPatch, cores: int, per_core: int
) -> None:
    monkeypatch.setattr(accelerators, "_numpy_features", lambda: AVX512)
    workers, _ = accelerators._cpu_accelerators(list(range(cores)))
    assert len(workers) == cores * per_core and all(each.worker.shares_core is (per_core == 2) for each in workers)
    types = [each.worker.accelerator_type for each in workers]
    assert all(types.count(name) >= 2 for name in types)


def test_a_broken_nvidia_smi_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    discovery = discover()
    assert discovery.accelerators
    assert "nvidia-smi" in discovery.notes[0]


@pytest.mark.full
def test_a_probe_measures_every_cpu_type() -> None:
    workers = discover().accelerators
    gpu = LocalAccelerator(
        worker=Worker(id="g-0", node="here", accelerator_type="g"),
        cpus=(),
        env={"CUDA_VISIBLE_DEVICES": "GPU-1"},
        device="GPU-1",
    )
    measured = probe([*workers, gpu], seconds=0.05)
    assert set(measured.steps_per_s) == {each.worker.accelerator_type for each in workers}
    assert all(rate > 0 for rates in measured.steps_per_s.values() for rate in rates.values())
    assert all(name in measured.text for name in measured.steps_per_s)
    assert measured.differs == ("hardly differ" not in measured.text)


def test_a_machine_of_gpus_only_has_nothing_to_probe() -> None:
    assert probe([]).text == "no CPU accelerator to measure"


@pytest.mark.parametrize(
    ("text", "slugged"), [("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"), ("--", ""), ("x" * 99, "x" * 40)]
)
def test_names_are_made_fit_for_resources(text: str, slugged: str) -> None:
    assert accelerators.slug(text) == slugged
