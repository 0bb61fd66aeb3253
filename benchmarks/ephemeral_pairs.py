"""AlphaZero-like pairs of a board generator and an evaluator (ESCHER, SoCC '22, section 6), placed in three ways.

Two pairs on a service that poses as two nodes: each task on a random node, each pair on a node that somebody
wrote down, and co-located pairs that are balanced, by libraries. All nodes are this machine: what differs is whether
boards travel over loopback TCP or lie in shared memory, and not how full a node is.
"""

import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row
from gavel.client import Client
from gavel.demo.service import ServiceProcess

PROGRAM = Path(__file__).parents[1] / "examples" / "alphazero.py"
PLACEMENTS = ("random", "static", "together")
PAIRS = 2
LIMIT_S = 300.0
LINE = re.compile(r"^(?:\[0\] )?(\w+): ([\d,]+) positions/s over (.+)$", re.MULTILINE)


def rows(quick: bool) -> Iterator[Row]:
    """Positions a second of both pairs, and how the placements compare."""
    rates = measured(moves=100 if quick else 400, repetitions=4 if quick else 20)
    for name, each in rates.items():
        yield Row(f"{PAIRS} pairs placed {name}", statistics.mean(each), "positions/s")
    for name in PLACEMENTS[:-1]:
        ratio = statistics.mean(rates["together"]) / statistics.mean(rates[name])
        yield Row(f"together to {name}, means", ratio, "ratio")
    slowest = sorted(rates["random"])[len(rates["random"]) // 20]
    yield Row("together to the slowest twentieth of random", statistics.mean(rates["together"]) / slowest, "ratio")


def measured(*, moves: int, repetitions: int) -> dict[str, list[float]]:
    """Positions a second by placement, taken in turns by one job of a service of two nodes."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"GAVEL_VIRTUAL_NODES": "2", "GAVEL_ROUND_DURATION_S": "600"}
        service = ServiceProcess(Path(folder) / "state", settings)
        with service, Client(service.url, service.operator_token) as gavel:
            own = ["--moves", str(moves), "--pairs", str(PAIRS), "--placements", ",".join(PLACEMENTS)]
            argv, steps = [sys.executable, str(PROGRAM), *own], len(PLACEMENTS) * repetitions
            submitted = gavel.submit(argv=argv, total_steps=steps, scale_factor=2)
            ended = gavel.wait(submitted["id"], LIMIT_S)
            log = "".join(gavel.read_logs(submitted["id"]))
    assert ended["state"] == "COMPLETED", log
    rates: dict[str, list[float]] = {name: [] for name in PLACEMENTS}
    for name, rate, _ in LINE.findall(log):
        rates[name].append(float(rate.replace(",", "")))
    return rates
