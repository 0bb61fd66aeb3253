"""The evaluation suite: published traces under the production functions, our figures beside the published ones.

Needs the published traces: GAVEL_DATA names their folder (see the Makefile). Parity rows and speed rows state rules
of their own; how good the service's schedules are is in evaluation_quality.py, whose quick form leaves out most jobs.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import evaluation_quality, evaluation_speed
from benchmarks.evaluation_quality import LARGE, SMALL
from benchmarks.table import Row, run
from gavel.config import Settings
from gavel.policies.inline import InlineRunner
from gavel.simulator.figures import Figures, figures, makespan_bound_h
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario, SimulationOutcome
from gavel.simulator.setup import cluster_of
from workloads.traces.job import Lines
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import ScaledRates, read_throughputs, with_kinds

LAS = "max_min_fairness?water_filling=false"
LAS_AGNOSTIC = "max_min_fairness?agnostic=true&water_filling=false"
PHYSICAL = "v100:8,p100:16,k80:24"
PHILLY = "v100:168:8,p100:168:8,k80:164:8"  # 500 GPUs
CONTINUOUS = "continuous_single_5.2_per_hour_seed0"
PARITY = {"planner": "published", "solve_on": "event", "allocation_interval_s": 1920.0, "backfill": False}
SMALL_JOBS, LARGE_JOBS = (300, 600), (4000, 5000)


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure and how far above it ours may be, in per cent (None: shown for comparison only).

    `both_ways`: ours may not be further below it either, as the policy leaves the published solver no choice there.
    """

    trace: str
    cluster: str
    policy: str
    measure: tuple[int, int] | None
    figure: str
    hours: float
    within_percent: float | None = None
    both_ways: bool = False


FIGURES = (
    Published("max_min_fairness", PHYSICAL, LAS, None, "mean_jct_h", 3.824, 2),
    Published("max_min_fairness", PHYSICAL, LAS_AGNOSTIC, None, "mean_jct_h", 5.196, 3),
    Published("minimize_makespan", PHYSICAL, "makespan", None, "makespan_h", 17.405, 2, both_ways=True),
    Published("small_single_seed0", SMALL, LAS, SMALL_JOBS, "mean_jct_h", 15.92, 3),
    Published("small_multiple_seed0", SMALL, LAS, SMALL_JOBS, "mean_jct_h", 25.64, 5),
    Published("small_multiple_seed0", SMALL, LAS_AGNOSTIC, SMALL_JOBS, "mean_jct_h", 32.75, 5),
    Published(CONTINUOUS, LARGE, LAS, LARGE_JOBS, "mean_jct_h", 22.38, 2, both_ways=True),
    Published("max_min_fairness", PHYSICAL, "finish_time_fairness", None, "mean_jct_h", 3.936),
    Published("max_min_fairness", PHYSICAL, "equal_share", None, "mean_jct_h", 5.260),
    Published("max_min_fairness", PHYSICAL, "fifo", None, "mean_jct_h", 5.179),
    Published("minimize_makespan", PHYSICAL, LAS, None, "makespan_h", 18.64),
)


def rows(quick: bool) -> Iterator[Row]:
    if data := traces():
        yield from parity(data)
        yield from makespan_bound(data)
        yield from evaluation_quality.rows(data, quick)
        yield from many_jobs(data)


def traces() -> Path | None:
    """The folder of the published traces, if there is one."""
    folder = os.environ.get("GAVEL_DATA", "")
    if not Path(folder, "gavel", "simulation_throughputs.json").is_file():
        print("skipped: GAVEL_DATA names no folder with the published traces", file=sys.stderr)
        return None
    return Path(folder)


def parity(data: Path) -> Iterator[Row]:
    """Ours beside the published figures, and the speed of two of those runs."""
    for each in FIGURES:
        result = simulated(data, each.trace, each.cluster, each.policy, each.measure, PARITY)
        ours = getattr(figures(result.rows), each.figure)
        above = 100 * (ours / each.hours - 1)
        by = "off by" if each.both_ways else "above by"
        name = f"{each.policy}, {each.trace}: {ours:.2f} h, published {each.hours:g} h; {by}"
        yield Row(name, abs(above) if each.both_ways else above, "%", each.within_percent)
        if (each.trace, each.policy) == (CONTINUOUS, LAS):
            yield from shown("LAS", figures(result.rows))
            yield from evaluation_speed.of_simulation("speed at 36:36:36", result, 1500)
        if (each.trace, each.policy) == ("small_single_seed0", LAS):
            yield from evaluation_speed.of_simulation("speed at 12:12:12", result, 5000)


def makespan_bound(data: Path) -> Iterator[Row]:
    trace = "static_multiple_300_seed0"
    result = simulated(data, trace, SMALL, "makespan", None, PARITY)
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    jobs = list(read_trace(Lines(data / "gavel" / f"{trace}.trace")))
    bound_h = makespan_bound_h(jobs, cluster_of(SMALL), table.rates)
    above = 100 * (figures(result.rows).makespan_h / bound_h - 1)
    yield Row(f"makespan of {trace} above its LP bound of {bound_h:.2f} h", above, "%", 0.7)


def many_jobs(data: Path) -> Iterator[Row]:
    """Two weeks of a real cluster: 26,960 jobs, kinds drawn, on 500 GPUs."""
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    jobs = with_kinds(read_trace(Lines(data / "philly_busiest_2weeks.csv")), table, seed=0)
    settings = Settings(policy=LAS, round_duration_s=360.0, **PARITY)  # type: ignore[arg-type]
    scenario = Scenario(cluster=cluster_of(PHILLY), throughput=ScaledRates(table), settings=settings)
    result = simulate(jobs, scenario, runner=InlineRunner())
    yield Row("26,960 jobs of philly_busiest_2weeks on 500 GPUs", result.tally.cpu_s, "CPU s", 180.0)
    yield Row("of those, at once at most", result.tally.most_active, "jobs")


def simulated(
    data: Path,
    trace: str,
    cluster: str,
    policy: str,
    measure: tuple[int, int] | None,
    rules: dict[str, object],
) -> SimulationOutcome:
    """One run of a published trace with the throughputs that belong to it."""
    kind = "physical_cluster" if cluster == PHYSICAL else "simulation"
    table = read_throughputs(data / "gavel" / f"{kind}_throughputs.json")
    over = dict(rules)
    if over["planner"] == "published" and ("agnostic" in policy or policy == "equal_share"):
        over["planner"] = "published_shuffled"
    settings = Settings(policy=policy, round_duration_s=360.0, **over)  # type: ignore[arg-type]
    scenario = Scenario(
        cluster=cluster_of(cluster),
        throughput=table.rates,
        settings=settings,
        measure=measure,
    )
    return simulate(read_trace(Lines(data / "gavel" / f"{trace}.trace")), scenario, runner=InlineRunner())


def shown(name: str, figures: Figures) -> Iterator[Row]:
    """What a mean hides."""
    yield Row(f"    {name}: p99 JCT", figures.p99_jct_h, "h")
    yield Row(f"    {name}: longest JCT", figures.max_jct_h, "h")
    yield Row(f"    {name}: mean JCT of each job alone on its fastest type", figures.jct_floor_h, "h")
    yield Row(f"    {name}: jobs with rho over 1.05", 100 * figures.share_rho_above_limit, "%")


if __name__ == "__main__":
    run("Evaluation", rows)
