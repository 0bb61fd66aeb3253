"""The evaluation suite: published traces under the production functions, our figures beside the published ones.

Needs the published traces: GAVEL_DATA names their folder (see the Makefile). The quick form leaves out two
runs of minutes.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import Row, run
from gavel.config import Settings
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.simulator import interior
from gavel.simulator.figures import Figures, figures, makespan_bound_h
from gavel.simulator.lean import replay
from gavel.simulator.outcome import Replay, Scenario
from gavel.simulator.setup import cluster_of
from workloads.traces.job import Lines
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import ScaledRates, read_throughputs, with_kinds

PHYSICAL, SMALL, LARGE = "v100:8,p100:16,k80:24", "v100:12,p100:12,k80:12", "v100:36,p100:36,k80:36"
PHILLY = "v100:168:8,p100:168:8,k80:164:8"  # 500 GPUs
CONTINUOUS = "continuous_single_5.2_per_hour_seed0"
PARITY = {"planner": "published", "solve_on": "event", "allocation_interval_s": 1920.0, "backfill": False}
BETTER = {"planner": "owed", "solve_on": "change", "allocation_interval_s": 0.0, "backfill": False}
SMALL_JOBS, LARGE_JOBS = (300, 600), (4000, 5000)


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure and how near ours has to come, in per cent (None: shown for comparison only)."""

    trace: str
    cluster: str
    policy: str
    measure: tuple[int, int] | None
    figure: str
    hours: float
    within_percent: float | None = None


FIGURES = (
    Published("max_min_fairness", PHYSICAL, interior.LAS, None, "mean_jct_h", 3.824, 2),
    Published("max_min_fairness", PHYSICAL, interior.LAS_AGNOSTIC, None, "mean_jct_h", 5.196, 3),
    Published("minimize_makespan", PHYSICAL, "makespan", None, "makespan_h", 17.405, 2),
    Published("small_single_seed0", SMALL, interior.LAS, SMALL_JOBS, "mean_jct_h", 15.92, 3),
    Published("small_multiple_seed0", SMALL, interior.LAS, SMALL_JOBS, "mean_jct_h", 25.64, 5),
    Published("small_multiple_seed0", SMALL, interior.LAS_AGNOSTIC, SMALL_JOBS, "mean_jct_h", 32.75, 5),
    Published(CONTINUOUS, LARGE, interior.LAS, LARGE_JOBS, "mean_jct_h", 22.38, 2),
    Published("max_min_fairness", PHYSICAL, "finish_time_fairness", None, "mean_jct_h", 3.936),
    Published("max_min_fairness", PHYSICAL, "equal_share", None, "mean_jct_h", 5.260),
    Published("max_min_fairness", PHYSICAL, "fifo", None, "mean_jct_h", 5.179),
    Published("minimize_makespan", PHYSICAL, interior.LAS, None, "makespan_h", 18.64),
)


def rows(quick: bool) -> Iterator[Row]:
    folder = os.environ.get("GAVEL_DATA", "")
    if not Path(folder, "gavel").is_dir():
        print("skipped: GAVEL_DATA names no folder with the published traces", file=sys.stderr)
        return
    data = Path(folder)
    yield from parity(data)
    yield from makespan_bound(data)
    yield from better(data, quick)
    yield from many_jobs(data)


def parity(data: Path) -> Iterator[Row]:
    """Ours beside the published figures, and the speed of two of those runs."""
    for each in FIGURES:
        result = simulated(data, each.trace, each.cluster, each.policy, each.measure, PARITY)
        ours = getattr(figures(result.rows), each.figure)
        name = f"{each.policy}, {each.trace}: {ours:.2f} h, published {each.hours:g} h; off by"
        yield Row(name, 100 * abs(ours / each.hours - 1), "%", each.within_percent)
        if (each.trace, each.policy) == (CONTINUOUS, interior.LAS):
            yield from shown("LAS", figures(result.rows))
            yield speed("speed at 36:36:36", result, 1500)
        if (each.trace, each.policy) == ("small_single_seed0", interior.LAS):
            yield speed("speed at 12:12:12", result, 5000)


def makespan_bound(data: Path) -> Iterator[Row]:
    trace = "static_multiple_300_seed0"
    result = simulated(data, trace, SMALL, "makespan", None, PARITY)
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    jobs = list(read_trace(Lines(data / "gavel" / f"{trace}.trace")))
    bound_h = makespan_bound_h(jobs, cluster_of(SMALL), table.rates)
    above = 100 * (figures(result.rows).makespan_h / bound_h - 1)
    yield Row(f"makespan of {trace} above its LP bound of {bound_h:.2f} h", above, "%", 0.7)


def better(data: Path, quick: bool) -> Iterator[Row]:
    """Maximum relative speed with ageing: no packing, no knowledge of how long jobs are."""
    name = "max_total_relative_speed?ageing="
    single = simulated(data, CONTINUOUS, LARGE, f"{name}attained_service", LARGE_JOBS, BETTER)
    found = figures(single.rows)
    yield Row(f"{name}attained_service, {CONTINUOUS}: mean JCT (published LAS 22.38)", found.mean_jct_h, "h", 18.2)
    yield from shown("relative speed", found)
    packed = simulated(data, CONTINUOUS, LARGE, f"{name}attained_service", LARGE_JOBS, BETTER, is_packed=True)
    found = figures(packed.rows)
    yield Row(f"the same with packing of pairs, {CONTINUOUS}: mean JCT", found.mean_jct_h, "h", 17.7)
    yield from shown("packed", found)
    if quick:
        print("left out of the quick form: workers handed on within a round, continuous_multiple_2.6", file=sys.stderr)
        return
    at_once = simulated(data, CONTINUOUS, LARGE, f"{name}attained_service", LARGE_JOBS, BETTER | {"backfill": True})
    found = figures(at_once.rows)
    yield Row("the same unpacked, workers handed on within a round: mean JCT", found.mean_jct_h, "h")
    trace = "continuous_multiple_2.6_per_hour_seed0"
    found = figures(simulated(data, trace, LARGE, f"{name}age", LARGE_JOBS, BETTER).rows)
    yield Row(f"{name}age, {trace}: mean JCT (published LAS 36.44)", found.mean_jct_h, "h", 26.0)
    yield from shown("relative speed, gangs", found)


def many_jobs(data: Path) -> Iterator[Row]:
    """Two weeks of a real cluster: 26,960 jobs, kinds drawn, on 500 GPUs."""
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    jobs = with_kinds(read_trace(Lines(data / "philly_busiest_2weeks.csv")), table, seed=0)
    settings = Settings(policy=interior.LAS, round_duration_s=360.0, **PARITY)  # type: ignore[arg-type]
    scenario = Scenario(cluster=cluster_of(PHILLY), throughput=ScaledRates(table), settings=settings)
    result = replay(jobs, scenario, runner=InlineRunner(interior.load))
    yield Row("26,960 jobs of philly_busiest_2weeks on 500 GPUs", result.tally.cpu_s, "CPU s", 180.0)
    yield Row("of those, at once at most", result.tally.most_active, "jobs")


def simulated(
    data: Path,
    trace: str,
    cluster: str,
    policy: str,
    measure: tuple[int, int] | None,
    rules: dict[str, object],
    *,
    is_packed: bool = False,
) -> Replay:
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
        beside=table.beside if is_packed else None,
    )
    load = interior.load if rules is PARITY else registry.load
    return replay(read_trace(Lines(data / "gavel" / f"{trace}.trace")), scenario, runner=InlineRunner(load))


def shown(name: str, found: Figures) -> Iterator[Row]:
    """What a mean hides."""
    yield Row(f"    {name}: p99 JCT", found.p99_jct_h, "h")
    yield Row(f"    {name}: longest JCT", found.max_jct_h, "h")
    yield Row(f"    {name}: mean JCT of each job alone on its fastest type", found.jct_floor_h, "h")
    yield Row(f"    {name}: jobs with rho over 1.05", 100 * found.share_rho_above_limit, "%")


def speed(name: str, result: Replay, target: float) -> Row:
    return Row(name, result.tally.rounds / result.tally.cpu_s, "rounds / CPU s", target, at_least=True)


if __name__ == "__main__":
    run("Evaluation", rows)
