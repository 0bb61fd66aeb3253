"""What an operator should know of this machine before and while Gavel runs here: `gavel doctor`."""

import os
import platform
import shlex
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from gavel.backends.accelerators import LocalAccelerator, discover
from gavel.backends.gpu_health import GpuHealth
from gavel.backends.ray.shared_folder import is_mounted
from gavel.config import Settings
from gavel.daemon.doctor_doors import ways_in
from gavel.errors import GavelError
from gavel.types.findings import Finding

__all__ = ["Finding", "findings"]

LOW_DISK_BYTES = 5 * 10**9


def findings(settings: Settings) -> Iterator[Finding]:
    """Yield what this machine offers and lacks under these settings. Takes about a second; nothing is changed."""
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding(about="version", verdict="ok", text=f"gavel {version('gavel')}, Python {platform.python_version()}")
    yield Finding(about="system", verdict="ok", text=f"{system}, {_memory_bytes() / 1e9:.1f} GB of memory")
    yield _disk(settings.state_dir)
    yield from ways_in(settings)
    yield _podman(settings.image_command)
    if settings.backend == "ray":
        text = f"those of Ray at {settings.ray_address}, see gavel node list; on a node run gavel doctor there"
        yield Finding(about="workers", verdict="note", text=text)
        yield from _shared_folder(settings.checkpoints_dir)
    else:
        yield from _workers(settings)


def _workers(settings: Settings) -> Iterator[Finding]:
    """Yield each accelerator that was found here with its share of the machine, and why others were not taken."""
    program = shutil.which("nvidia-smi")
    text = program or "not here, so no GPU of NVIDIA is looked for"
    yield Finding(about="nvidia-smi", verdict="ok" if program else "note", text=text)
    try:
        discovery = discover(settings.virtual_nodes, settings.cpu_workers)
    except GavelError as error:
        yield Finding(about="workers", verdict="problem", text=str(error))
        return
    problems = GpuHealth(discovery.accelerators).now()
    for each in discovery.accelerators:
        problem = problems.get(each.worker.id, "")
        text = f"{_share(each)}; {problem}" if problem else _share(each)
        yield Finding(about=each.worker.id, verdict="problem" if problem else "ok", text=text)
    for note in discovery.notes:
        yield Finding(about="workers", verdict="problem" if note in discovery.problems else "note", text=note)


def _share(each: LocalAccelerator) -> str:
    """Return the device, the memory and the cores of an accelerator."""
    device = f"{each.env['CUDA_VISIBLE_DEVICES']}, " if each.is_gpu else ""
    memory = f"{each.worker.memory_bytes / 1e9:.1f} GB of its own memory, " if each.worker.memory_bytes else ""
    return f"{device}{memory}cores {','.join(map(str, each.cpus)) or 'any'}"


def _shared_folder(folder: Path | None) -> Iterator[Finding]:
    """Yield whether the folder that all nodes share is mounted here; nothing if checkpoints are at a URL."""
    if folder is None:
        return
    mounted = is_mounted(str(folder))
    text = f"{folder} is mounted here" if mounted else f"{folder} is not mounted here, or no service has used it yet"
    yield Finding(about="shared folder", verdict="ok" if mounted else "problem", text=text)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk(state_dir: Path) -> Finding:
    place = next(each for each in (state_dir.resolve(), *state_dir.resolve().parents) if each.exists())
    free_bytes = shutil.disk_usage(place).free
    text = f"{free_bytes / 1e9:.1f} GB are free for the state folder {state_dir.resolve()}"
    if not os.access(place, os.W_OK):
        return Finding(about="disk", verdict="problem", text=f"{place} cannot be written to by this user")
    if free_bytes < LOW_DISK_BYTES:
        return Finding(about="disk", verdict="problem", text=f"{text}: make room, or set state_dir to a larger disk")
    return Finding(about="disk", verdict="ok", text=text)


def _podman(image_command: str) -> Finding:
    program = shlex.split(image_command)[0]
    path = shutil.which(program)
    if path is None:
        return Finding(about="images", verdict="note", text=f"{program} is not here, so jobs with an image end at once")
    return Finding(about="images", verdict="ok", text=f"jobs in images run by {path}")
