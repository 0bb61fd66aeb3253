"""NVIDIA's GPUs and MIG slices of this machine, as nvidia-smi lists them, and the cores near each."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

QUERY = "--query-gpu=index,name,uuid,memory.total,pci.bus_id"
FORMAT = "--format=csv,noheader,nounits"
PCI_DEVICES = Path("/sys/bus/pci/devices")
GPU_LINE = re.compile(r"GPU\s+(\d+):.*\(UUID:\s*(GPU-[\w-]+)\)")
SLICE_LINE = re.compile(r"\s+MIG\s+(\S+)\s+Device\s+\d+:\s*\(UUID:\s*(MIG-[\w/-]+)\)")
SLICE_MEMORY = re.compile(r"(\d+)gb")

Ask = Callable[[Sequence[str]], str]
"""Returns what a program prints. Raises SubprocessError or OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG slice of one, whose GPU is then `parent`.

    `memory_bytes` 0: unknown; `near`: logical CPUs next to it, empty: unknown.
    """

    name: str
    uuid: str
    memory_bytes: int = 0
    near: frozenset[int] = frozenset()
    parent: str = ""


def find_gpus(ask: Ask) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of this machine, MIG slices in the place of a GPU that is divided, and notes for its user."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], []
    try:
        gpus, notes = read_gpus(ask([program, QUERY, FORMAT]))
        slices = read_slices(ask([program, "-L"]))
    except (subprocess.SubprocessError, OSError) as problem:
        printed = str(getattr(problem, "stdout", None) or getattr(problem, "stderr", None) or "").strip()
        why = f"{problem} {printed.splitlines()[-1] if printed else ''}".strip()
        return [], [f"nvidia-smi is there but does not answer, so no GPU is used: {why}"]
    workers: list[Gpu] = []
    for gpu in gpus:
        workers += [_slice_of(gpu, profile, uuid) for profile, uuid in slices.get(gpu.uuid, ())] or [gpu]
    return workers, notes


def read_gpus(listed: str) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of the answer to `QUERY`, and a note for each line that names none."""
    gpus, notes = [], []
    for line in filter(None, map(str.strip, listed.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(QUERY.split(",")) or not cells[2].startswith("GPU-"):
            notes.append(f"nvidia-smi lists a GPU that cannot be used: {line}")
            continue
        _, name, uuid, memory_mib, bus = cells
        memory_bytes = int(memory_mib) << 20 if memory_mib.isdigit() else 0
        gpus.append(Gpu(name=name, uuid=uuid, memory_bytes=memory_bytes, near=near_cpus(bus)))
    return gpus, notes


def read_slices(listed: str) -> dict[str, list[tuple[str, str]]]:
    """Return profile and UUID of each MIG slice, by the UUID of its GPU, of what `nvidia-smi -L` prints."""
    slices: dict[str, list[tuple[str, str]]] = {}
    parent = ""
    for line in listed.splitlines():
        if gpu := GPU_LINE.match(line):
            parent = gpu[2]
        elif part := SLICE_LINE.match(line):
            slices.setdefault(parent, []).append((part[1], part[2]))
    return slices


def near_cpus(bus: str) -> frozenset[int]:
    """Return the logical CPUs next to a device on the PCI bus, as the kernel says; none where it says nothing."""
    device = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())  # nvidia-smi writes the domain in eight digits
    try:
        return cpus_of((PCI_DEVICES / device / "local_cpulist").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return frozenset()


def cpus_of(ranges: str) -> frozenset[int]:
    """Return the numbers of a list of the kernel, such as `0-3,8`. Raises ValueError."""
    parts = [part.split("-") for part in ranges.strip().split(",") if part]
    return frozenset(cpu for ends in parts for cpu in range(int(ends[0]), int(ends[-1]) + 1))


def share_out(gpus: Sequence[Gpu], cores: Sequence[int], per_gpu: int) -> list[tuple[int, ...]]:
    """Return `per_gpu` cores for each GPU: those near it as far as they last, else others. None is given twice."""
    left = list(cores)
    shares: list[list[int]] = []
    for gpu in gpus:
        near = [core for core in left if core in gpu.near][:per_gpu]
        left = [core for core in left if core not in near]
        shares.append(near)
    for share in shares:
        while len(share) < per_gpu and left:
            share.append(left.pop(0))
    return [tuple(sorted(share)) for share in shares]


def _slice_of(gpu: Gpu, profile: str, uuid: str) -> Gpu:
    """Return a slice as an accelerator of its own; its memory is the size in its name, which is a little less."""
    memory = SLICE_MEMORY.search(profile)
    memory_bytes = int(memory[1]) * 10**9 if memory else 0
    return Gpu(name=f"{gpu.name} MIG {profile}", uuid=uuid, memory_bytes=memory_bytes, near=gpu.near, parent=gpu.uuid)
