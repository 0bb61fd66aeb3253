"""Limits the memory and the CPU time of a gang on its node by a control group of the kernel, of version 1 or 2.

Standard library only: a part of the supervisor. The group is made below that of this process, where the kernel lets
it; elsewhere a gang has no such limit. In version 2 a group with processes cannot have limited groups below it: so the
service runs in a group `service`, and gangs have theirs beside it (docs/operating.md).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

OWN = "/proc/self/cgroup"
MOUNTS = "/proc/self/mounts"
LEAF = "service"
CONTROLLERS = ("memory", "cpu")
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
        for name in names.split(",") if names else CONTROLLERS:
            place = mounted.get(name if names else "", "")
            if place and name in CONTROLLERS and name not in groups:
                home = os.path.normpath(f"{place}/{path}")
                parent = os.path.dirname(home) if version == 2 and os.path.basename(home) == LEAF else home
                groups |= {name: Hierarchy(name, version, home, parent)} if _has(parent, name, version) else {}
    return groups


def _has(parent: str, controller: str, version: int) -> bool:
    if version == 1:
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
    try:
        ControlGroup("gavel-probe", 1 << 40, 0, groups).remove()
    except OSError as problem:
        return f"no control group can be made below {groups['memory'].parent}: {problem.strerror}"
    return ""


class ControlGroup:
    """The group of a gang: at most so much memory, and CPU time of so many cores (0: any). Raises OSError."""

    def __init__(self, name: str, memory_bytes: int, cpu_cores: int, offered: Mapping[str, Hierarchy]) -> None:
        self.memory_bytes = memory_bytes
        wanted = [each for each, amount in zip(CONTROLLERS, (memory_bytes, cpu_cores), strict=True) if amount]
        self._groups = {f"{offered[each].parent}/{name}": offered[each] for each in wanted if each in offered}
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


def group_of(launch: Mapping[str, Any]) -> ControlGroup | None:
    """Return a new group for the ranks of a gang on this node; None if it needs none, or there can be none here."""
    limits = launch.get("limits")
    if not limits:
        return None
    offered, ranks = hierarchies(), len(launch["ranks"])
    name = f"gavel-{launch['job_id']}-{launch['generation']}-{os.getpid()}"
    with contextlib.suppress(OSError):
        return ControlGroup(name, ranks * limits["memory_bytes"], ranks * limits["cpu_cores"], offered)
    return None
