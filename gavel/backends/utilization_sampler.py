"""Samples what the ranks of a gang use, seldom. Standard library only: a part of the supervisor."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from gavel.backends.machine import boottime_s, children_of_all, descendants, stat_fields
from gavel.backends.meeting import DEVICES

if TYPE_CHECKING:
    from gavel.backends.accelerator_sampler import AcceleratorSampler

FIRST_AFTER_S, EVERY_S = 2.0, 10.0
FILE_BYTES = 1 << 18  # then samples are left out
RANKS_MAX = 64  # of a line
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Appends a line to a file of the job every ten seconds: CPU cores and memory of each rank with its children.

    Of a rank with an accelerator that `accelerators` knows, what that does and holds, too.
    """

    def __init__(self, path: str, generation: int, accelerators: "AcceleratorSampler | None" = None) -> None:
        self._path, self._generation = path, generation
        self._accelerators = accelerators
        self._looked_at_s = boottime_s()
        self._due_at_s = self._looked_at_s + FIRST_AFTER_S
        self._ticks: dict[int, int] = {}

    def look(self, pids: Mapping[int, int]) -> None:
        """Sample if it is time to. `pids`: the process of each rank. A full disk loses samples, nothing else."""
        now_s = boottime_s()
        if now_s < self._due_at_s:
            return
        elapsed_s = max(0.01, now_s - self._looked_at_s)
        self._looked_at_s, self._due_at_s = now_s, now_s + EVERY_S
        with contextlib.suppress(OSError):
            ranks = list(self._sampled(dict(sorted(pids.items())[:RANKS_MAX]), elapsed_s))
            line = json.dumps({"at_s": round(time.time(), 1), "generation": self._generation, "ranks": ranks})
            append_lines(self._path, [line])

    def _sampled(self, pids: Mapping[int, int], elapsed_s: float) -> Iterator[tuple[float, ...]]:
        """Yield rank, mean number of CPU cores since the last look, and bytes of resident memory.

        Where they are known, the part of the time in which its accelerator was busy, and the memory in use there.
        """
        ticks, children = {}, children_of_all()
        accelerators = self._accelerators.take() if self._accelerators else {}
        for rank, root in pids.items():
            spent = memory_bytes = 0
            for pid in (root, *descendants(root, children)):
                with contextlib.suppress(OSError):  # it ended while we looked
                    fields = stat_fields(pid)
                    ticks[pid] = int(fields[11]) + int(fields[12])
                    spent += max(0, ticks[pid] - self._ticks.get(pid, 0))
                    memory_bytes += int(fields[21]) * PAGE_BYTES
            yield rank, round(spent / TICKS_PER_S / elapsed_s, 3), memory_bytes, *accelerators.get(rank, ())
        self._ticks = ticks


def append_lines(path: str, lines: Iterable[str]) -> None:
    """Append samples to a file, and leave some out where it has become too long. Raises OSError."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)
        size = file.tell()
    if size > FILE_BYTES:
        thin(path)


def sampler_of(launch: Mapping[str, Any]) -> Sampler:
    """Return the sampler of a gang; one that looks at accelerators only if its ranks have some."""
    path, generation = f"{launch['log_path']}.utilization", launch.get("generation", 0)
    if not any(name in rank.get("env", {}) for rank in launch["ranks"] for name in DEVICES):
        return Sampler(path, generation)
    from gavel.backends.accelerator_sampler import AcceleratorSampler, devices_of  # loads more than most gangs need

    return Sampler(path, generation, AcceleratorSampler(devices_of(launch["ranks"])))


def thin(path: str) -> None:
    """Leave samples out where they are closer than twice the usual distance, so that a long job keeps all its time."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.readlines()
    instants = [_instant(line) for line in lines]
    gaps = sorted(_gaps(instants))
    distance_s = max(EVERY_S, 2 * gaps[len(gaps) // 2] if gaps else 0.0)
    kept: list[str] = []
    last_of: dict[int, float] = {}
    for line, (first, at_s) in zip(lines, instants, strict=True):
        last_s = last_of.get(first, -inf)
        if not last_s <= at_s < last_s + 0.75 * distance_s:  # clocks are set back, too
            kept.append(line)
            last_of[first] = at_s
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.writelines(kept[-len(lines) * 7 // 8 :])  # whatever the job wrote into it: it gets smaller
    os.replace(path + ".tmp", path)


def _gaps(instants: Iterable[tuple[int, float]]) -> Iterator[float]:
    """Yield the seconds between two lines that begin with the same rank."""
    last_of: dict[int, float] = {}
    for first, at_s in instants:
        if first in last_of:
            yield at_s - last_of[first]
        last_of[first] = at_s


def _instant(line: str) -> tuple[int, float]:
    """Return the first rank of a line, and its instant: each node of a gang writes lines of its own."""
    try:
        value = json.loads(line)
        return int(value["ranks"][0][0]), float(value["at_s"])
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return 0, 0.0
