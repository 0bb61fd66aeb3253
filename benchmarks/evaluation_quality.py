"""How good the schedules are: every policy under the same rules on each trace, the service's default first.

What the policy brings, what packing brings (space sharing) and what the rounds bring (planner, backfill) are rows of
their own, so that none of them is credited with another's gain; the published mechanism stands beside them. Policies
are taken from the registry, so that a new one has its row unasked. `make bench-evaluation_quality` runs this alone,
with STREAM=name one stream, with RUN=name one row of each. Each stream's table is also written into docs/evaluation.md
as soon as it is done (evaluation_page.py); a single row takes its place there.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import evaluation_page
from benchmarks.table import Row, run
from gavel.config import Settings
from gavel.policies import registry
from gavel.policies.inline import InlineRunner
from gavel.simulator.columns import Column
from gavel.simulator.figures import RHO_LIMIT, figures, slowdown_by_size
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario
from gavel.simulator.report import JobResult
from gavel.simulator.setup import Workload, cluster_of
from gavel.types import SECONDS_PER_HOUR
from workloads.traces.job import TraceJob
from workloads.traces.throughputs import ScaledRates, read_throughputs

SMALL, LARGE = "v100:12,p100:12,k80:12", "v100:36,p100:36,k80:36"
ROUND_S = 360.0  # as published; every other rule of the service has its default
PARITY: Mapping[str, object] = {
    "planner": "published",
    "solve_on": "event",
    "allocation_interval_s": 1920.0,
    "backfill": False,
}
RELATIVE_SPEED = "max_total_relative_speed?ageing=attained_service"
RANKED, RANKED_BY_SERVICE = "rank_weighted_speed", "rank_weighted_speed?length=attained_service"
LENGTHS_OFF = "hierarchical, lengths off"
WORKERS = 2  # processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A trace, its cluster, and which jobs count: in the full form, and in the quick one (None: left out of it). Gangs
    larger than any type are left out. `file` may also be a generator with parameters, which has a name of its own here.

    `every`: only every so many-th job, where the whole would drown the cluster. `has_users`: its jobs are of several.
    `only`: the runs that are worth their minutes there (empty: all). `at_most_h`: what the mean JCT of a run, by its
    name, may be.
    """

    file: str
    cluster: str
    measure: tuple[int, int]
    quick: tuple[int, int] | None = None
    every: int = 1
    has_users: bool = False
    only: tuple[str, ...] = ()
    at_most_h: Mapping[str, float] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """The label, else the file's name without its ending."""
        return self.label or Path(self.file).stem

    def text(self, data: Path) -> str:
        """Return what reads it as a workload: a path in the folder of traces, or the generator."""
        return self.file if "?" in self.file else str(data / self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One schedule of a stream: `brings` says what differs from the default's row, `rules` which settings do.

    `is_one_user`: as if one user had submitted all jobs, so that nobody is kept apart. `length_error`: jobs state
    lengths that are off by exp(N(0, this)).
    """

    brings: str
    name: str
    policy: str
    rules: Mapping[str, object] = field(default_factory=dict)
    is_packed: bool = False
    is_published: bool = False
    is_one_user: bool = False
    length_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The results of one run, in hours but for three: `slowdown` is the completion time divided by the time alone on
    the fastest type, as mean by size of gang, `median_slowdown` the same as median; `shortest` is the mean of the
    shortest quarter of the gangs, or of all jobs. `alone_h` is the mean of those times alone, the same in every run.
    """

    mean_h: float
    median_h: float
    p99_h: float
    worst_h: float
    share_rho: float
    slowdown: Mapping[int, float]
    median_slowdown: Mapping[int, float]
    shortest: float
    alone_h: float
    cpu_s: float


HEADLINES: tuple[str, ...] = (
    "hierarchical",
    "hierarchical, one user",
    "max_min_fairness",
    "finish_time_fairness",
    "fifo",
    "shortest_job_first",
    "equal_share",
    RANKED,
    RANKED_BY_SERVICE,
    RELATIVE_SPEED,
    "max_total_relative_speed",
    "hierarchical, packed",
    LENGTHS_OFF,
    f"{RANKED}, packed",
    f"{RELATIVE_SPEED}, packed",
    "hierarchical, no backfill",
    "hierarchical, published planner",
    "published LAS",
)
FEW = (
    "hierarchical",
    "hierarchical, packed",
    LENGTHS_OFF,
    "shortest_job_first",
    RANKED,
    RANKED_BY_SERVICE,
    RELATIVE_SPEED,
)
STREAMS = (
    Stream(
        file="gavel/continuous_multiple_2.6_per_hour_seed0.trace",
        cluster=LARGE,
        measure=(4000, 5000),
        only=FEW,
        at_most_h={"hierarchical": 20.5, RANKED: 20.5, RANKED_BY_SERVICE: 22.5},
    ),
    Stream(
        file="gavel/continuous_single_5.2_per_hour_seed0.trace",
        cluster=LARGE,
        measure=(4000, 5000),
        only=(*FEW, f"{RELATIVE_SPEED}, packed"),
        at_most_h={
            "hierarchical": 17.2,
            RANKED: 17.2,
            RANKED_BY_SERVICE: 17.6,
            "hierarchical, packed": 16.3,
            f"{RELATIVE_SPEED}, packed": 16.3,
        },
    ),
    Stream(
        file="published?jobs=5200&per_hour=5.6",
        label="published_single_5.6_per_hour_seed0",
        cluster=LARGE,
        measure=(4000, 5000),
        only=("hierarchical", "hierarchical, packed"),
        at_most_h={"hierarchical, packed": 17.2},
    ),
    Stream(
        file="itp2021_cluster02.csv",
        cluster="v100:64:8,p100:64:8",
        measure=(500, 1500),
        quick=(50, 200),
        only=FEW,
        at_most_h={"hierarchical": 4.8, RANKED: 4.8, RANKED_BY_SERVICE: 4.95},
    ),
    Stream(
        file="philly_busiest_2weeks.csv",
        has_users=True,
        cluster="v100:24:8,p100:24:8,k80:16:8",
        measure=(500, 2000),
        quick=(50, 200),
        every=8,
        only=HEADLINES,
        at_most_h={"hierarchical": 2.55, "hierarchical, one user": 2.55, RANKED: 2.55, RANKED_BY_SERVICE: 2.9},
    ),
    Stream(file="gavel/small_multiple_seed0.trace", cluster=SMALL, measure=(300, 600), quick=(40, 100)),
    Stream(file="gavel/small_single_seed0.trace", cluster=SMALL, measure=(300, 600), quick=(40, 100)),
)


def runs(has_users: bool) -> Iterator[Run]:
    """The default first, then what differs from it in one thing: users, the policy, packing, the rounds; last as
    published.
    """
    default = Settings.model_fields["policy"].default
    yield Run(brings="default", name=default, policy=default)
    if has_users:
        yield Run(brings="users", name=f"{default}, one user", policy=default, is_one_user=True)
    yield Run(brings="lengths", name=LENGTHS_OFF, policy=default, length_error=1.0)
    names = [each.name for each in registry.available() if each.name != default]
    for policy in (*names, RANKED_BY_SERVICE, RELATIVE_SPEED):
        yield Run(brings="policy", name=policy, policy=policy)
    for policy in (default, "max_min_fairness", "gandiva", RANKED, RELATIVE_SPEED):
        yield Run(brings="packing", name=f"{policy}, packed", policy=policy, is_packed=True)
    no_backfill = {"backfill": False}
    yield Run(brings="rounds", name=f"{default}, no backfill", policy=default, rules=no_backfill)
    published = no_backfill | {"planner": "published"}
    yield Run(brings="rounds", name=f"{default}, published planner", policy=default, rules=published)
    yield Run(
        brings="published",
        name="published LAS",
        policy="max_min_fairness?water_filling=false",
        rules=PARITY,
        is_published=True,
    )


def rows(data: Path, quick: bool, only_stream: str = "", only_run: str = "") -> Iterator[Row]:
    """Print a table for each stream as it is done, and return its figures; fewer jobs, runs and streams if `quick`.

    Of `only_stream` and `only_run`, if they are named.
    """
    print(f"Quality: rounds of {ROUND_S:g} s, otherwise the service's defaults")
    chosen = [each for each in STREAMS if only_stream in ("", each.name)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        asked = [_asked(pool, data, each, is_quick=quick, only_run=only_run) for each in chosen]
        for stream, (wanted, qualities) in zip(chosen, asked, strict=True):
            if not wanted:
                continue
            quality_of = {each.name: of for each, of in zip(wanted, qualities, strict=True)}
            measure = stream.quick if quick else stream.measure
            title = title_of(stream, measure or (0, 0), alone_h=next(iter(quality_of.values())).alone_h)
            lines = lines_of(wanted, quality_of)
            show(title, lines)
            section = f"{stream.name} (quick)" if quick else stream.name
            if only_run:
                evaluation_page.merge(section, lines, [each.name for each in _listed(stream, is_quick=quick)])
            else:
                evaluation_page.write(section, title, lines)
            yield from figures_of(stream, quality_of, {} if quick else stream.at_most_h)


def _listed(stream: Stream, *, is_quick: bool) -> list[Run]:
    only = HEADLINES if is_quick else stream.only
    return [each for each in runs(stream.has_users) if not only or each.name in only]


def _asked(
    pool: ProcessPoolExecutor, data: Path, stream: Stream, *, is_quick: bool, only_run: str
) -> tuple[list[Run], Iterator[Quality]]:
    """The runs of a stream that are wanted, and what comes of them: those of all streams wait in one queue."""
    measure = stream.quick if is_quick else stream.measure
    if measure is None:
        print(f"left out of the quick form: {stream.name}", file=sys.stderr)
        return [], iter(())
    wanted = [each for each in _listed(stream, is_quick=is_quick) if only_run in ("", each.name)]
    return wanted, pool.map(partial(quality, data, stream, measure), wanted)


def quality(data: Path, stream: Stream, measure: tuple[int, int], each: Run) -> Quality:
    """Run it in the lean simulation, with the published table of throughputs."""
    table = read_throughputs(data / "gavel" / "simulation_throughputs.json")
    cluster = cluster_of(stream.cluster)
    workload = Workload(
        text=stream.text(data),
        table=table,
        is_lenient=True,
        capacity_workers=cluster.capacity_workers(),
        length_error=each.length_error,
    )
    settings = Settings(policy=each.policy, round_duration_s=ROUND_S, space_sharing=each.is_packed, **each.rules)  # type: ignore[arg-type]
    scenario = Scenario(
        cluster=cluster,
        throughput=ScaledRates(table),
        settings=settings,
        measure=measure,
        colocated=table.colocated if each.is_packed else None,
    )
    jobs: Iterator[TraceJob] = islice(workload.jobs(), 0, None, stream.every)
    if each.is_one_user:
        jobs = (replace(job, spec=replace(job.spec, user="one")) for job in jobs)
    world = LeanWorld(jobs, scenario, InlineRunner())
    for _ in world.rounds():
        pass
    result = world.result()
    return measured(result.rows, result.tally.cpu_s)


def measured(jobs: Sequence[JobResult], cpu_s: float) -> Quality:
    of_jobs = figures(jobs)
    return Quality(
        mean_h=of_jobs.mean_jct_h,
        median_h=of_jobs.median_jct_h,
        p99_h=of_jobs.p99_jct_h,
        worst_h=of_jobs.max_jct_h,
        share_rho=of_jobs.share_rho_above_limit,
        slowdown=slowdown_by_size(jobs),
        median_slowdown=slowdown_by_size(jobs, 0.5),
        shortest=_of_the_shortest(jobs),
        alone_h=float(np.mean([row.fastest_s for row in jobs if row.fastest_s])) / SECONDS_PER_HOUR,
        cpu_s=cpu_s,
    )


def title_of(stream: Stream, measure: tuple[int, int], *, alone_h: float) -> str:
    """Return what stands above a stream's table. `alone_h`: mean time of its jobs, each alone on its fastest type."""
    jobs = f"jobs {measure[0]} to {measure[1]}"
    return f"{stream.name} on {stream.cluster}, {jobs}; alone {Column('h').text(alone_h)} h in the mean"


def _of_the_shortest(jobs: Iterable[JobResult]) -> float:
    """Mean slowdown of the shortest quarter of the gangs, of all jobs where there are none."""
    every = list(jobs)
    gangs = [row for row in every if row.scale_factor > 1] or every
    times = sorted((row.fastest_s or np.inf, row.jct_s or np.nan) for row in gangs)
    shortest = np.array(times[: max(1, len(times) // 4)])
    return float(np.mean(shortest[:, 1] / shortest[:, 0]))


def show(title: str, lines: Sequence[Sequence[str]]) -> None:
    """Print a stream's table; the first line is its heads."""
    table = Table(title=title, title_justify="left")
    for head in lines[0]:
        table.add_column(head, justify="left" if head in ("", "run") else "right", overflow="fold")
    for line in lines[1:]:
        table.add_row(*line)
    Console(width=190).print(table)


def lines_of(wanted: Sequence[Run], quality_of: Mapping[str, Quality]) -> list[list[str]]:
    """Return a stream's table as text, the heads first; slowdowns by size of gang, median and mean."""
    sizes = sorted(set().union(*(each.slowdown for each in quality_of.values())))
    heads = ["mean h", "p50 h", "p99 h", "longest h", f"rho > {RHO_LIMIT:g} %"]
    lines = [["", "run", *heads, *(f"slowdown {size}" for size in sizes), "shortest"]]
    for each in wanted:
        of = quality_of[each.name]
        times = (Column("h").text(value) for value in (of.mean_h, of.median_h, of.p99_h, of.worst_h))
        slow = (_slowdown(of, size) for size in sizes)
        lines.append([each.brings, each.name, *times, f"{100 * of.share_rho:.1f}", *slow, f"{of.shortest:.2f}"])
    return lines


def _slowdown(of: Quality, size: int) -> str:
    return f"{of.median_slowdown[size]:.2f} ({of.slowdown[size]:.2f})" if size in of.slowdown else ""


def figures_of(stream: Stream, quality_of: Mapping[str, Quality], at_most_h: Mapping[str, float]) -> Iterator[Row]:
    """The same as rows; the mean completion time has a target where one is known, all others are details."""
    for name, of in quality_of.items():
        start = f"{stream.name}, {name}"
        yield Row(f"{start}: mean JCT", of.mean_h, "h", at_most_h.get(name))
        yield Row(f"{start}: p50 JCT", of.median_h, "h", is_detail=True)
        yield Row(f"{start}: p99 JCT", of.p99_h, "h", is_detail=True)
        yield Row(f"{start}: worst JCT", of.worst_h, "h", is_detail=True)
        yield Row(f"{start}: jobs with rho over {RHO_LIMIT:g}", 100 * of.share_rho, "%", is_detail=True)
        for size, mean in of.slowdown.items():
            yield Row(f"{start}: slowdown of gangs of {size}", mean, "x", is_detail=True)
            yield Row(f"{start}: median slowdown of gangs of {size}", of.median_slowdown[size], "x", is_detail=True)
        yield Row(f"{start}: slowdown of the shortest quarter of gangs", of.shortest, "x", is_detail=True)
        yield Row(f"{start}: CPU", of.cpu_s, "s", is_detail=True)


def main(only_stream: str, only_run: str, quick: bool) -> Iterator[Row]:
    """This part of the evaluation alone."""
    from benchmarks.evaluation import traces

    if data := traces():
        yield from rows(data, quick, only_stream, only_run)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--stream", default="", choices=[each.name for each in STREAMS])
    parser.add_argument("--run", default="")
    chosen, others = parser.parse_known_args()
    run("Quality of schedules", partial(main, chosen.stream, chosen.run), others)
