"""GPUs of AMD, by stand-ins that print what amd-smi, rocm-smi and the kernel's driver print.

The answers have the forms of the AMD SMI CLI's documentation (ROCm 6.4: lists; ROCm 7: objects with `gpu_data`) and of
rocm-smi's JSON; files and their units are those of the kernel's documentation of amdgpu.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.backends import accelerators, amd, pci
from gavel.backends.accelerator_sampler import AmdGpu, Reading, devices_of
from gavel.backends.accelerators import LocalAccelerator, discover
from gavel.backends.gpu_health import GpuHealth
from gavel.backends.meeting import devices_of_gang
from gavel.config import Settings
from gavel.daemon.doctor import findings
from gavel.types import Worker

ONE, TWO = "GPU-de8287300da37c72", "GPU-1f9de0957d137942"
LISTED: list[dict[str, Any]] = [
    {"gpu": 0, "bdf": "0000:83:00.0", "uuid": "deff740f-0000-1000-8082-87300da37c72", "hip_id": 0, "hip_uuid": ONE},
    {"gpu": 1, "bdf": "0000:c3:00.0", "uuid": "1fff740f-0000-1000-809d-e0957d137942", "hip_id": 1, "hip_uuid": TWO},
]
STATIC: list[dict[str, Any]] = [
    {
        "gpu": gpu,
        "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
        "vram": {"type": "HBM3", "size": {"value": 196592, "unit": "MB"}},
    }
    for gpu in (0, 1)
]
ERRORS = [{"gpu": gpu, "ecc": {"total_correctable_count": 4, "total_uncorrectable_count": 0}} for gpu in (0, 1)]
NO_PROCESSES = [{"gpu": gpu, "process_list": [{"process_info": "No running processes detected"}]} for gpu in (0, 1)]
CARDS = {
    "card0": {
        "Card Series": "Instinct MI210",
        "Unique ID": "0xDE8287300DA37C72",
        "PCI Bus": "0000:83:00.0",
        "VRAM Total Memory (B)": "68702699520",
    },
    "system": {"Driver version": "6.7.0"},
}


def process(pid: int, name: str, memory_bytes: int) -> dict[str, Any]:
    return {
        "process_info": {"name": name, "pid": pid, "memory_usage": {"vram_mem": {"value": memory_bytes, "unit": "B"}}}
    }


class AmdSmi:
    """A program amd-smi in a folder of the path, and its answers, which a test may change."""

    def __init__(self, folder: Path) -> None:
        self.answers: dict[str, Any] = {
            "list": LISTED,
            "static": {"gpu_data": STATIC},
            "metric": {"gpu_data": ERRORS},
            "process": NO_PROCESSES,
        }
        self._folder = folder

    def install(self, warning: str = "") -> None:
        for name, answer in self.answers.items():
            (self._folder / f"{name}.json").write_text(warning + json.dumps(answer))
        program(self._folder / "amd-smi", f'cat {self._folder}/"$1".json')


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


@pytest.fixture
def amd_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AmdSmi:
    """A machine of twelve cores with two GPUs of AMD."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(accelerators, "_cores", lambda: (list(range(12)), []))
    monkeypatch.setattr(pci, "PCI_DEVICES", tmp_path / "devices")
    (tmp_path / "devices" / "0000:83:00.0").mkdir(parents=True)
    (tmp_path / "devices" / "0000:83:00.0" / "local_cpulist").write_text("6-11\n")
    installed = AmdSmi(tmp_path)
    installed.install()
    return installed


@pytest.mark.parametrize("warning", ["", "WARNING: the user is in no group named render\n"])
def test_gpus_of_amd_are_workers_by_the_uuid_that_their_runtime_uses(amd_smi: AmdSmi, warning: str) -> None:
    amd_smi.install(warning)
    discovery = discover()
    assert [(each.worker.id, each.cpus, dict(each.env)) for each in discovery.accelerators] == [
        ("amd-instinct-mi300x-0", (6, 7, 8, 9, 10, 11), {"ROCR_VISIBLE_DEVICES": ONE}),
        ("amd-instinct-mi300x-1", (0, 1, 2, 3, 4, 5), {"ROCR_VISIBLE_DEVICES": TWO}),
    ]
    assert {each.worker.memory_bytes for each in discovery.accelerators} == {196592 << 20}
    assert all(each.is_gpu and each.is_amd for each in discovery.accelerators)


def test_a_gang_sees_its_gpus_of_amd_and_a_cpu_worker_none(amd_smi: AmdSmi) -> None:
    gpus_ = [dict(each.env) for each in discover().accelerators]
    assert devices_of_gang(gpus_) == {"ROCR_VISIBLE_DEVICES": f"{ONE},{TWO}"}
    ranks = [{"env": {**devices_of_gang(gpus_), "LOCAL_RANK": str(rank)}} for rank in (0, 1)]
    assert devices_of(ranks) == {0: ONE, 1: TWO}
    cpus = [each for each in discover(cpu_workers="all").accelerators if not each.is_gpu]
    assert cpus and all(each.env["ROCR_VISIBLE_DEVICES"] == "-1" for each in cpus)


def test_where_only_rocm_smi_is_its_cards_are_used(amd_smi: AmdSmi, tmp_path: Path) -> None:
    (tmp_path / "amd-smi").unlink()
    program(tmp_path / "rocm-smi", f"cat <<'END'\n{json.dumps(CARDS)}\nEND")
    (each,) = discover().accelerators
    assert each.worker.accelerator_type == "amd-instinct-mi210" and each.worker.memory_bytes == 68702699520
    assert each.device.upper() == ONE.upper() and each.cpus == tuple(range(12))


def test_an_entry_that_names_no_gpu_is_a_note_and_a_program_that_fails_is_one(amd_smi: AmdSmi, tmp_path: Path) -> None:
    amd_smi.answers["list"] = [LISTED[0], {**LISTED[1], "hip_uuid": "N/A"}]
    amd_smi.install()
    discovery = discover()
    assert len(discovery.accelerators) == 1 and "amd-smi lists a GPU that cannot be used" in discovery.notes[0]
    program(tmp_path / "amd-smi", "echo no driver is loaded >&2; exit 1")
    assert "amd-smi is there but does not answer" in discover().notes[0]


KEYS = st.sampled_from(
    ["gpu", "asic", "market_name", "hip_uuid", "gpu_data", "card0", "Unique ID", "Card Series", "vram"]
)
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from([ONE, "N/A", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.text(max_size=100) | VALUES.map(json.dumps))
def test_whatever_these_programs_print_gives_gpus_or_a_reason(printed: str) -> None:
    for read in (lambda: amd.read_gpus(printed, printed), lambda: amd.read_cards(printed)):
        try:
            gpus_, _ = read()
        except ValueError:
            continue
        assert all(gpu.memory_bytes >= 0 and gpu.uuid.startswith("GPU-") for gpu in gpus_)


def test_what_makes_a_gpu_of_amd_unusable(amd_smi: AmdSmi) -> None:
    health = GpuHealth(discover().accelerators)
    assert health.now() == {}
    amd_smi.answers["metric"] = [{**ERRORS[0], "ecc": {"total_uncorrectable_count": 2}}, ERRORS[1]]
    amd_smi.answers["process"] = [NO_PROCESSES[0], {"gpu": 1, "process_list": [process(os.getpid(), "train", 9 << 30)]}]
    amd_smi.install()
    problems = health.now()
    assert problems["amd-instinct-mi300x-0"].startswith("it has 2 uncorrected memory errors")
    assert problems["amd-instinct-mi300x-1"].startswith(f"process {os.getpid()} (train) holds 9216 MiB")
    amd_smi.answers |= {"metric": ERRORS, "process": NO_PROCESSES, "list": LISTED[:1]}
    amd_smi.install()
    assert "lost from the bus" in health.now()["amd-instinct-mi300x-1"] and len(health.now()) == 1


def test_little_memory_and_processes_of_gangs_leave_a_gpu_usable(amd_smi: AmdSmi) -> None:
    listed = [{"gpu": 0, "process_list": [process(11, "monitor", 48000), process(12, "train", 9 << 30)]}]
    assert amd.foreign_processes(listed, {"0": ONE}, lambda pid: pid == 12) == {}
    assert set(amd.foreign_processes(listed, {"0": ONE}, lambda pid: False)) == {ONE}


def test_gpus_of_amd_are_unusable_while_amd_smi_does_not_answer(amd_smi: AmdSmi) -> None:
    def fails(argv: object) -> str:
        raise subprocess.TimeoutExpired("amd-smi", 30)

    gpu = LocalAccelerator(
        worker=Worker(id="g-0", node="here", accelerator_type="g"),
        cpus=(),
        env={amd.VARIABLE: ONE},
        device=ONE,
    )
    assert GpuHealth([gpu], ask=fails).now()["g-0"].startswith("amd-smi does not answer")


def test_busy_and_memory_come_from_the_files_of_the_kernel_s_driver(tmp_path: Path) -> None:
    folder = tmp_path / "0000:83:00.0"
    folder.mkdir()
    (folder / "unique_id").write_text("de8287300da37c72\n")
    (folder / "gpu_busy_percent").write_text("73\n")
    (folder / "mem_info_vram_used").write_text("64424509440\n")
    (tmp_path / "0000:84:00.0" / "unique_id").mkdir(parents=True)  # as of a device that goes away: it cannot be read
    driver = AmdGpu(tmp_path)
    assert driver.read(ONE) == driver.read(ONE.upper()) == Reading(0.73, 60 << 30)
    assert driver.read(TWO) is None
    (folder / "gpu_busy_percent").unlink()
    assert driver.read(ONE) is None
    with pytest.raises(OSError, match="no GPU of AMD"):
        AmdGpu(tmp_path / "none")


def test_doctor_names_the_program_and_the_devices(amd_smi: AmdSmi, tmp_path: Path) -> None:
    findings_ = {each.about: each for each in findings(Settings(state_dir=tmp_path / "state"))}
    assert findings_["amd-smi"].text.endswith("/amd-smi") and ONE in findings_["amd-instinct-mi300x-0"].text
