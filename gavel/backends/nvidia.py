"""NVIDIA's GPUs and MIG slices of this machine, as nvidia-smi lists them."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from gavel.backends.gpus import UNKNOWN, Ask, Gpu, NearCpus, near_by, near_cpus, no_answer

QUERY = "--query-gpu=index,name,uuid,memory.total,pci.bus_id"
FORMAT = "--format=csv,noheader,nounits"
VARIABLE = "CUDA_VISIBLE_DEVICES"
GPU_LINE = re.compile(r"GPU\s+(\d+):.*\(UUID:\s*(GPU-[\w-]+)\)")
SLICE_LINE = re.compile(r"\s+MIG\s+(\S+)\s+Device\s+\d+:\s*\(UUID:\s*(MIG-[\w/-]+)\)")
TOPOLOGY = ("topo", "-m")
AFFINITY = "CPU Affinity"
UNDERLINE = re.compile(r"\x1b\[[0-9;]*m")
LINK = re.compile(r"X|[A-Z]{2,4}[0-9]{0,3}|N/A")  # itself; PIX .. SYS: what lies between; NV12: so many NVLinks
SLICE_MEMORY = re.compile(r"(\d+)gb")


def find_gpus(ask: Ask) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of this machine, MIG slices in the place of a GPU that is divided, and notes for its user."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], []
    try:
        by_index, notes = read_gpus(ask([program, QUERY, FORMAT]))
        slices = read_slices(ask([program, "-L"]))
    except (subprocess.SubprocessError, OSError) as problem:
        return [], [no_answer("nvidia-smi", problem)]
    workers: list[Gpu] = []
    for gpu in _with_near_cpus(by_index, program, ask):
        workers += [_slice_of(gpu, profile, uuid) for profile, uuid in slices.get(gpu.uuid, ())] or [gpu]
    return workers, notes


def read_gpus(listed: str) -> tuple[dict[str, Gpu], list[str]]:
    """Return the GPUs of the answer to `QUERY` by their index there, and a note for each line that names none."""
    gpus: dict[str, Gpu] = {}
    notes = []
    for line in filter(None, map(str.strip, listed.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(QUERY.split(",")) or not cells[2].startswith("GPU-") or cells[0] in gpus:
            notes.append(f"nvidia-smi lists a GPU that cannot be used: {line}")
            continue
        index, name, uuid, memory_mib, bus = cells
        memory_bytes = int(memory_mib) << 20 if memory_mib.isdecimal() else 0
        gpus[index] = Gpu(name=name, uuid=uuid, variable=VARIABLE, memory_bytes=memory_bytes, near=near_cpus(bus))
    return gpus, notes


def _with_near_cpus(by_index: Mapping[str, Gpu], program: str, ask: Ask) -> list[Gpu]:
    """Return the GPUs; of those of which the kernel says nothing (in containers, on WSL) the driver is asked."""
    if all(gpu.near.cpus for gpu in by_index.values()):
        return list(by_index.values())
    try:
        near = read_topology(ask([program, *TOPOLOGY]))
    except (subprocess.SubprocessError, OSError):  # as of a driver for a single GPU: it stays unknown
        near = {}
    return [
        gpu if gpu.near.cpus else replace(gpu, near=near.get(f"GPU{index}", UNKNOWN)) for index, gpu in by_index.items()
    ]


def read_topology(printed: str) -> dict[str, NearCpus]:
    """Return the logical CPUs next to `GPU0` .., of what `nvidia-smi topo -m` prints; nothing where it does not say.

    Rows and the columns of links are between single tabs; only the columns behind the affinity are filled up with more.
    A row is passed over unless all before its affinity are links: some drivers write long rows over each other. Long
    lists can be cut to the width of their column, and then name too few CPUs.
    """
    near: dict[str, NearCpus] = {}
    column = 0
    for line in UNDERLINE.sub("", printed).splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if AFFINITY in cells:
            column = cells.index(AFFINITY)
        elif 0 < column < len(cells) and all(map(LINK.fullmatch, cells[1:column])):
            near[cells[0]] = near_by(cells[column], "nvidia-smi topo")
    return near


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
