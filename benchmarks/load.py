"""Load on a service by wrk, a C program that uses little CPU time, and the CPU time of the service under it."""

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

SCRIPT = Path(__file__).with_name("submit.lua")
MISSING = "needs wrk on the PATH (Debian: apt install wrk)"
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}


@dataclass(frozen=True, slots=True)
class Answered:
    """The figures of wrk. `failed` counts answers other than 2xx and 3xx, and connections that broke."""

    requests: int
    seconds: float
    p99_ms: float
    failed: int


class Load:
    """A run of wrk with one thread, for a limited time."""

    def __init__(
        self, url: str, *, connections: int, seconds: float, token: str, submits: "Submits | None" = None
    ) -> None:
        self._seconds = seconds
        options = ["-t1", f"-c{connections}", f"-d{round(seconds)}s", "--latency", "--timeout", "10s"]
        environment = os.environ | {"TOKEN": token}
        if submits is None:
            options += ["-H", f"Authorization: Bearer {token}"]
        else:
            options += ["-s", str(SCRIPT)]
            environment |= {"RUN": submits.run, "BODY": submits.body, "ACKNOWLEDGED": str(submits.acknowledged)}
        self._process = subprocess.Popen([_wrk(), *options, url], env=environment, stdout=subprocess.PIPE, text=True)

    def result(self) -> Answered:
        """Return the figures, once the time is over."""
        try:
            output, _ = self._process.communicate(timeout=self._seconds + 30)
        finally:
            self._process.kill()
        return parsed(output)


@dataclass(frozen=True, slots=True)
class Submits:
    """The jobs to submit. `run` is part of the idempotency keys; acknowledged ids are appended to a file."""

    run: str
    body: str
    acknowledged: Path

    def ids(self) -> list[str]:
        """Return the ids acknowledged so far."""
        return self.acknowledged.read_text().split() if self.acknowledged.exists() else []


def _wrk() -> str:
    path = shutil.which("wrk")
    if path is None:
        raise SystemExit(MISSING)
    return path


def parsed(output: str) -> Answered:
    """Return the figures in the output of wrk."""
    requests, seconds = (
        _number(r"(\d+) requests in ([\d.]+)(us|ms|s|m)", output),
        _number(r"requests in ([\d.]+)", output),
    )
    slowest = re.search(r"99%\s+([\d.]+)(us|ms|s|m)", output)
    refused = _number(r"Non-2xx or 3xx responses: (\d+)", output)
    broken = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
    failed = refused + (sum(int(each) for each in broken.groups()) if broken else 0)
    p99_ms = float(slowest[1]) * UNITS_MS[slowest[2]] if slowest else float("nan")
    return Answered(round(requests), seconds, p99_ms, round(failed))


def _number(pattern: str, output: str) -> float:
    match = re.search(pattern, output)
    return float(match[1]) if match else 0.0


class Spent:
    """CPU seconds of a process, where asked with its scheduler and solver, since this was made."""

    def __init__(self, process: psutil.Process, *, with_children: bool = False) -> None:
        self._process, self._with_children = process, with_children
        self._before = self._all()

    def seconds(self) -> float:
        """Return the user and system time until now, in seconds."""
        return self._all() - self._before

    def _all(self) -> float:
        spent = 0.0
        for each in own_processes(self._process) if self._with_children else [self._process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                spent += sum(each.cpu_times()[:2])
        return spent


def own_processes(service: psutil.Process) -> list[psutil.Process]:
    """The service, its scheduler, its solver: no supervisors, which begin a job's own processes."""
    own, waiting = [], [service]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if not any("supervisor.py" in word for word in process.cmdline()):
                own.append(process)
                waiting += process.children()
    return own
