"""A GPU of this machine, whatever its vendor: what it is, which cores are near it, and the cores that it gets."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gavel.backends import pci

Ask = Callable[[Sequence[str]], str]
"""Returns what a program prints. Raises SubprocessError or OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG slice of one, whose GPU is then `parent`.

    `memory_bytes` 0: unknown; `near`: logical CPUs next to it, empty: unknown. `variable` is the environment variable
    that shows a process this GPU and no other one of its vendor, if its value is `uuid`.
    """

    name: str
    uuid: str
    variable: str
    memory_bytes: int = 0
    near: frozenset[int] = frozenset()
    parent: str = ""


def near_cpus(bus: str) -> frozenset[int]:
    """Return the logical CPUs next to a device on the PCI bus, as the kernel says; none where it says nothing."""
    device = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus.lower())  # nvidia-smi writes eight digits of the domain
    try:
        return cpus_of(pci.line(pci.PCI_DEVICES / device / "local_cpulist"))
    except ValueError:
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
