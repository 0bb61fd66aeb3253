"""Tasks of a job: programs that start beside its ranks, wherever the ephemeral resources they require are free.

Said and heard through files in the gang's directory (docs/gang-protocol.md); a task ends with its gang at the latest.
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
        """Where it runs or ran; None while it waits."""
        said = self._said("starts")
        return str(said["node"]) if said else None

    @property
    def exit_code(self) -> int | None:
        """0 or what it exited with, negative for a signal, 127 if it could not be started; None before its end."""
        said = self._said("ends")
        return int(said["exit_code"]) if said else None

    @property
    def waiting_for(self) -> str:
        """What it waits for; empty once it runs, and for a moment before the service has looked."""
        try:
            reasons = json.loads((self._directory / "waits.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ""
        return str(reasons.get(self.name, ""))

    @property
    def message(self) -> str:
        """Why it could not be started, if so."""
        said = self._said("ends")
        return str(said["message"]) if said else ""

    def wait(self, timeout_s: float = float("inf")) -> int:
        """Its exit code, once it has ended. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while (exit_code := self.exit_code) is None:
            if time.monotonic() >= deadline_s:
                state = "runs" if self.node else f"waits ({self.waiting_for or 'for the service to look'})"
                raise TimeoutError(f"task {self.name} {state} after {timeout_s:g} s")
            time.sleep(_POLL_S)
        return exit_code

    def _said(self, file: str) -> dict[str, Any] | None:
        lines = _lines(self._directory / f"{file}.jsonl")
        return next((line for line in lines if line.get("task") == self.name), None)


def ask_for_task(
    directory: Path, name: str, argv: Sequence[str], requires: Mapping[str, int], env: Mapping[str, str]
) -> Task:
    """The task, asked for. Raises ValueError for what the service would refuse, OSError when the disk is full."""
    if isinstance(argv, str) or not argv:
        raise ValueError("argv: a program and its arguments, as a list")
    if not requires:
        raise ValueError("requires: name at least one resource, such as {'near': 1}; set it with job.set_resource")
    said = {"task": name, "argv": list(argv), "requires": dict(requires), "env": dict(env)}
    line = json.dumps(said).encode() + b"\n"
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
