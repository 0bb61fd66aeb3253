"""What an operator should know of this machine before and while Gavel runs here: `gavel doctor`."""

import os
import platform
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from gavel.backends.accelerators import LocalAccelerator, discover
from gavel.backends.containers import SEARCH
from gavel.backends.containers import image_command as command_for_images
from gavel.backends.control_groups import PROCESSES, Hierarchy, hierarchies, problem_of_groups, problem_of_limits
from gavel.backends.gpu_health import GpuHealth
from gavel.backends.gpus import ranges_of
from gavel.backends.job_users import problem_of_job_users
from gavel.backends.meeting import DEVICES
from gavel.backends.nameable_folders import ANYWHERE, is_bounded
from gavel.backends.nodes.shared_folder import is_mounted
from gavel.backends.sandbox import bubblewrap, is_sandboxed
from gavel.config import Settings
from gavel.daemon.doctor_doors import ways_in
from gavel.errors import GavelError
from gavel.types.findings import Finding
from gavel.types.people import OPERATOR

__all__ = ["Finding", "findings"]

LOW_DISK_BYTES = 5 * 10**9
WATCHED = "a gang that outgrows the memory it asked for is ended when that is seen, and only its workers' cores bind it"


def findings(settings: Settings) -> Iterator[Finding]:
    """Yield what this machine offers and lacks under these settings. Takes about a second; nothing is changed."""
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding(about="version", verdict="ok", text=f"gavel {version('gavel')}, Python {platform.python_version()}")
    yield Finding(about="system", verdict="ok", text=f"{system}, {_memory_bytes() / 1e9:.1f} GB of memory")
    yield _disk(settings.state_dir)
    yield from ways_in(settings)
    yield _podman(settings.image_command)
    yield _sandbox(settings.isolation)
    yield _job_folders(settings)
    yield _job_users(settings)
    groups = hierarchies()
    yield _limits(groups)
    yield _leftovers(settings.isolation, groups)
    for region, own in settings.by_region.items():
        for finding in _backend(own):
            yield replace(finding, about=f"{finding.about} ({region})") if region else finding


def _backend(settings: Settings) -> Iterator[Finding]:
    """Yield what is known here of the cluster of one backend."""
    if settings.backend == "ray":
        text = f"those of Ray at {settings.ray_address}, see gavel node list; on a node run gavel doctor there"
        yield Finding(about="workers", verdict="note", text=text)
        yield from _shared_folder(settings.checkpoints_dir)
    elif settings.backend == "slurm":
        yield _slurm()
        text = "those of Slurm's partition, see gavel node list; on a node run gavel doctor there"
        yield Finding(about="workers", verdict="note", text=text)
        yield from _shared_folder(settings.checkpoints_dir)
    elif settings.backend == "kubernetes":
        yield _kubernetes()
        text = "those of Kubernetes, see gavel node list"
        yield Finding(about="workers", verdict="note", text=text)
        yield from _shared_folder(settings.checkpoints_dir)
    elif settings.backend == "simulated":
        yield Finding(about="workers", verdict="note", text=f"simulated nodes: {settings.simulated_nodes}")
    else:
        yield from _workers(settings)


def _workers(settings: Settings) -> Iterator[Finding]:
    """Yield each accelerator that was found here with its share of the machine, and why others were not taken."""
    yield _program("nvidia-smi", "NVIDIA")
    yield _program("amd-smi", "AMD", "rocm-smi")
    try:
        discovery = discover(settings.virtual_nodes, settings.cpu_workers, settings.cpu_workers_per_core)
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


def _program(name: str, vendor: str, *others: str) -> Finding:
    """Return where the program is that lists a vendor's GPUs."""
    path = next(filter(None, map(shutil.which, (name, *others))), None)
    text = path or f"not here, so no GPU of {vendor} is looked for"
    return Finding(about=name, verdict="ok" if path else "note", text=text)


def _slurm() -> Finding:
    """Return whether Slurm's commands are here."""
    path = shutil.which("sbatch")
    text = path or "its commands are not here: install them (Debian: slurm-client), and its slurm.conf"
    return Finding(about="slurm", verdict="ok" if path else "problem", text=text)


def _kubernetes() -> Finding:
    """Return whether the client of Kubernetes is installed here."""
    is_here = find_spec("kubernetes") is not None
    text = "its client is here" if is_here else "its client is not here: pip install 'gavel[kubernetes]'"
    return Finding(about="kubernetes", verdict="ok" if is_here else "problem", text=text)


def _share(each: LocalAccelerator) -> str:
    """Return the device, the memory and the cores of an accelerator, and which cores are near it by which source."""
    device = f"{next(each.env[name] for name in DEVICES if name in each.env)}, " if each.is_gpu else ""
    memory = f"{each.worker.memory_bytes / 1e9:.1f} GB of its own memory, " if each.worker.memory_bytes else ""
    near = f"; near it: {ranges_of(each.near.cpus)} ({each.near.source})" if each.near.cpus else "; near it: unknown"
    return f"{device}{memory}cores {','.join(map(str, each.cpus)) or 'any'}{near if each.is_gpu else ''}"


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


def _job_folders(settings: Settings) -> Finding:
    """Return which files of this machine jobs may name, and whether anything keeps them to those."""
    folders, name = settings.job_folders.split(), "job folders"
    if not is_bounded(settings):
        return Finding(about=name, verdict="note", text="jobs reach what the service's account can read: no sandbox")
    if ANYWHERE in folders:
        text = "jobs of every user may name whatever the service's account can read (job_folders = /)"
        return Finding(about=name, verdict="note", text=text)
    if folders:
        return Finding(about=name, verdict="ok", text=f"jobs may name what is in {' '.join(folders)} (job_folders)")
    text = f"jobs of {OPERATOR} may name any file here, those of other users none but their own (job_folders)"
    return Finding(about=name, verdict="ok", text=text)


def _job_users(settings: Settings) -> Finding:
    """Return which Unix users jobs run as."""
    name = "job users"
    if problem := problem_of_job_users(settings.job_users, settings.state_dir, settings.isolation):
        return Finding(about=name, verdict="problem", text=problem)
    if settings.job_users:
        text = f"the jobs of each user run as a Unix user of their own, of {settings.job_users} (job_users)"
        return Finding(about=name, verdict="ok", text=text)
    text = f"jobs of all users run as the user of the service, uid {os.geteuid()} (job_users is not set)"
    return Finding(about=name, verdict="ok" if is_sandboxed(settings.isolation) else "note", text=text)


def _leftovers(isolation: str, groups: Mapping[str, Hierarchy]) -> Finding:
    """Return what ends the processes that a job leaves, also where its program hides them and kills its supervisor."""
    group = "" if (problem := problem_of_groups(groups)) else f"control group (version {groups[PROCESSES].version})"
    sandbox = "sandbox" if is_sandboxed(isolation) else ""
    if ends := " and its ".join(filter(None, (group, sandbox))):
        return Finding(about="leftovers", verdict="ok", text=f"what a job leaves running ends with its {ends}")
    text = f"a job that kills its supervisor can leave processes: it has no sandbox, and {problem}"
    return Finding(about="leftovers", verdict="note", text=text)


def _limits(groups: Mapping[str, Hierarchy]) -> Finding:
    """Return whether jobs are held to the memory and the cores that they ask for."""
    if problem := problem_of_limits(groups):
        return Finding(about="limits", verdict="note", text=f"{WATCHED}: {problem}")
    named = ", ".join(
        f"{name} by control groups of version {each.version}"
        for name, each in sorted(groups.items())
        if name != PROCESSES
    )
    return Finding(about="limits", verdict="ok", text=f"jobs are held to what they ask for: {named}")


def _sandbox(isolation: str) -> Finding:
    """Return whether jobs run in a sandbox here, and why not."""
    program = bubblewrap()
    if isolation == "none":
        return Finding(about="sandbox", verdict="note", text="jobs run without one, as isolation = none says")
    if program.problem:
        if isolation == "sandbox":
            return Finding(about="sandbox", verdict="problem", text=f"no job runs here: {program.problem}")
        return Finding(about="sandbox", verdict="note", text=f"jobs run without one: {program.problem}")
    return Finding(about="sandbox", verdict="ok", text=f"jobs run in one of {program.path} {program.version}")


def _podman(image_command: str) -> Finding:
    wanted = shlex.split(image_command)
    program = command_for_images(wanted)[0]
    path = shutil.which(program, path=SEARCH)
    if path is None:
        return Finding(about="images", verdict="note", text=f"{program} is not here, so jobs with an image end at once")
    instead = "" if program == wanted[0] else f", as {wanted[0]} is not here"
    return Finding(about="images", verdict="ok", text=f"jobs in images run by {path}{instead}")
