"""What this machine, and others, have to offer."""

import os
from pathlib import Path

import pytest

from gavel.backends import accelerators
from gavel.backends.accelerators import LocalAccelerator, discover
from gavel.backends.probe import probe
from gavel.types import Worker

AVX512 = ["X86_V3", "X86_V4", "AVX512_ICL"]
NVIDIA_SMI = """#!/bin/sh
[ "$1" = "--query-gpu=index,name,uuid" ] || exit 2
echo "0, NVIDIA H200, GPU-11"
echo "1, NVIDIA H200, GPU-22"
echo "2, Tesla V100-SXM2-16GB, GPU-33"
"""


def names(features: list[str], cores: int) -> list[str]:
    return [each.name for each in accelerators._cpu_types(features, cores)]


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
    types = [each.worker.accelerator_type for each in discovery.accelerators if "CUDA_VISIBLE_DEVICES" not in each.env]
    assert len(set(types)) >= 2
    assert all(types.count(name) >= 2 for name in types)
    assert {cpu for each in discovery.accelerators for cpu in each.cpus} <= os.sched_getaffinity(0)
    assert len({each.worker.id for each in discovery.accelerators}) == len(discovery.accelerators)
    assert any("gang of two" in note for note in discovery.notes)


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


def test_gpus_come_with_half_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvidia-smi prints what the real one does."""
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(accelerators, "_cores", lambda: (list(range(12)), []))
    workers = discover().accelerators
    assert [(each.worker.id, each.cpus, each.env["CUDA_VISIBLE_DEVICES"]) for each in workers[:3]] == [
        ("nvidia-h200-0", (0, 1), "GPU-11"),
        ("nvidia-h200-1", (2, 3), "GPU-22"),
        ("tesla-v100-sxm2-16gb-0", (4, 5), "GPU-33"),
    ]
    assert {cpu for each in workers[3:] for cpu in each.cpus} == set(range(6, 12))


def test_a_broken_nvidia_smi_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    discovery = discover()
    assert discovery.accelerators
    assert "nvidia-smi" in discovery.notes[0]


def test_a_probe_measures_every_cpu_type() -> None:
    workers = discover().accelerators
    gpu = LocalAccelerator(
        worker=Worker(id="g-0", node="here", accelerator_type="g"), cpus=(), env={"CUDA_VISIBLE_DEVICES": "0"}
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
