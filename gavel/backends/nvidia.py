"""NVIDIA's GPUs and MIG slices of this machine, as nvidia-smi lists them."""

import re
import shutil
import subprocess
from dataclasses import replace

from gavel.backends.gpus import Ask, Gpu, near_cpus, no_answer

QUERY = "--query-gpu=index,name,uuid,memory.total,pci.bus_id"
FORMAT = "--format=csv,noheader,nounits"
VARIABLE = "CUDA_VISIBLE_DEVICES"
GPU_LINE = re.compile(r"GPU\s+(\d+):.*\(UUID:\s*(GPU-[\w-]+)\)")
SLICE_LINE = re.compile(r"\s+MIG\s+(\S+)\s+Device\s+\d+:\s*\(UUID:\s*(MIG-[\w/-]+)\)")
SLICE_MEMORY = re.compile(r"(\d+)gb")


def find_gpus(ask: Ask) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of this machine, MIG slices in the place of a GPU that is divided, and notes for its user."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], []
    try:
        gpus, notes = read_gpus(ask([program, QUERY, FORMAT]))
        slices = read_slices(ask([program, "-L"]))
    except (subprocess.SubprocessError, OSError) as problem:
        return [], [no_answer("nvidia-smi", problem)]
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
        gpus.append(Gpu(name=name, uuid=uuid, variable=VARIABLE, memory_bytes=memory_bytes, near=near_cpus(bus)))
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


def _slice_of(gpu: Gpu, profile: str, uuid: str) -> Gpu:
    """Return a slice as an accelerator of its own; its memory is the size in its name, which is a little less."""
    memory = SLICE_MEMORY.search(profile)
    memory_bytes = int(memory[1]) * 10**9 if memory else 0
    return replace(gpu, name=f"{gpu.name} MIG {profile}", uuid=uuid, memory_bytes=memory_bytes, parent=gpu.uuid)
