"""AMD's GPUs of this machine, as amd-smi or the older rocm-smi lists them, and which of them cannot be trusted now."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from gavel.backends.gpus import LEAST_MIB, Ask, Gpu, held, lost, memory_errors, near_cpus, no_answer
from gavel.backends.pci import uuid_of as uuid_of_id

VARIABLE = "ROCR_VISIBLE_DEVICES"  # what AMD recommends on Linux; it takes the UUIDs that the HIP runtime uses
LIST = ("list", "-e", "--json")
STATIC = ("static", "--asic", "--vram", "--json")
ERRORS = ("metric", "--ecc", "--json")
PROCESSES = ("process", "--json")
ROCM = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--json")
UUID = re.compile(r"GPU-[0-9a-f]{16}", re.IGNORECASE)
BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}  # amd-smi writes binary multiples so


def find_gpus(ask: Ask) -> tuple[list[Gpu], list[str]]:
    """Return AMD's GPUs of this machine and notes for its user; neither where no program of AMD's is installed."""
    for program, read in (("amd-smi", _by_amd_smi), ("rocm-smi", _by_rocm_smi)):
        path = shutil.which(program)
        if path is None:
            continue
        try:
            gpus, notes = read(path, ask)
        except (subprocess.SubprocessError, OSError, ValueError) as problem:
            return [], [no_answer(program, problem)]
        return gpus, [f"{program} lists a GPU that cannot be used: {note}" for note in notes]
    return [], []


def _by_amd_smi(program: str, ask: Ask) -> tuple[list[Gpu], list[str]]:
    return read_gpus(ask([program, *LIST]), ask([program, *STATIC]))


def _by_rocm_smi(program: str, ask: Ask) -> tuple[list[Gpu], list[str]]:
    return read_cards(ask([program, *ROCM]))


def read_gpus(listed: str, static: str) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of the answers to `LIST` and `STATIC`, and each entry that names none. Raises ValueError."""
    facts = {_text(each, "gpu"): each for each in _entries(static)}
    gpus, notes = [], []
    for each in _entries(listed):
        fact = facts.get(_text(each, "gpu"), {})
        name, uuid = _text(fact, "asic", "market_name"), _text(each, "hip_uuid")
        if name in ("", "N/A") or not UUID.fullmatch(uuid):
            notes.append(json.dumps(each)[:200])
            continue
        memory = _bytes(_at(fact, "vram", "size"))
        near = near_cpus(_text(each, "bdf"))
        gpus.append(Gpu(name=_vendors(name), uuid=uuid, variable=VARIABLE, memory_bytes=memory, near=near))
    return gpus, notes


def read_cards(listed: str) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of rocm-smi's answer to `ROCM`, and each card that cannot be used. Raises ValueError."""
    gpus, notes = [], []
    for card, each in sorted(_object(listed).items()):
        if not card.startswith("card"):
            continue
        name = _text(each, "Card Series") or _text(each, "Card series")
        uuid = uuid_of_id(_text(each, "Unique ID"))
        if name in ("", "N/A") or not UUID.fullmatch(uuid):
            notes.append(f"{card} {json.dumps(each)[:200]}")
            continue
        size = _text(each, "VRAM Total Memory (B)")
        memory = int(size) if size.isdecimal() else 0
        near = near_cpus(_text(each, "PCI Bus"))
        gpus.append(Gpu(name=_vendors(name), uuid=uuid, variable=VARIABLE, memory_bytes=memory, near=near))
    return gpus, notes


def problems(devices: Collection[str], ask: Ask, is_ours: Callable[[int], bool]) -> dict[str, str]:
    """Return why each of these GPUs (by UUID) cannot be used now, as amd-smi tells; nothing where only rocm-smi is."""
    program = shutil.which("amd-smi")
    if program is None or not devices:
        return {}
    try:
        uuid_of = {_text(each, "gpu"): _text(each, "hip_uuid") for each in _entries(ask([program, *LIST]))}
        used = foreign_processes(_entries(ask([program, *PROCESSES])), uuid_of, is_ours)
        return {**used, **broken(devices, _entries(ask([program, *ERRORS])), uuid_of)}
    except (subprocess.SubprocessError, OSError, ValueError) as problem:
        return dict.fromkeys(devices, f"amd-smi does not answer: {problem}")


def broken(devices: Collection[str], errors: Collection[Any], uuid_of: Mapping[str, str]) -> dict[str, str]:
    """Return the problem of each device that amd-smi does not list any more, or that has memory errors."""
    unusable = {device: lost("amd-smi") for device in devices if device not in uuid_of.values()}
    for each in errors:
        count = _text(each, "ecc", "total_uncorrectable_count")
        if count.isdecimal() and int(count):
            unusable[uuid_of.get(_text(each, "gpu"), "")] = memory_errors(int(count))
    return unusable


def foreign_processes(
    listed: Collection[Any], uuid_of: Mapping[str, str], is_ours: Callable[[int], bool]
) -> dict[str, str]:
    """Return what is to be said of each GPU of which a process outside all gangs holds much memory."""
    used = {}
    for each in listed:
        for pid, name, memory_mib in _processes(each):
            if memory_mib >= LEAST_MIB and not is_ours(pid):
                used[uuid_of.get(_text(each, "gpu"), "")] = held(pid, name, memory_mib)
    return used


def _processes(gpu: Any) -> Iterator[tuple[int, str, int]]:
    """Yield number, name and accelerator memory in MiB of each process; where none runs, amd-smi writes a sentence."""
    processes = _at(gpu, "process_list")
    for entry in processes if isinstance(processes, list) else ():
        pid = _text(entry, "process_info", "pid")
        if pid.isdecimal():
            memory_bytes = _bytes(_at(entry, "process_info", "memory_usage", "vram_mem"))
            yield int(pid), _text(entry, "process_info", "name"), memory_bytes >> 20


def _entries(printed: str) -> list[Any]:
    """Return one object for each GPU: a list, which since ROCm 7 is the member `gpu_data`. Raises ValueError."""
    value = _json(printed)
    entries = value.get("gpu_data") if isinstance(value, dict) else value
    if not isinstance(entries, list):
        raise ValueError(f"this is no list of GPUs: {printed.strip()[:200]}")
    return entries


def _object(printed: str) -> dict[str, Any]:
    value = _json(printed)
    if not isinstance(value, dict):
        raise ValueError(f"this is no object of cards: {printed.strip()[:200]}")
    return value


def _json(printed: str) -> Any:
    """Return what stands behind warnings, which these programs print on lines before their answer."""
    lines = printed.splitlines()
    first = next((number for number, line in enumerate(lines) if line.lstrip()[:1] in ("[", "{")), 0)
    try:
        return json.loads("\n".join(lines[first:]))
    except RecursionError as problem:
        raise ValueError("the answer is nested too deep") from problem


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any, *path: str) -> str:
    leaf = _at(value, *path)
    return str(leaf).strip() if isinstance(leaf, (str, int)) else ""


def _bytes(size: Any) -> int:
    """Return the bytes of `{"value": 196592, "unit": "MB"}`, 0 if it is something else."""
    value, unit = _text(size, "value"), _text(size, "unit").upper()
    return int(value) * BYTES[unit] if value.isdecimal() and unit in BYTES else 0


def _vendors(name: str) -> str:
    return name if name.upper().startswith("AMD") else f"AMD {name}"
