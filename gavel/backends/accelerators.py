"""Which accelerators this machine has: its GPUs, and CPU cores capped to different instruction sets.

A capped core is a real accelerator type: numeric libraries choose their kernels by environment variables at process
start, so programs run at speeds that differ by type and, like those of GPU generations, in ratios that differ by model.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gavel.backends import amd, nvidia
from gavel.backends.gpus import UNKNOWN, Gpu, NearCpus, share_out
from gavel.child_processes import numeric_threads
from gavel.errors import BackendUnavailable
from gavel.types import Worker

WORKERS_PER_CORE = 2  # unless it is stated: where cores are few or types by threads, so that each holds a gang of two
SHARED_BELOW_CORES = 4  # from so many on each type has two cores
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"} | {
    "NVIDIA_VISIBLE_DEVICES": "void"
}
"""Variables with which a process sees no GPU."""
CPU_TYPES_MAX = 4
CPU_TYPES = frozenset({"avx512", "avx2", "scalar", "lowsimd", "lowblas"})
"""Types that a CPU can be made to emulate by variables; which of them, the CPU says."""
ASK_LIMIT_S = 20.0
NO_AVX_IN_TORCH = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
NUMPY_FEATURES = "import json, numpy; print(json.dumps(numpy.show_config(mode='dicts')['SIMD Extensions']))"

Cores = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAccelerator:
    """A worker of this machine, with the cores and the environment variables of its processes.

    `device` is the UUID of the GPU that it is or is a part of; "": it is no GPU. `near` are the CPUs next to that.
    """

    worker: Worker
    cpus: Cores
    env: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    near: NearCpus = UNKNOWN

    @property
    def is_gpu(self) -> bool:
        """Return True for a GPU or a part of one."""
        return bool(self.device)

    @property
    def is_amd(self) -> bool:
        """Return True for a GPU of AMD."""
        return self.is_gpu and amd.VARIABLE in self.env


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The accelerators of this machine, and notes about them for its user; `problems` are those to be mended."""

    accelerators: tuple[LocalAccelerator, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Type:
    """An accelerator type and the environment that makes it."""

    name: str
    env: Mapping[str, str]


def discover(virtual_nodes: int = 1, cpu_workers: str = "auto", per_core: int = 0) -> Discovery:
    """Return this machine's GPUs (of NVIDIA and AMD) and usable CPU cores as accelerators, with notes. About 0.2 s.

    `cpu_workers`: `all` cores that no GPU needs, `none`, at most that many workers, or `auto`: all without GPUs, none
    beside them. `per_core`: how many CPU workers share a core, 0: as many as the cores suggest.
    GPUs get all cores, beside CPU workers half of them: evenly, and near each as far as they last. With
    several virtual nodes the workers of each type are dealt out among them. Raises BackendUnavailable.
    """
    cores, notes = _cores()
    gpus, gpu_notes = _gpus()
    wanted = ("none" if gpus else "all") if cpu_workers == "auto" else cpu_workers
    has_cpus = wanted not in ("none", "0")
    per_gpu = len(cores) // ((2 if has_cpus else 1) * len(gpus)) if gpus else 0
    shares = share_out(gpus, cores, per_gpu)
    accelerators: tuple[LocalAccelerator, ...] = tuple(_gpu_accelerators(gpus, shares))
    left = [core for core in cores if all(core not in share for share in shares)]
    cpu_notes = _cpu_workers_note(cpu_workers, gpus)
    if has_cpus:
        cpus, cpu_notes = _cpu_accelerators(left, per_core)
        accelerators += tuple(cpus if wanted == "all" else cpus[: int(wanted)])
    if virtual_nodes > 1:
        accelerators = tuple(_over_nodes(accelerators, virtual_nodes))
        cpu_notes.append(f"this machine poses as {virtual_nodes} nodes, which share its cores and memory")
    problems = gpu_notes if accelerators else [*gpu_notes, *cpu_notes]
    return Discovery(accelerators=accelerators, notes=(*gpu_notes, *notes, *cpu_notes), problems=tuple(problems))


def _cpu_workers_note(cpu_workers: str, gpus: Sequence[Gpu]) -> list[str]:
    """Return why there are no CPU workers."""
    if gpus and cpu_workers == "auto":
        return ["there are GPUs, so CPU cores are no workers themselves; cpu_workers = all makes them so"]
    return [] if gpus else ["this machine has no workers: no GPU was found, and cpu_workers asks for no CPU worker"]


def _over_nodes(accelerators: Iterable[LocalAccelerator], nodes: int) -> Iterator[LocalAccelerator]:
    counts: Counter[str] = Counter()
    for each in accelerators:
        node = f"{node_name()}-{counts[each.worker.accelerator_type] % nodes}"
        counts[each.worker.accelerator_type] += 1
        yield replace(each, worker=replace(each.worker, node=node))


def node_name() -> str:
    """Return this machine's short host name, in the letters that a resource's name may have."""
    return slug(socket.gethostname().split(".")[0]) or "localhost"


def slug(text: str, most: int = 40) -> str:
    """Return the text in a-z, 0-9 and single '-' between them, cut to a maximal length."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:most].strip("-")


# --- cores ------------------------------------------------------------------------------------------------------


def _cores() -> tuple[list[int], list[str]]:
    """Return one logical CPU of each physical core that we may use, as many as our CPU quota can keep busy."""
    allowed = sorted(os.sched_getaffinity(0))
    physical = sorted({min(set(allowed) & _siblings(cpu)) for cpu in allowed})
    quota = _quota()
    cores = physical[: max(1, int(min(quota, len(physical))))]
    notes = []
    if len(physical) < len(allowed):
        notes.append(f"{len(allowed)} logical CPUs are {len(physical)} cores: one of each core is used")
    if len(cores) < len(physical):
        notes.append(f"a quota allows {quota:g} CPUs: {len(cores)} of {len(physical)} cores are used")
    return cores, notes


def _siblings(cpu: int) -> set[int]:
    """Return the logical CPUs on the core of this one, itself included."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        ranges = [part.split("-") for part in path.read_text(encoding="ascii").strip().split(",")]
    except FileNotFoundError:  # not every sandbox shows the topology
        return {cpu}
    return {cpu} | {each for ends in ranges for each in range(int(ends[0]), int(ends[-1]) + 1)}


def _quota() -> float:
    """Return the CPUs' worth of time that our control group grants (version 2); infinite if it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return float("inf")
    return float("inf") if quota == "max" else float(quota) / float(period)


# --- CPU types --------------------------------------------------------------------------------------------------


def _cpu_accelerators(cores: Sequence[int], stated: int = 0) -> tuple[list[LocalAccelerator], list[str]]:
    types = _cpu_types(_numpy_features(), len(cores))
    per_core = stated or (1 if types and len(cores) >= SHARED_BELOW_CORES else WORKERS_PER_CORE)
    notes = []
    if types:
        groups: list[tuple[_Type, Cores]] = [(types[i % len(types)], (core,)) for i, core in enumerate(cores)]
        if len(cores) == 1:
            groups = [(each, (cores[0],)) for each in types]
            notes.append("there is one core only, which all types share: throughput counts while all are busy")
    else:
        groups = _by_threads(cores)
        notes.append(
            "numpy cannot switch off AVX2 on this CPU: accelerator types differ by their number of threads instead"
        )
    if per_core > 1:
        notes.append(
            f"each core carries {per_core} workers of one type, so that every type can hold a gang of {per_core}; "
            "throughput is learned while all are busy"
        )
    return _workers(groups, per_core), notes


@cache
def capped_types() -> Mapping[str, Mapping[str, str]]:
    """Return the environment of each CPU type that this machine can emulate, by type. Raises BackendUnavailable."""
    return {each.name: each.env for each in _cpu_types(_numpy_features(), 2 * CPU_TYPES_MAX)}


def _cpu_types(features: Sequence[str], cores: int) -> list[_Type]:
    """Return as many types as there are cores for (two each, at least two types), the most different ones first.

    Empty where numpy has no AVX2 to switch off. `features`: the instruction sets, in numpy's names, that this CPU has
    and for which numpy has kernels.
    """
    avx512 = [name for name in features if name.startswith("AVX512") or name == "X86_V4"]
    avx = [name for name in features if name.startswith("AVX") or name in ("X86_V3", "X86_V4", "FMA3", "F16C")]
    if not {"AVX2", "X86_V3"} & set(features):
        return []
    if avx512:
        best = _Type("avx512", {"OPENBLAS_CORETYPE": "SkylakeX", "ATEN_CPU_CAPABILITY": "avx512"})
    else:
        best = _Type("avx2", {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2"})
    low_blas = {"OPENBLAS_CORETYPE": "Nehalem"}
    low_simd = {"NPY_DISABLE_CPU_FEATURES": " ".join(avx)}
    types = [
        best,
        _Type("scalar", {**low_blas, **low_simd, **NO_AVX_IN_TORCH}),
        _Type("lowsimd", {**low_simd, "ATEN_CPU_CAPABILITY": "default"}),
        _Type("lowblas", {**low_blas, "MKL_CBWR": "COMPATIBLE"}),
    ]
    return types[: max(2, min(CPU_TYPES_MAX, cores // 2))]


def _numpy_features() -> list[str]:
    """Return the instruction sets, in numpy's names, that this CPU has and for which numpy has kernels.

    A child process asks numpy: the names depend on numpy's version, and the service need not load numpy for them.
    """
    try:
        features = json.loads(_ask([sys.executable, "-c", NUMPY_FEATURES]))
    except subprocess.SubprocessError as problem:
        raise BackendUnavailable(f"numpy does not load, so the CPU's types are unknown: {problem}") from problem
    return [*features.get("found", ()), *features.get("baseline", ())]


def _by_threads(cores: Sequence[int]) -> list[tuple[_Type, Cores]]:
    """Return types of one and of two threads: a third of the cores singly, the rest in pairs."""
    one, two = (_Type(f"threads-{count}", numeric_threads(count)) for count in (1, 2))
    singles = max(1, len(cores) // 3)
    rest = cores[singles:] if len(cores) > 2 else cores
    pairs = [tuple(rest[start : start + 2]) for start in range(0, max(1, len(rest) - 1), 2)]
    return [*((one, (core,)) for core in cores[:singles]), *((two, pair) for pair in pairs)]


def _workers(groups: Iterable[tuple[_Type, Cores]], per_core: int) -> list[LocalAccelerator]:
    counts: Counter[str] = Counter()
    made = []
    for each, cpus in groups:
        for _ in range(per_core):
            worker = Worker(
                id=f"{each.name}-{counts[each.name]}",
                node=node_name(),
                accelerator_type=each.name,
                shares_core=per_core > 1,
            )
            counts[each.name] += 1
            made.append(LocalAccelerator(worker=worker, cpus=cpus, env={**NO_GPU, **numeric_threads(1), **each.env}))
    return made


# --- GPUs -------------------------------------------------------------------------------------------------------


def _gpus() -> tuple[list[Gpu], list[str]]:
    """Return the GPUs of both vendors, and notes."""
    looks = [find(_ask) for find in (nvidia.find_gpus, amd.find_gpus)]
    return [gpu for gpus, _ in looks for gpu in gpus], [note for _, notes in looks for note in notes]


def _gpu_accelerators(gpus: Sequence[Gpu], shares: Sequence[Cores]) -> Iterator[LocalAccelerator]:
    counts: Counter[str] = Counter()
    for gpu, cpus in zip(gpus, shares, strict=True):
        kind = slug(gpu.name)
        worker = Worker(
            id=f"{kind}-{counts[kind]}", node=node_name(), accelerator_type=kind, memory_bytes=gpu.memory_bytes
        )
        counts[kind] += 1
        env = {gpu.variable: gpu.uuid}
        yield LocalAccelerator(worker=worker, cpus=cpus, env=env, device=gpu.parent or gpu.uuid, near=gpu.near)


def _ask(argv: Sequence[str]) -> str:
    """Return the output of a program. Raises SubprocessError or OSError."""
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=ASK_LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout
