"""GPUs that cannot be trusted: their workers go and come back, by a stand-in for nvidia-smi."""

import os
import subprocess
from pathlib import Path

import pytest

from gavel.backends import foreign_processes, gpu_health
from gavel.backends.accelerators import LocalAccelerator
from gavel.backends.gpu_health import FIELDS, GpuHealth, usable
from gavel.types import Cluster, Node, Worker
from tests.backends.clusters import LocalHarness, command_of, eventually, processes_of, script

GPUS = tuple(
    LocalAccelerator(worker=Worker(id=name, node="here", accelerator_type="g"), cpus=(), device=device)
    for name, device in (("g-0", "GPU-1"), ("g-1", "GPU-2"), ("slice-0", "GPU-2"), ("cpu-0", ""))
)
FINE = "GPU-1, 0, Not Active, Not Active\nGPU-2, [N/A], Not Active, Not Active\n"


def problems(printed: str) -> dict[str, str]:
    return {worker: text.partition(":")[0] for worker, text in GpuHealth(GPUS, lambda: printed).now().items()}


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (FINE, {}),
        (FINE.replace("GPU-1, 0", "GPU-1, 3"), {"g-0": "it has 3 uncorrected memory errors"}),
        (
            FINE.replace("[N/A], Not Active", "[N/A], Active"),
            dict.fromkeys(("g-1", "slice-0"), "it is slowed down by heat"),
        ),
        (
            FINE.replace("GPU-1, 0, Not Active, Not", "GPU-1, 0, Not Active,"),
            {"g-0": "it is slowed down by its power supply"},
        ),
        (
            "GPU-1, 0, Not Active, Not Active, Reset\nGPU-2, 0, Not Active, Not Active, None\n",
            {"g-0": "its driver asks for `Reset` after an error of the GPU"},
        ),
        (FINE.replace("Not Active\n", "Not Active, [N/A]\n"), {}),
        (
            FINE.partition("\n")[0] + "\n[GPU is lost], [N/A], [N/A], [N/A]\n",
            dict.fromkeys(("g-1", "slice-0"), "nvidia-smi does not list it any more, it may be lost from the bus"),
        ),
    ],
)
def test_what_makes_a_gpu_unusable(printed: str, expected: dict[str, str]) -> None:
    """Values are those that the manual page of nvidia-smi names; of a divided GPU every slice is concerned."""
    assert problems(printed) == expected


def test_all_gpus_are_unusable_while_nvidia_smi_does_not_answer() -> None:
    def fails() -> str:
        raise subprocess.TimeoutExpired("nvidia-smi", 30)

    assert set(GpuHealth(GPUS, fails).now()) == {"g-0", "g-1", "slice-0"}
    assert GpuHealth(GPUS[3:], fails).problems() == {}


def test_a_driver_that_lacks_a_field_makes_no_gpu_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is only known which GPUs there are; where nothing is listed, what was printed is the reason."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    refuses = 'echo "Field \\"ecc.errors\\" is not a valid field to query."; exit 2'
    program.write_text(f'#!/bin/sh\n[ "$1" = "--query-gpu=uuid" ] && echo GPU-1 && exit\n{refuses}\n')
    program.chmod(0o700)
    assert set(GpuHealth(GPUS).now()) == {"g-1", "slice-0"}
    program.write_text(f"#!/bin/sh\n{refuses}\n")
    assert "is not a valid field" in GpuHealth(GPUS).now()["g-0"]


def test_a_driver_that_names_no_recovery_action_says_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The field came with release 570; before it uncorrected errors, heat and power are known all the same."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program, answer = tmp_path / "nvidia-smi", FINE.replace("GPU-1, 0", "GPU-1, 2")
    older = ",".join(FIELDS[:-1])
    program.write_text(f'#!/bin/sh\n[ "$1" = "--query-gpu={older}" ] || exit 2\nprintf "%s" "{answer}"\n')
    program.chmod(0o700)
    assert {worker: text[:9] for worker, text in GpuHealth(GPUS).now().items()} == {"g-0": "it has 2 "}


def test_a_gpu_that_a_foreign_process_uses_is_left_out_until_it_ends() -> None:
    """Not for what a monitor holds, nor for processes of gangs; of a GPU that is broken that is said first."""
    listed = "GPU-1, 11, 81234, python\nGPU-2, 12, 17, monitor\nGPU-2, 13, 9000, /usr/bin/train\nGPU-2, 14, [N/A], x\n"
    held = foreign_processes.foreign_processes(listed, lambda pid: pid == 11)
    assert list(held) == ["GPU-2"] and held["GPU-2"].startswith("process 13 (/usr/bin/train) holds 9000 MiB")
    health = GpuHealth(GPUS, lambda: FINE.replace("GPU-1, 0", "GPU-1, 3"), lambda: {"GPU-1": "held", **held})
    assert {worker: text[:9] for worker, text in health.now().items()} == {
        "g-0": "it has 3 ",
        "g-1": "process 1",
        "slice-0": "process 1",
    }


def test_only_processes_below_a_supervisor_are_ours(harness: LocalHarness) -> None:
    harness.backend.execute(script(harness, "sleep 60 & wait"))
    eventually(lambda: any(b"sleep" in command_of(pid) for pid in processes_of(harness.folder)))
    inner = [pid for pid in processes_of(harness.folder) if b"sleep" in command_of(pid)]
    assert all(foreign_processes.is_ours(pid) for pid in inner)
    assert not foreign_processes.is_ours(os.getpid())
    assert foreign_processes.is_ours(2**22 + 1), "it is gone"


def test_a_node_says_which_of_its_workers_is_left_out() -> None:
    cluster = Cluster(nodes=(Node(name="here"), Node(name="there")), workers=tuple(each.worker for each in GPUS))
    seen = usable(cluster, {"g-0": "it is hot", "slice-0": "it is lost"})
    assert [worker.id for worker in seen.workers] == ["g-1", "cpu-0"]
    assert [node.problem for node in seen.nodes] == ["g-0: it is hot; slice-0: it is lost", ""]
    assert usable(cluster, {}) is cluster


def test_a_worker_goes_while_its_gpu_is_bad_and_comes_back(
    harness: LocalHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_health, "LOOK_EVERY_S", 0.0)
    answer, program = tmp_path / "answer", tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = "--query-gpu={",".join(FIELDS)}" ] || exit 2\ncat {answer}\n')
    program.chmod(0o700)
    answer.write_text(FINE)
    harness.crash()
    harness.backend = harness.open(accelerators=GPUS)

    def shown(count: int) -> None:
        eventually(lambda: len(harness.backend.observe().cluster.workers) == count)

    shown(4)
    answer.write_text(FINE.replace("GPU-1, 0", "GPU-1, 1"))
    shown(3)
    assert "g-0: it has 1 uncorrected" in harness.backend.observe().cluster.nodes[0].problem
    answer.write_text(FINE)
    shown(4)
