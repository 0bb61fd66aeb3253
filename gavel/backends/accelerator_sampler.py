"""Reads how busy a gang's GPUs are and what memory they hold. Standard library only: a part of the supervisor.

NVIDIA's come from the driver's own library (NVML), called as the package nvidia-ml-py calls it: the supervisor sees no
installed packages. AMD's stand in files of the kernel's driver (kernel documentation, "GPU amdgpu", sections on memory
and usage). A driver may hang, so a thread asks it, for which the supervisor never waits.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gavel.backends.meeting import DEVICES
from gavel.backends.pci import amd_gpus, line, uuid_of

EVERY_S = 1.0  # NVML's own figure is of the last second at most
LIBRARY = "libnvidia-ml.so.1"


class Reading(NamedTuple):
    """`busy`: the part of the time, from 0 to 1, in which a kernel ran; memory in bytes, of all its processes."""

    busy: float
    memory_bytes: int


class Driver(Protocol):
    """What knows the accelerators of this machine."""

    def read(self, device: str) -> Reading | None:
        """Return what the device with this UUID does now; None if it cannot be told."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """NVIDIA's management library. Raises OSError if it is not there, or finds no driver."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(library)
        if code := self._library.nvmlInit_v2():
            raise OSError(f"nvmlInit_v2: error {code}")

    def read(self, device: str) -> Reading | None:
        """Return what the device with this UUID does now; None if it cannot be told, as of a part of a GPU (MIG)."""
        handle, busy, memory = ctypes.c_void_p(), _Utilization(), _Memory()
        calls: tuple[tuple[Any, ...], ...] = (
            (self._library.nvmlDeviceGetHandleByUUID, device.encode(), ctypes.byref(handle)),
            (self._library.nvmlDeviceGetUtilizationRates, handle, ctypes.byref(busy)),
            (self._library.nvmlDeviceGetMemoryInfo, handle, ctypes.byref(memory)),
        )
        if any(call(*arguments) for call, *arguments in calls):
            return None
        return Reading(busy.gpu / 100, memory.used)


class AmdGpu:
    """The files of the kernel's driver for AMD's GPUs. Raises OSError if there is no such GPU."""

    def __init__(self, devices: Path | None = None) -> None:
        self._folder_of = amd_gpus(devices)
        if not self._folder_of:
            raise OSError("this machine has no GPU of AMD")

    def read(self, device: str) -> Reading | None:
        """Return what the device with this UUID does now; None if it cannot be told."""
        folder = self._folder_of.get(uuid_of(device))
        if folder is None:
            return None
        busy, used = line(folder / "gpu_busy_percent"), line(folder / "mem_info_vram_used")
        return Reading(int(busy) / 100, int(used)) if busy.isdecimal() and used.isdecimal() else None


def open_driver() -> Driver:
    """Return what knows the accelerators of this machine. Raises OSError or AttributeError if there is nothing."""
    try:
        return Nvml()
    except (OSError, AttributeError):
        return AmdGpu()


class AcceleratorSampler:
    """Reads the devices of some ranks every second, from the first call of `take` on."""

    def __init__(self, device_of_rank: Mapping[int, str], open_driver: Callable[[], Driver] = open_driver) -> None:
        self._device_of_rank = dict(device_of_rank)
        self._open_driver = open_driver
        self._lock = threading.Lock()
        self._read: dict[int, list[Reading]] = {}
        self._thread: threading.Thread | None = None

    def take(self) -> dict[int, Reading]:
        """Return the mean of `busy` since the last call and the newest memory, by rank, where they are known."""
        if self._device_of_rank and self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        with self._lock:
            read, self._read = self._read, {}
        return {rank: _mean(readings) for rank, readings in read.items()}

    def _watch(self) -> None:
        try:
            driver = self._open_driver()
        except (OSError, AttributeError):
            return  # this machine has no such driver
        pause = threading.Event()
        while not pause.wait(EVERY_S):
            for rank, device in self._device_of_rank.items():
                reading = driver.read(device)
                if reading is not None:
                    with self._lock:
                        self._read.setdefault(rank, []).append(reading)


def _mean(readings: list[Reading]) -> Reading:
    return Reading(round(sum(each.busy for each in readings) / len(readings), 3), readings[-1].memory_bytes)


def devices_of(ranks: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the UUID of each rank's GPU, the one with the number of its LOCAL_RANK; nothing where it has none."""
    device_of_rank = {}
    for index, rank in enumerate(ranks):
        devices = next(filter(None, map(rank["env"].get, DEVICES)), "").split(",")
        local = rank["env"].get("LOCAL_RANK", "0")
        number = int(local) if local.isdecimal() else 0
        if number < len(devices) and devices[number].startswith("GPU-"):
            device_of_rank[int(rank.get("rank", index))] = devices[number]
    return device_of_rank
