"""Tasks that a running gang launched in addition to its ranks: each starts where the names it requires are free.

A task belongs to its gang's lease: it holds what it requires until it ends, and ends with its gang at the latest. All
of it is in three files of the gang's directory (docs/gang-protocol.md), so that a restarted service goes on from them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from gavel.backends.gang_files import NOT_STARTED, job_files
from gavel.backends.machine import Lines, append_json, write_json
from gavel.ephemeral.names import NODE_OWNER, check_requirement
from gavel.ephemeral.resources import Fallback, Gang, GangRequest, Member
from gavel.errors import InvalidRequest
from gavel.types import JobId
from gavel.types.environment import reserved

TASKS_MAX = 1_000
"""Tasks of one gang that wait or run."""

SCHEDULER_OWNER = "gavel"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NOT_ON_ITS_NODES = "what it requires is free together on nodes of other jobs only"


@dataclass(frozen=True, slots=True)
class Task:
    """What a process of the gang asked for. `number` counts the gang's requests, `requires` has full names."""

    name: str
    number: int
    argv: tuple[str, ...]
    requires: Mapping[str, int]
    env: Mapping[str, str]


class GangTasks:
    """The tasks of one gang: `requests` wait to be matched, `holds` are held by running tasks."""

    def __init__(self, directory: Path, job_id: JobId, generation: int, nodes: Sequence[str]) -> None:
        self._job_id = job_id
        self._owner = f"{job_id}/{generation}"  # differs from all job ids, which have no slash
        self._nodes = tuple(dict.fromkeys(nodes))
        self._paths = {name: str(directory / f"{name}.jsonl") for name in ("starts", "ends")}
        self._paths["waits"] = str(directory / "waits.json")
        self._paths["tasks"] = str(job_files(directory) / "tasks.jsonl")
        self._explained: dict[str, str] = {}
        self._asked, self._ends = Lines(self._paths["tasks"]), Lines(self._paths["ends"])
        self._started = {line["task"]: line["node"] for line in Lines(self._paths["starts"]).read_all()}
        self._alive: dict[str, Task] = {}  # waiting or running
        self._ended: set[str] = set()
        self._count = 0

    def look(self) -> tuple[Gang, ...]:
        """Read new requests and ends since the last look; return the holds that are to be released."""
        ended = [str(line.get("task")) for line in self._ends.read()]
        gone = [self._alive.pop(name) for name in ended if name in self._alive]
        self._ended.update(ended)
        for line in self._asked.read():
            self._take(line)
        return tuple(map(self._key, gone))

    def requests(self) -> tuple[GangRequest, ...]:
        """Return a request for each waiting task, on any of the gang's nodes; none while no node of it is known."""
        return tuple(map(self._request, self._waiting())) if self._nodes else ()

    def holds(self) -> tuple[tuple[Gang, str, Mapping[str, int]], ...]:
        """Return what each running task holds, and on which node: for a service that adopts the gang."""
        running = (task for task in self._alive.values() if task.name in self._started)
        return tuple((self._key(task), self._started[task.name], task.requires) for task in running)

    def start(self, matched: Gang, node: str, launch: Mapping[str, Any]) -> None:
        """Tell the supervisor to start the task on this node, like a rank that runs there. Raises OSError."""
        task = next(task for task in self._waiting() if self._key(task) == matched)
        ranks = [rank for rank in launch["ranks"] if rank["env"]["GAVEL_NODE"] == node]
        record = {
            "task": task.name,
            "node": node,
            "argv": list(task.argv),
            "cwd": launch["cwd"],
            "cpus": sorted({cpu for rank in ranks for cpu in rank["cpus"]}),
            "runs_as": ranks[0].get("runs_as"),
            "env": {**ranks[0]["env"], **task.env, "GAVEL_TASK": task.name},
        }
        append_json(self._paths["starts"], record)
        self._started[task.name] = node

    def explain(self, missing: Callable[[GangRequest], str]) -> None:
        """Write the reason for which each task waits into waits.json whenever it changed; `missing` knows all nodes."""
        waiting = self._waiting()
        alike = {frozenset(task.requires.items()): task for task in waiting}  # one look-up for equal needs
        why = {
            needs: missing(GangRequest(self._key(task), (Member(task.requires),))) or NOT_ON_ITS_NODES
            for needs, task in alike.items()
        }
        reasons = {task.name: why[frozenset(task.requires.items())] for task in waiting}
        if reasons != self._explained:
            with suppress(OSError):  # the disk is full: the next look writes it
                write_json(self._paths["waits"], reasons)
                self._explained = reasons

    def _take(self, line: Mapping[str, Any]) -> None:
        """Add a task; a request with the name of an existing task is that task, however often it is repeated."""
        name = str(line.get("task"))
        if name in self._alive or name in self._ended:
            return
        self._count += 1
        try:
            task = _checked(name, self._count, line, self._job_id)
            if len(self._alive) >= TASKS_MAX:
                raise InvalidRequest("tasks", f"{TASKS_MAX} tasks of this gang wait or run; wait for some of them")
        except InvalidRequest as problem:
            self._ended.add(name)
            with suppress(OSError):  # the disk is full
                append_json(self._paths["ends"], {"task": name, "exit_code": NOT_STARTED, "message": str(problem)})
            return
        self._alive[name] = task

    def _waiting(self) -> list[Task]:
        return [task for task in self._alive.values() if task.name not in self._started]

    def _key(self, task: Task) -> Gang:
        return self._owner, task.number

    def _request(self, task: Task) -> GangRequest:
        first, *others = [(Member(task.requires, node),) for node in self._nodes]
        return GangRequest(self._key(task), first, tuple(Fallback(-inf, members) for members in others))


def _checked(name: str, number: int, line: Mapping[str, Any], job_id: JobId) -> Task:
    """Return the task that the line requests. Raises InvalidRequest naming what is wrong."""
    if not NAME.fullmatch(name):
        raise InvalidRequest("name", f"{name!r} must be 1 to 63 of a-z, 0-9 and '-'")
    argv, requires, env = line.get("argv"), line.get("requires"), line.get("env", {})
    if not isinstance(argv, list) or not argv or not all(_is_text(word) for word in argv):
        raise InvalidRequest("argv", "must be a program and its arguments, a list of texts")
    if not isinstance(env, dict) or not all(_is_text(each) for each in (*env, *env.values())):
        raise InvalidRequest("env", "must be texts by name")
    for each in env:
        if why := reserved(each):
            raise InvalidRequest("env", f"{each} cannot be set: {why}")
    return Task(name, number, tuple(argv), _full_requirement(requires, job_id), env)


def _full_requirement(requires: object, job_id: JobId) -> dict[str, int]:
    """Return {owner/name: amount}; a name without owner is the job's own. Raises InvalidRequest."""
    if not isinstance(requires, dict) or not requires:
        raise InvalidRequest("requires", "a task must require at least one resource, such as {'near': 1}")
    full = {name if "/" in name else f"{job_id}/{name}": amount for name, amount in requires.items()}
    check_requirement(full)
    for name in full:
        if name.partition("/")[0] in (NODE_OWNER, SCHEDULER_OWNER):
            raise InvalidRequest(
                "requires", f"{name} is given by the scheduler only; tasks run on what their job holds"
            )
    return full


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
