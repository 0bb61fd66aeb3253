"""What a gang's GPUs do: values of a driver are played through its port, and the library's calls with one made here."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.backends import accelerator_sampler, utilization_sampler
from gavel.backends.accelerator_sampler import AcceleratorSampler, Nvml, Reading, devices_of
from gavel.backends.utilization import read_utilization, utilization_path
from gavel.backends.utilization_sampler import Sampler, sampler_of
from tests.api.conftest import wait_until

LIBRARY = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = (void *)uuid; return strncmp(uuid, "GPU-", 4) ? 2 : 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { rates[0] = 73; rates[1] = 5; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  memory[0] = 80ull << 30; memory[1] = 20ull << 30; memory[2] = 60ull << 30; return 0;
}
"""


class Recorded:
    """Plays readings of two devices, once `begins` is set; the second one cannot be read."""

    def __init__(self) -> None:
        self.readings: Iterator[Reading] = iter([Reading(0.2, 5 << 30), Reading(0.6, 6 << 30)])
        self.begins, self.is_over = threading.Event(), threading.Event()

    def read(self, device: str) -> Reading | None:
        assert self.begins.wait(60)
        reading = next(self.readings, None) if device == "GPU-a" else None
        if device == "GPU-a" and reading is None:
            self.is_over.set()
        return reading


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator_sampler, "EVERY_S", 0.001)
    monkeypatch.setattr(utilization_sampler, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(utilization_sampler, "EVERY_S", 0.0)


def test_a_sample_has_the_mean_since_the_last_one_and_the_newest_memory(tmp_path: Path) -> None:
    driver = Recorded()
    sampler = Sampler(
        str(utilization_path(tmp_path / "j.log")), 1, AcceleratorSampler({0: "GPU-a", 1: "GPU-b"}, lambda: driver)
    )
    sampler.look({0: 1, 1: 1})
    driver.begins.set()  # not before: the first look would have the readings
    assert driver.is_over.wait(60)
    sampler.look({0: 1, 1: 1})
    first, other, second, last = read_utilization(tmp_path / "j.log")
    assert (second.accelerator_busy, second.accelerator_memory_bytes) == (0.4, 6 << 30)
    assert [each.accelerator_busy for each in (first, other, last)] == [None] * 3


def test_a_driver_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    class Hanging:
        def read(self, device: str) -> Reading | None:
            return threading.Event().wait() or None  # type: ignore[func-returns-value]

    sampler = AcceleratorSampler({0: "GPU-a"}, Hanging)
    assert [sampler.take(), sampler.take()] == [{}, {}]


def test_where_there_is_no_gpu_nothing_is_asked_and_nothing_fails(tmp_path: Path) -> None:
    launch = {"log_path": str(tmp_path / "j.log"), "ranks": [{"env": {}}]}
    assert sampler_of(launch)._accelerators is None
    without = AcceleratorSampler({0: "GPU-a"}, lambda: Nvml("libno-such-library.so.1"))
    without.take()
    wait_until(lambda: without._thread is not None and not without._thread.is_alive())
    assert without.take() == {}


def test_each_rank_has_the_device_with_the_number_of_its_local_rank() -> None:
    ranks = [{"env": {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "LOCAL_RANK": str(local)}} for local in (0, 1, 2)]
    assert devices_of(ranks) == {0: "GPU-a", 1: "GPU-b"}
    assert devices_of([{"env": {"CUDA_VISIBLE_DEVICES": "0"}}, {"env": {}}]) == {}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to make a library with NVML's calls")
def test_the_library_s_calls(tmp_path: Path) -> None:
    (tmp_path / "nvml.c").write_text(LIBRARY)
    path = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "nvml.c"], timeout=60, check=True)
    driver = Nvml(str(path))
    assert driver.read("GPU-a") == Reading(0.73, 60 << 30)
    assert driver.read("none") is None


@pytest.mark.parametrize("values", ["7, 3", "-1, 3", "NaN, 3", "0.5, -1", "0.5, 1e400", "0.5"])
def test_what_no_accelerator_does_is_no_sample(tmp_path: Path, values: str) -> None:
    line = '{"at_s": 1.5, "generation": 2, "ranks": [[0, 0.5, 1024, VALUES]]}\n'.replace("VALUES", values)
    utilization_path(tmp_path / "j.log").write_text(line)
    assert read_utilization(tmp_path / "j.log") == ()
