"""Calls to Slurm, by its own commands, as the user of the service. Each may take long, so they have a thread."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gavel.backends.slurm.protocol import MINUTE_S
from gavel.errors import BackendUnavailable, InvalidRequest

COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
LIMIT_S = 20.0  # seconds for a command
PREFIX = "gavel/"
FIELDS = "%i|%T|%L|%j|%k|%N|%r"
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """One allocation as Slurm lists it. `nodes`: those that it has; none while it is pending.

    `left_s`: seconds until its time limit; None: it has none, or does not run.
    """

    job_id: int
    state: str
    name: str
    comment: str
    reason: str = ""
    nodes: tuple[str, ...] = ()
    left_s: float | None = None

    @property
    def has_ended(self) -> bool:
        """Return True once its processes are, or will be, ended by Slurm."""
        return self.state in ENDED


class Refused(Exception):
    """Slurm does not do it. The text is its own."""


class Slurm:
    """Slurm's commands. `calls` counts them by name. Raises InvalidRequest if they are not installed."""

    def __init__(self, calls: Counter[str], environment: Mapping[str, str] | None = None) -> None:
        missing = [name for name in COMMANDS if shutil.which(name) is None]
        if missing:
            text = f"{', '.join(missing)} not found: install Slurm's client commands (Debian: slurm-client) here"
            raise InvalidRequest("backend", text)
        self._calls = calls
        self._environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C", **(environment or {})}

    def nodes(self) -> list[Mapping[str, Any]]:
        """Return the nodes as `sinfo --json` lists them. Raises Refused, BackendUnavailable."""
        listed = json.loads(self._call("sinfo", "--json"))
        return list(listed["nodes"])

    def partition(self, name: str) -> tuple[str, float]:
        """Return name and longest time limit, in seconds, of a partition; of the default one for "".

        Raises Refused if it is not there.
        """
        rows = [line.split("|") for line in self._call("sinfo", "-h", "-a", "-o", "%P|%l|%a").splitlines()]
        for row, limit, _ in rows:
            if row.rstrip("*") == name or (not name and row.endswith("*")):
                return row.rstrip("*"), seconds_of(limit) or float("inf")
        names = ", ".join(sorted({row.rstrip("*") for row, _, _ in rows})) or "none"
        raise Refused(
            f"there is no partition {name or 'by default'}; set partition of the section slurm to one of: {names}"
        )

    def jobs(self) -> list[SlurmJob]:
        """Return our allocations, with those that ended lately. Raises Refused, BackendUnavailable."""
        return [
            job
            for line in self._call("squeue", "--me", "-h", "-t", "all", "-o", FIELDS).splitlines()
            for job in _job(line)
        ]

    def submit(
        self, options: Sequence[str], script: Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> int:
        """Return the number of the new allocation, which has PATH and these variables.

        A value is not on the command line, which everybody on this machine may read. Raises Refused,
        BackendUnavailable.
        """
        exported = f"--export={','.join(('PATH', *environment))}"
        printed = self._call(
            "sbatch", "--parsable", *options, exported, str(script), *arguments, environment=environment
        )
        return int(printed.split(";")[0])

    def cancel(self, job_ids: Iterable[int]) -> None:
        """End allocations, all in one call. Raises Refused, BackendUnavailable."""
        self._call("scancel", *map(str, job_ids))

    def extend(self, job_ids: Iterable[int], minutes: int) -> None:
        """Move the time limits of allocations later, all in one call. Raises Refused, BackendUnavailable."""
        self._call("scontrol", "update", f"JobId={','.join(map(str, job_ids))}", f"TimeLimit=+{minutes}")

    def _call(self, name: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> str:
        self._calls[name] += 1
        try:
            done = subprocess.run(
                (name, *arguments),
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BackendUnavailable(f"Slurm does not answer: {name} took more than {LIMIT_S:g} s") from None
        if done.returncode == 0:
            return done.stdout
        raise _problem(name, done.stderr)


def _problem(name: str, text: str) -> Exception:
    """Return what a command's failure means: nobody answers, or the answer is no."""
    complaint = " ".join(text.split())[-300:]
    unreachable = ("unable to contact", "connection refused", "communication", "socket timed out", "resolve", "munge")
    if any(each in complaint.lower() for each in unreachable):
        return BackendUnavailable(f"Slurm does not answer: {complaint}")
    return Refused(complaint or f"{name} failed")


def _job(line: str) -> Iterable[SlurmJob]:
    """Yield the allocation of a line of squeue, if it is one of ours."""
    fields = line.split("|")
    if len(fields) < len(FIELDS.split("|")) or not fields[3].startswith(PREFIX) or not fields[0].isdigit():
        return
    job_id, state, left, name, comment, nodes, *reason = fields
    yield SlurmJob(
        job_id=int(job_id),
        state=state,
        name=name,
        comment=comment,
        reason="|".join(reason),
        nodes=tuple(hosts_of(nodes)),
        left_s=seconds_of(left) if state == "RUNNING" else None,
    )


def hosts_of(text: str) -> list[str]:
    """Return the nodes of Slurm's `n[0-1,08],login`, in its order."""
    return [name for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text) for name in _expanded(part)]


def _expanded(part: str) -> Iterable[str]:
    before, bracket, rest = part.partition("[")
    numbers, _, after = rest.partition("]")
    if not bracket:
        return [before]
    return [
        f"{before}{number}{end}" for each in numbers.split(",") for number in _range(each) for end in _expanded(after)
    ]


def _range(text: str) -> Iterable[str]:
    first, _, last = text.partition("-")
    return (f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1))


def seconds_of(text: str) -> float | None:
    """Return the seconds of `[DAYS-][[HOURS:]MINUTES:]SECONDS`; None for UNLIMITED, infinite and what is no time."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * MINUTE_S + seconds
