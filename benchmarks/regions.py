"""Moves between regions, on a published trace in three regions with different mixes (docs/regions.md).

Each job has a data set of 1 GB to 1 TB (log-uniform) in a region drawn at random, and checkpoints of 2 GB. The rule of
the service stands beside three others, all of them through the production driver: no job moves; each round every job
moves to where it would be fastest, whatever that costs; and each job is in one region only, the best of some placements
that are chosen with the whole trace known (benchmarks/regions_hindsight.py). Rounds of 360 s, the default policy.
"""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.regions_hindsight import Hindsight, Placement
from benchmarks.table import Row, run
from gavel.config import RegionsSection, Settings
from gavel.mechanism.planning.regions import HomeChoice, Homes, MoveTerms, RegionProblem, choose_homes
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import cluster_of
from gavel.types import JobSpec
from workloads.traces.job import Lines, TraceJob
from workloads.traces.readers import read_trace
from workloads.traces.throughputs import ScaledRates, ThroughputTable, read_throughputs

DATA = Path(os.environ.get("GAVEL_DATA", "../shared/data")) / "gavel"
TRACE = "small_multiple_seed0.trace"
CLUSTER = "v100:8@eu,p100:2@eu,k80:2@eu,v100:2@us,p100:8@us,k80:2@us,v100:2@ap,p100:2@ap,k80:8@ap"
REGIONS = ("ap", "eu", "us")
ROUND_S = 360.0
CHECKPOINT_BYTES = 2_000_000_000
BANDWIDTHS_GBIT_S = (1.0, 10.0)
PRICES_USD_PER_GB = (0.0, 0.02, 0.09)
JOBS, QUICK_JOBS = 150, 40
GAIN = 0.10  # that ours has to bring over no moves where one of the others brings as much
NOISE = 0.01  # two schedules within this are as good as each other
WORKERS = 2  # processes


def stays(problem: RegionProblem, terms: MoveTerms) -> Homes:
    """Return the homes of new jobs, where their data are; no job moves that can run at home."""
    return choose_homes(problem, replace(terms, margin_fraction=1e9))


def at_will(problem: RegionProblem, terms: MoveTerms) -> Homes:
    """Return each job's home as if copies took no time and no money."""
    free = np.zeros_like(problem.copy_s)
    return choose_homes(replace(problem, copy_s=free, egress_usd=free), MoveTerms(margin_fraction=0.0, horizon_s=1e9))


RULES: Mapping[str, HomeChoice] = {"no moves": stays, "at will": at_will, "ours": choose_homes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One simulation. `placement`: the only region of each job by its place in the trace; (): the rule chooses."""

    rule: str
    jobs: int
    gbit_s: float
    usd_per_gb: float
    seed: int = 0
    placement: Placement = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a case: hours to completion, what moved, and in which region each job ended."""

    jobs: int
    mean_jct_h: float
    moves: int
    egress_gb: float
    ended_in: Placement


def _table() -> ThroughputTable:
    return read_throughputs(DATA / "simulation_throughputs.json")


def workload(count: int, seed: int) -> list[TraceJob]:
    """Return the first jobs of the trace, each with a data set somewhere."""
    draw = random.Random(f"data {seed}")
    jobs = islice(read_trace(Lines(DATA / TRACE), ""), count)
    return [replace(job, spec=_with_data(job, draw)) for job in jobs]


def _with_data(job: TraceJob, draw: random.Random) -> JobSpec:
    return replace(job.spec, data_region=draw.choice(REGIONS), data_bytes=int(10 ** draw.uniform(9, 12)))


def outcome(case: Case) -> Outcome:
    """Return what becomes of the jobs of a case."""
    jobs = workload(case.jobs, case.seed)
    if case.placement:
        jobs = [
            replace(job, spec=replace(job.spec, regions=(REGIONS[place],)))
            for job, place in zip(jobs, case.placement, strict=True)
        ]
    regions = RegionsSection(gbit_s=case.gbit_s, usd_per_gb=case.usd_per_gb, interval_s=ROUND_S)
    settings = Settings(round_duration_s=ROUND_S, space_sharing=False, regions=regions, prices_usd_per_hour={})
    scenario = Scenario(
        cluster=cluster_of(CLUSTER),
        throughput=ScaledRates(_table()),
        settings=settings,
        checkpoint_bytes=CHECKPOINT_BYTES,
    )
    world = DrivenWorld(jobs, scenario, InlineRunner(), RULES[case.rule])
    for _ in world.rounds():
        pass
    result = world.result()
    return Outcome(
        jobs=case.jobs,
        mean_jct_h=float(np.mean([row.jct_s for row in result.rows])) / 3600,
        moves=result.tally.moves,
        egress_gb=result.tally.egress_bytes / 1e9,
        ended_in=tuple(REGIONS.index(name) for name in (job.residence.region for job in world.jobs())),
    )


def rows(quick: bool) -> Iterator[Row]:
    """Yield the figures of each cell: bandwidth and price."""
    count = QUICK_JOBS if quick else JOBS
    prices = PRICES_USD_PER_GB[::2] if quick else PRICES_USD_PER_GB
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        for gbit_s in BANDWIDTHS_GBIT_S[: 1 if quick else None]:
            yield from _of_bandwidth(pool, count, gbit_s, prices, quick=quick)


def _of_bandwidth(
    pool: ProcessPoolExecutor, count: int, gbit_s: float, prices: Sequence[float], *, quick: bool
) -> Iterator[Row]:
    of = Case(rule="ours", jobs=count, gbit_s=gbit_s, usd_per_gb=0.0)
    others = [replace(of, rule="no moves"), replace(of, rule="at will")]
    ours = [replace(of, usd_per_gb=usd) for usd in prices]
    stayed, willing, *own = pool.map(outcome, (*others, *ours))
    model = Hindsight(workload(count, 0), CLUSTER, REGIONS, ScaledRates(_table()), gbit_s)
    searched = model.searched(300 if quick else 4000)
    placements = dict.fromkeys((searched, willing.ended_in, own[0].ended_in))
    fixed = list(pool.map(outcome, [replace(of, rule="no moves", placement=each) for each in placements]))
    hindsight = min(fixed, key=lambda each: each.mean_jct_h)
    for usd, result in zip(prices, own, strict=True):
        cell = f"{gbit_s:g} Gbit/s, {usd:g} USD/GB"
        rivals = {"no moves": stayed, "at will": willing, "best fixed in hindsight": hindsight}
        yield from _cell(cell, usd, result, rivals)


def _cell(cell: str, usd: float, ours: Outcome, rivals: Mapping[str, Outcome]) -> Iterator[Row]:
    for name, each in (*rivals.items(), ("ours", ours)):
        yield Row(f"{cell}, {name}: mean JCT", each.mean_jct_h, "h")
        yield Row(f"{cell}, {name}: moves", each.moves, "")
        yield Row(f"{cell}, {name}: egress", each.egress_gb * usd, "USD")
        yield Row(f"{cell}, {name}: copied", each.egress_gb, "GB", is_detail=True)
        if (saved_h := (rivals["no moves"].mean_jct_h - each.mean_jct_h) * each.jobs) > 0:
            yield Row(
                f"{cell}, {name}: egress for each hour that a job ends sooner", each.egress_gb * usd / saved_h, "USD"
            )
    for name, each in rivals.items():
        worse = ours.mean_jct_h / each.mean_jct_h - 1
        yield Row(f"{cell}: ours above {name}", 100 * worse, "%", 100 * NOISE)
    stayed, best = rivals["no moves"].mean_jct_h, min(each.mean_jct_h for each in rivals.values())
    gain = 100 * (1 - ours.mean_jct_h / stayed)
    is_to_be_had = best <= (1 - GAIN) * stayed
    yield Row(f"{cell}: ours below no moves", gain, "%", 100 * GAIN if is_to_be_had else None, at_least=True)


if __name__ == "__main__":
    run("Moves between regions", rows)
