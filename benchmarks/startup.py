"""How fast the service and the command line start, and what an idle service holds in memory."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks.table import Row, run
from gavel.demo.service import ServiceProcess, wait_until


def rows(quick: bool) -> Iterator[Row]:
    repetitions = 3 if quick else 9
    yield Row("gavel --help", statistics.median(help_cpu_s() for _ in range(repetitions)), "CPU s", 0.5)
    starts, memory = zip(*(service_start() for _ in range(2 if quick else 5)), strict=True)
    yield Row("service start to first healthy answer", statistics.median(starts), "s", 3.0)
    yield Row("memory of the idle service, all its processes", statistics.median(memory), "MB", 250.0)


def help_cpu_s() -> float:
    """CPU seconds of `gavel --help`."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "gavel.cli", "--help"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def service_start() -> tuple[float, float]:
    """Seconds to the first healthy answer, and MB of resident memory once idle."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with ServiceProcess(Path(folder) / "state", {}) as service:
            wait_until(lambda: is_healthy(service.url), 30, every_s=0.01)
            started_s = time.perf_counter() - began
            wait_until((Path(folder) / "state" / "probe.json").exists, 30)
            wait_until(lambda: len(service.process.children(recursive=True)) == 1, 10)  # the scheduler; no probe
            process = service.process
            family = [process, *process.children(recursive=True)]
            return started_s, sum(each.memory_info().rss for each in family) / 1e6


def is_healthy(url: str) -> bool:
    """True once /healthz answers 200."""
    try:
        return httpx.get(f"{url}/healthz", timeout=1, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    run("Start-up", rows)
