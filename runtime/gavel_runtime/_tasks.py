"""Tasks of a job: programs that start beside its ranks, on nodes where the ephemeral resources they require are free.

Requests and answers are files in the gang's directory (docs/gang-protocol.md); a task ends with its gang at the latest.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_POLL_S = 0.02


class Task:
    """A program that was launched; it may still wait for what it requires."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._directory = directory

    @property
    def node(self) -> str | None:
        """The node on which it runs or ran; None while it waits."""
        record = self._record("starts")
        return str(record["node"]) if record else None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal, 127 if it could not be started; None before its end."""
        record = self._record("ends")
        return int(record["exit_code"]) if record else None

    @property
    def waiting_for(self) -> str:
        """What it waits for; empty once it runs, and until the service has read the request."""
        try:
            reasons = json.loads((self._directory / "waits.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        return str(reasons.get(self.name, ""))

    @property
    def message(self) -> str:
        """Why it could not be started, if so."""
        record = self._record("ends")
        return str(record["message"]) if record else ""

    def wait(self, timeout_s: float = float("inf")) -> int:
        """Wait until it has ended; return its exit code. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while (exit_code := self.exit_code) is None:
            if time.monotonic() >= deadline_s:
                state = "runs" if self.node else f"waits ({self.waiting_for or 'for the service to look'})"
                raise TimeoutError(f"task {self.name} {state} after {timeout_s:g} s")
            time.sleep(_POLL_S)
        return exit_code

    def _record(self, file: str) -> dict[str, Any] | None:
        lines = _lines(self._directory / f"{file}.jsonl")
        return next((line for line in lines if line.get("task") == self.name), None)


def ask_for_task(
    directory: Path, name: str, argv: Sequence[str], requires: Mapping[str, int], env: Mapping[str, str]
) -> Task:
    """Request a task and return it. Raises ValueError if the service would refuse it, OSError if the disk is full."""
    if isinstance(argv, str) or not argv:
        raise ValueError("argv: a program and its arguments, as a list")
    if not requires:
        raise ValueError("requires: name at least one resource, such as {'near': 1}; set it with job.set_resource")
    request = {"task": name, "argv": list(argv), "requires": dict(requires), "env": dict(env)}
    line = json.dumps(request).encode() + b"\n"
    file = os.open(directory / "tasks.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        if os.write(file, line) != len(line):
            raise OSError("tasks.jsonl: the request was cut short, the disk is full")
    finally:
        os.close(file)
    return Task(directory, name)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        yield json.loads(line)
