"""A GPU of this machine, whatever its vendor: what it is, which cores are near it, and the cores that it gets."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gavel.backends import pci

CPUS_MAX = 8192
"""No kernel numbers more logical CPUs."""
RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")

Ask = Callable[[Sequence[str]], str]
"""Returns what a program prints. Raises SubprocessError or OSError."""


@dataclass(frozen=True, slots=True)
class NearCpus:
    """The logical CPUs next to a GPU, and who says so; none: it is not known."""

    cpus: frozenset[int] = frozenset()
    source: str = ""


UNKNOWN = NearCpus()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG slice of one, whose GPU is then `parent`.

    `memory_bytes` 0: unknown. `variable` is the environment variable that shows a process this GPU and no other one of
    its vendor, if its value is `uuid`.
    """

    name: str
    uuid: str
    variable: str
    memory_bytes: int = 0
    near: NearCpus = UNKNOWN
    parent: str = ""


def near_cpus(bus: str) -> NearCpus:
    """Return the logical CPUs next to a device on the PCI bus, as the kernel says; none where it says nothing."""
    device = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())  # nvidia-smi writes eight digits of the domain
    return near_by(pci.line(pci.PCI_DEVICES / device / "local_cpulist"), "the kernel")


def near_by(ranges: str, source: str) -> NearCpus:
    """Return the logical CPUs of a list that a source prints; none where it is no such list."""
    try:
        cpus = cpus_of(ranges)
    except ValueError:
        return UNKNOWN
    return NearCpus(cpus, source) if cpus else UNKNOWN


def cpus_of(ranges: str) -> frozenset[int]:
    """Return the numbers of a list of the kernel, such as `0-3,8`. Raises ValueError."""
    cpus: set[int] = set()
    for part in filter(None, ranges.strip().split(",")):
        ends = RANGE.fullmatch(part)
        if ends is None or int(ends[2] or ends[1]) >= CPUS_MAX:
            raise ValueError(f"this is no list of CPUs: {ranges[:80]}")
        cpus.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return frozenset(cpus)


def ranges_of(cpus: Collection[int]) -> str:
    """Return numbers as a list of the kernel, such as `0-3,8`: what `cpus_of` reads."""
    starts = [cpu for cpu in sorted(cpus) if cpu - 1 not in cpus]
    ends = [cpu for cpu in sorted(cpus) if cpu + 1 not in cpus]
    return ",".join(f"{start}-{end}" if end > start else f"{start}" for start, end in zip(starts, ends, strict=True))


def share_out(gpus: Sequence[Gpu], cores: Sequence[int], per_gpu: int) -> list[tuple[int, ...]]:
    """Return `per_gpu` cores for each GPU: those near it as far as they last, else others. None is given twice."""
    left = list(cores)
    shares: list[list[int]] = []
    for gpu in gpus:
        near = [core for core in left if core in gpu.near.cpus][:per_gpu]
        left = [core for core in left if core not in near]
        shares.append(near)
    for share in shares:
        while len(share) < per_gpu and left:
            share.append(left.pop(0))
    return [tuple(sorted(share)) for share in shares]


def no_answer(program: str, problem: Exception) -> str:
    """Return a note that says that a vendor's program failed, with the last line that it printed."""
    printed = str(getattr(problem, "stdout", None) or getattr(problem, "stderr", None) or "").strip()
    why = f"{problem} {printed.splitlines()[-1] if printed else ''}".strip()
    return f"{program} is there but does not answer, so no GPU is used: {why}"


# --- why a GPU cannot be used now ---------------------------------------------------------------------------------

LEAST_MIB = 256  # what monitors hold is less


def lost(program: str) -> str:
    """Return why a GPU that its vendor's program lists no more is not used."""
    return f"{program} does not list it any more, it may be lost from the bus: reset it, or reboot"


def memory_errors(count: int) -> str:
    """Return why a GPU with uncorrected memory errors is not used."""
    return f"it has {count} uncorrected memory errors: reset it, and replace it if they come back"


def held(pid: int, program: str, memory_mib: int) -> str:
    """Return why a GPU that a process outside all gangs uses is not used."""
    return f"process {pid} ({program[:60]}) holds {memory_mib} MiB of its memory: end that, and it is used"
