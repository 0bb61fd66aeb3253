"""Elastic jobs under the service's own rules: its rounds, default policy and estimates, on a published workload.

The jobs are those of the published distribution with gangs. Elastic ones may have each size at which the published
table has their global batch; the same jobs, rigid, have the size that was drawn. Known speeds are the table's; learned
ones are measured by the service while it runs. A start costs 10 s. Part of `make bench-elastic`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row
from gavel.config import Settings
from gavel.policies.inline import InlineRunner
from gavel.simulator.driven import DrivenWorld
from gavel.simulator.figures import Figures, figures
from gavel.simulator.outcome import Scenario
from gavel.simulator.setup import Workload, cluster_of, rates, survey
from workloads.traces.throughputs import read_throughputs

CLUSTER = "v100:12,p100:12,k80:12"
RESTART_S = 10.0
ROUND_S = 360.0
LOADS = {"light": 1.3, "heavy": 2.2}
"""Jobs an hour."""


def rows(quick: bool) -> Iterator[Row]:
    """Yield the mean times to completion, and what elastic jobs save of them; the quick form has fewer jobs."""
    for load, per_hour in LOADS.items():
        for is_known in (True,) if quick else (True, False):
            where = f"{load} load, speeds {'known' if is_known else 'learned'}"
            rigid, elastic = (
                _figures(12 if quick else 150, per_hour, is_elastic=each, is_known=is_known) for each in (False, True)
            )
            yield from _shown(f"in the service's rounds, {where}, rigid", rigid)
            yield from _shown(f"in the service's rounds, {where}, elastic", elastic)
            saved = 100 * (1 - elastic.mean_jct_h / rigid.mean_jct_h)
            yield Row(f"in the service's rounds, {where}: elastic jobs save", saved, "%")


def _figures(jobs: int, per_hour: float, *, is_elastic: bool, is_known: bool) -> Figures:
    table = read_throughputs(Path(os.environ["GAVEL_DATA"]) / "gavel" / "simulation_throughputs.json")
    text = f"published?jobs={jobs}&per_hour={per_hour}&gangs=true"
    workload = Workload(text=f"{text}&elastic=true" if is_elastic else text, table=table)
    seen = survey(workload, None)
    scenario = Scenario(
        cluster=cluster_of(CLUSTER),
        throughput=rates(seen, table),
        settings=Settings(round_duration_s=ROUND_S),
        switch_cost_s={"": RESTART_S},
        is_estimated=not is_known,
    )
    world = DrivenWorld(workload.jobs(), scenario, InlineRunner())
    for _ in world.rounds():
        pass
    return figures(world.result().rows)


def _shown(name: str, of: Figures) -> Iterator[Row]:
    yield Row(f"{name}: mean time to completion", of.mean_jct_h, "h")
    yield Row(f"{name}: p99", of.p99_jct_h, "h")
    yield Row(f"{name}: jobs with rho over 1.05", 100 * of.share_rho_above_limit, "%")
