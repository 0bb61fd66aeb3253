"""Puts a gang on its node into a control group of the kernel, of version 1 or 2, which ends and limits its processes.

Whatever a program does with sessions, environments and parents, its processes stay in the group and end with it.
Standard library only: a part of the supervisor. The group is made below that of this process, where the kernel lets
it; elsewhere a gang has none. In version 2 a group with processes cannot have limited groups below it: so the service
runs in a group `service`, and gangs have theirs beside it (docs/operating.md).
"""

import binascii
import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

OWN = "/proc/self/cgroup"
MOUNTS = "/proc/self/mounts"
LEAF = "service"
CONTROLLERS = ("memory", "cpu")
PROCESSES = (
    "processes"  # where a group is only listed and killed: version 2 without a controller, or `pids` of version 1
)
PERIOD_US = 100_000


class Hierarchy(NamedTuple):
    """Where gangs can have groups for a controller. `home`: the group of this process, to which it returns."""

    controller: str
    version: int
    home: str
    parent: str


def hierarchies(own: str = OWN, mounts: str = MOUNTS) -> dict[str, Hierarchy]:
    """Return the hierarchy of each controller, as the kernel lists them in these two files."""
    mounted = dict(_mounts(mounts))
    groups: dict[str, Hierarchy] = {}
    for line in _lines(own):
        _, names, path = line.split(":", 2)
        version = 1 if names else 2
        for name, key in _offered(names):
            place = mounted.get(key, "")
            if place and (name not in groups or (name == PROCESSES and version == 2)):
                home = os.path.normpath(f"{place}/{path}")
                parent = os.path.dirname(home) if version == 2 and os.path.basename(home) == LEAF else home
                groups |= {name: Hierarchy(name, version, home, parent)} if _has(parent, name, version) else {}
    return groups


def _offered(names: str) -> list[tuple[str, str]]:
    """Return what a line of /proc/PID/cgroup is for, each with the key of its mount."""
    if not names:
        return [(each, "") for each in (*CONTROLLERS, PROCESSES)]
    controllers = names.split(",")
    return [(PROCESSES if each == "pids" else each, each) for each in controllers if each in (*CONTROLLERS, "pids")]


def _has(parent: str, controller: str, version: int) -> bool:
    if version == 1 or controller == PROCESSES:
        return True
    return any(controller in line.split() for line in _lines(f"{parent}/cgroup.controllers"))


def _mounts(path: str) -> Iterator[tuple[str, str]]:
    """Yield controller and folder of each mounted hierarchy; "" for that of version 2."""
    for line in _lines(path):
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            yield "", place
        elif kind == "cgroup":
            yield from ((name, place) for name in options.split(","))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError:
        return []


def problem_of_limits(groups: Mapping[str, Hierarchy]) -> str:
    """Return why no gang can be limited here; "" if it can. Makes a group and removes it again."""
    if "memory" not in groups:
        return "the kernel offers no control group for memory here"
    return _problem_of(groups, "memory", memory_bytes=1 << 40)


def problem_of_groups(groups: Mapping[str, Hierarchy]) -> str:
    """Return why no gang can have a group here; "" if it can. Makes a group and removes it again."""
    return _problem_of(groups, PROCESSES) if PROCESSES in groups else "the kernel offers no control groups here"


def _problem_of(groups: Mapping[str, Hierarchy], needed: str, memory_bytes: int = 0) -> str:
    try:
        ControlGroup(f"gavel-probe-{os.getpid()}", memory_bytes, 0, groups).remove()
    except OSError as problem:
        return f"no control group can be made below {groups[needed].parent}: {problem.strerror}"
    return ""


class ControlGroup:
    """The group of a gang: at most so much memory, and CPU time of so many cores (0: any). Raises OSError."""

    def __init__(self, name: str, memory_bytes: int, cpu_cores: int, offered: Mapping[str, Hierarchy]) -> None:
        self.memory_bytes = memory_bytes
        self.limits_memory = bool(memory_bytes) and "memory" in offered
        wanted = [each for each, amount in zip(CONTROLLERS, (memory_bytes, cpu_cores), strict=True) if amount]
        places = [offered[each] for each in (*wanted, PROCESSES) if each in offered]
        self._groups = {f"{each.parent}/{name}": each for each in places}
        amounts = dict(zip(CONTROLLERS, (memory_bytes, cpu_cores), strict=True))
        try:
            for folder, hierarchy in self._groups.items():
                limited = [each for each in wanted if each in offered and offered[each].parent == hierarchy.parent]
                _make(folder, hierarchy, limited)
                for each in limited:
                    _limit(folder, each, hierarchy.version, amounts[each])
        except OSError:
            self.remove()
            raise

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in the group meanwhile, so that what is started then is in it from its beginning. Raises OSError."""
        try:
            for folder in self._groups:
                _write(f"{folder}/cgroup.procs", "0")
            yield
        finally:
            for hierarchy in self._groups.values():
                _write(f"{hierarchy.home}/cgroup.procs", "0")

    def kills_for_memory(self) -> int:
        """Return how many processes of the group the kernel has killed at its limit of memory."""
        lines = [line for folder in self._groups for name in EVENTS for line in _lines(f"{folder}/{name}")]
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def kill(self) -> bool:
        """Kill every process of the group; return whether there was one."""
        return any([kill_group(folder) for folder in self._groups])

    def remove(self) -> None:
        """Remove the group, in which nothing runs any more."""
        for folder in self._groups:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


EVENTS = ("memory.events", "memory.oom_control")


def _make(folder: str, hierarchy: Hierarchy, controllers: Sequence[str]) -> None:
    if hierarchy.version == 2:
        _enable(hierarchy.parent, controllers)
    os.makedirs(folder, exist_ok=True)


def _enable(parent: str, controllers: Sequence[str]) -> None:
    enabled = " ".join(_lines(f"{parent}/cgroup.subtree_control")).split()
    missing = [each for each in controllers if each not in enabled]
    if missing:
        _write(f"{parent}/cgroup.subtree_control", " ".join(f"+{each}" for each in missing))


def _limit(folder: str, controller: str, version: int, amount: int) -> None:
    name, text = {
        ("memory", 1): ("memory.limit_in_bytes", str(amount)),
        ("memory", 2): ("memory.max", str(amount)),
        ("cpu", 1): ("cpu.cfs_quota_us", str(amount * PERIOD_US)),
        ("cpu", 2): ("cpu.max", f"{amount * PERIOD_US} {PERIOD_US}"),
    }[controller, version]
    _write(f"{folder}/{name}", text)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def memory_of(launch: Mapping[str, Any]) -> int:
    """Return the bytes of memory that a gang may have on this node; 0: any."""
    of_a_rank = (launch.get("limits") or {"memory_bytes": 0})["memory_bytes"]
    return len(launch["ranks"]) * int(of_a_rank)


def group_of(launch: Mapping[str, Any], directory: str) -> ControlGroup | None:
    """Return a new group for the gang of this folder on this node, with its limits where they can be set.

    None where there can be no group, and for an image, whose containers have groups of their own.
    """
    if launch.get("image"):
        return None
    offered, ranks = hierarchies(), len(launch["ranks"])
    limits = launch.get("limits") or {"memory_bytes": 0, "cpu_cores": 0}
    name = f"{prefix_of(directory)}{os.getpid()}"
    for memory_bytes, cpu_cores in ((limits["memory_bytes"], limits["cpu_cores"]), (0, 0)):
        with contextlib.suppress(OSError):
            return ControlGroup(name, ranks * memory_bytes, ranks * cpu_cores, offered)
    return None


# --- the groups of gangs, as the service finds them -----------------------------------------------------------------


def prefix_of(directory: str) -> str:
    """Return how the names of a gang's groups begin (a pid follows), whose folder is GANGS/JOB/GENERATION."""
    gangs, job, generation = directory.rsplit("/", 2)
    return f"{prefix_of_all(gangs)}{job}-{generation}-"


def prefix_of_all(gangs: str) -> str:
    """Return how the names of all groups of gangs begin whose folders are below `gangs`."""
    return f"gavel-{binascii.crc32(os.fsencode(gangs)):08x}-"


def gang_of(pid: int, gangs: str) -> str:
    """Return the folder below `gangs` whose group a process is in, as the kernel says; "" if it is in none."""
    start = prefix_of_all(gangs)
    for name in (line.rpartition("/")[2] for line in _lines(f"/proc/{pid}/cgroup")):
        if name.startswith(start):
            job, generation, _ = name.removeprefix(start).rsplit("-", 2)
            return f"{gangs}/{job}/{generation}"
    return ""


def kill_groups(directory: str, pids: Iterable[int]) -> None:
    """Kill the groups of the gang of this folder that these processes are in."""
    homes = {each.home for pid in pids for each in hierarchies(f"/proc/{pid}/cgroup").values()}
    for folder in (each for each in homes if os.path.basename(each).startswith(prefix_of(directory))):
        kill_group(folder)


def remove_groups(prefix: str) -> None:
    """Remove the empty groups whose names begin so, which supervisors have left that were killed."""
    for place in {each.parent for each in hierarchies().values()}:
        for name in (name for name in _names(place) if name.startswith(prefix)):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(f"{place}/{name}")


def remove_left(gangs: str) -> None:
    """Remove the empty groups of gangs whose folders were below `gangs`, and whose supervisors are gone.

    One whose supervisor lives may be empty just before its first program enters it.
    """
    start = prefix_of_all(gangs)
    names = {name for each in hierarchies().values() for name in _names(each.parent) if name.startswith(start)}
    for name in names:
        if not os.path.exists(f"/proc/{name.rpartition('-')[2]}"):
            remove_groups(name)


def has_group(directory: str, supervisor: int) -> bool:
    """Return whether the group is there that a supervisor has made for the gang: it removes it at its own end."""
    name = f"{prefix_of(directory)}{supervisor}"
    return any(os.path.isdir(f"{each.parent}/{name}") for each in hierarchies().values())


def kill_group(folder: str) -> bool:
    """Kill every process in a group; return whether there was one. Where the kernel cannot, no new one is let in."""
    pids = [int(line) for line in _lines(f"{folder}/cgroup.procs")]
    with contextlib.suppress(OSError):
        _write(f"{folder}/cgroup.kill", "1")
        return bool(pids)
    with contextlib.suppress(OSError):
        _write(f"{folder}/pids.max", "0")
    for pid in filter(None, pids):  # 0: it is in no namespace of ours
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
