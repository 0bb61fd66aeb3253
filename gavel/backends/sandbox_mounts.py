"""Which folders, files and devices of its node a job sees in its sandbox: what the system has, and what is its own."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gavel.backends import amd, pci
from gavel.backends.input_cache import CachedInput
from gavel.backends.inputs import local_path
from gavel.backends.meeting import DEVICES, ONEAPI
from gavel.backends.sandbox_view import OF_ALL, SYSTEM

LINKED_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/localtime")  # they may lead out of /etc
LINKS_MAX = 16
PACKAGES = ("gavel", "workloads")
NVIDIA_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
OTHER_DEVICES = {"HIP_VISIBLE_DEVICES": ("/dev/kfd", "/dev/dri"), ONEAPI: ("/dev/dri",)}


def common_folders(extra: Sequence[str] = ()) -> dict[str, str]:
    """Return what every job sees, `rw` or `ro` by path. `extra`: folders of the operator, PATH or PATH:rw."""
    system = [path for path in SYSTEM if os.path.exists(path)]
    linked = [os.path.realpath(path) for path in LINKED_FILES if os.path.exists(path)]
    shown = dict.fromkeys((*system, *linked, *interpreter_folders(sys.executable), *_packages()), "ro")
    for each in extra:
        path, _, access = each.partition(":")
        shown[os.path.realpath(path)] = access or "ro"
    return shown


def _packages() -> Iterator[str]:
    """Yield the folders of our own packages, which are elsewhere than the interpreter in a checkout."""
    yield from {sys.prefix, sys.base_prefix}
    for name in PACKAGES:
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or () if spec else ())


def interpreter_folders(python: str) -> Iterator[str]:
    """Yield the folders that an interpreter needs: of each link that leads to it the installation it is in."""
    path = os.path.abspath(python)
    for _ in range(LINKS_MAX):
        yield _installation(path)
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    yield _installation(os.path.realpath(python))


def _installation(program: str) -> str:
    folder = os.path.dirname(program)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder


@cache
def private_files(root: str = "/etc") -> tuple[str, ...]:
    """Return what below `root` is not for every user of this machine, but could be read by a job as our own user."""
    user, groups, private = os.geteuid(), {os.getegid(), *os.getgroups()}, []
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            is_open = os.path.islink(path) or status.st_mode & 0o004
            if not is_open and (status.st_uid == user or status.st_gid in groups):
                private.append(path)
        folders[:] = [name for name in folders if os.path.join(folder, name) not in private]
    return tuple(private)


def named_paths(argv: Iterable[str], env: Mapping[str, str]) -> set[str]:
    """Return the absolute paths that arguments and variables of a job name, of those that are there.

    Of a file in the arguments its folder: a script has other files beside it.
    """
    words = [word.rpartition("=")[2] for word in argv]
    folders = {os.path.dirname(word) if os.path.isfile(word) else word for word in words}
    listed = {path for value in env.values() if value.startswith("/") for path in value.split(":")}
    named = {os.path.normpath(path) for path in folders | listed if path.startswith("/")}
    return {path for path in named if path not in OF_ALL and os.path.exists(path)}


def data_folders(launch: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders in which the fetched inputs of the job are, or will be."""
    for source in (launch["data"] or {"sources": {}})["sources"].values():
        if not local_path(source):
            yield CachedInput(launch["data"]["root"], launch["user"], source).folder


# --- devices ------------------------------------------------------------------------------------------------------


def device_nodes(env: Mapping[str, str]) -> list[str]:
    """Return the device nodes that the variables of a rank grant: of GPUs of NVIDIA only those that are named."""
    nodes = [path for name, paths in OTHER_DEVICES.items() if env.get(name, "-1") != "-1" for path in paths]
    named = env.get(DEVICES[0], "-1")
    if named != "-1":
        nodes += [*(f"/dev/{name}" for name in NVIDIA_SHARED), "/dev/nvidia-caps", *_gpus(named.split(","))]
    of_amd = env.get(amd.VARIABLE, "-1")
    if of_amd != "-1":
        nodes += ["/dev/kfd", *_render_nodes(of_amd.split(","))]
    return sorted({path for path in nodes if os.path.exists(path)})


def device_groups(env: Mapping[str, str]) -> list[int]:
    """Return the groups that a user needs for the devices which the variables of a rank grant."""
    states = map(os.stat, device_nodes(env))
    return sorted({state.st_gid for state in states if state.st_mode & 0o060 == 0o060} - {0})


def _gpus(named: Sequence[str]) -> list[str]:
    """Return the node of each GPU; those of all where one is named otherwise than by its UUID, as parts of GPUs are."""
    minors = _minors()
    chosen = [f"/dev/nvidia{minors[uuid]}" for uuid in named if uuid in minors]
    every = [f"/dev/{name}" for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    return chosen if len(chosen) == len(named) else every


def _render_nodes(named: Sequence[str]) -> Iterator[str]:
    """Yield the node of each GPU of AMD."""
    folders = pci.amd_gpus()
    for folder in (folders[uuid] for uuid in map(pci.uuid_of, named) if uuid in folders):
        yield from (f"/dev/dri/{node.name}" for node in folder.glob("drm/renderD*"))


def _minors() -> dict[str, str]:
    """Return the number of each GPU's device node by its UUID, as the driver says."""
    minors = {}
    for path in NVIDIA_GPUS.glob("*/information"):
        fields = dict(re.findall(r"^([^:\n]+):\s*(.*)$", path.read_text(encoding="utf-8", errors="replace"), re.M))
        minors[fields.get("GPU UUID", "").strip()] = fields.get("Device Minor", "").strip()
    return minors
