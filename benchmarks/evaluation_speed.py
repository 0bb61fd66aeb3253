"""Rows of the evaluation about speed: how many rounds a simulation plans and carries out per CPU second.

Machines differ, and others may load the same one. So each speed stands beside its product with the time of a fixed
numpy workload that is measured in the same run (`reference.py`): the rounds that fit into that workload's CPU time.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from benchmarks.reference import reference_cpu_s
from benchmarks.table import Row
from gavel.config import Settings
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.setup import cluster_of
from gavel.types import Allocation, AllocationProblem
from workloads.traces.job import Lines
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import read_throughputs

LARGE = "v100:36,p100:36,k80:36"
CONTINUOUS = "continuous_single_5.2_per_hour_seed0"
FIRST, LAST = 400, 800  # rounds that are timed: about a hundred jobs are there by then
REFERENCE_S = 0.05  # of the machine that the targets in rounds per CPU second are for
LEAN_TARGET, DRIVER_TARGET = 1000.0, 200.0


class _World(Protocol):
    def rounds(self) -> Iterator[object]: ...


class _Counting(InlineRunner):
    """A runner that counts what it is asked."""

    solves = 0

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        self.solves += 1
        return super().allocate(policy, problem, time_limit_s)


def rows(data: Path) -> Iterator[Row]:
    """Both simulations under the service's own rules: its default policy, planner, backfill, a solve on change."""
    yield from _timed("lean simulation", LeanWorld, data, LEAN_TARGET)
    yield from _timed("driver with its store", DrivenWorld, data, DRIVER_TARGET)


def speed(name: str, rounds_per_cpu_s: float, target: float) -> Iterator[Row]:
    """The speed of a run, in rounds per CPU second and per reference workload."""
    yield Row(name, rounds_per_cpu_s, "rounds / CPU s", target, at_least=True)
    per_reference = rounds_per_cpu_s * reference_cpu_s()
    yield Row(f"    {name}", per_reference, "rounds / reference workload", target * REFERENCE_S, at_least=True)


def of_simulation(name: str, result: SimulationOutcome, target: float) -> Iterator[Row]:
    """The speed of a whole simulation."""
    yield from speed(name, result.tally.rounds / result.tally.cpu_s, target)


def _timed(name: str, world: Callable[..., _World], data: Path, target: float) -> Iterator[Row]:
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    rules: dict[str, Any] = {"round_duration_s": 360.0}  # all others are the service's
    settings = Settings(**rules)
    scenario = Scenario(cluster=cluster_of(LARGE), throughput=table.rates, settings=settings, measure=(0, 5000))
    runner = _Counting()
    rounds = world(read_trace(Lines(data / "gavel" / f"{CONTINUOUS}.trace")), scenario, runner).rounds()
    for _ in range(FIRST):
        next(rounds)
    asked, began_s = runner.solves, time.process_time()
    for _ in range(FIRST, LAST):
        next(rounds)
    cpu_s = time.process_time() - began_s
    of = f"{settings.policy}, rounds {FIRST} to {LAST} at 36:36:36"
    yield from speed(f"{name}: {of}", (LAST - FIRST) / cpu_s, target)
    yield Row(f"    of these rounds {name} asked the policy in", runner.solves - asked, "rounds")
