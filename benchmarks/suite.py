"""What it is worth to know which policy suits a workload: the suite of sets of tasks, under each of several policies.

    make bench-suite [QUICK=1] [JSON=file]

A job is a set of tasks: it ends with its last task. Its slowdown is its time over its bound on an empty cluster, at
least 10 s of it. Rounds last 1 s for fine tasks, 2 s for mixed and 10 s for coarse ones; workers that become free
within a round go to waiting tasks at once. For each metric and portfolio of policies: the best single policy over all
workloads, by geometric mean, and what the best one of each workload brings over it.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.table import Row, run
from gavel.config import Settings
from gavel.simulator.lean import simulate
from gavel.simulator.outcome import Scenario
from workloads.traces.suite import KIND, STEPS_PER_S, TYPE, WORKLOADS, cluster, suite, task_sets

JOBS, QUICK_JOBS, SEEDS = 12, 8, 1
SLOWDOWN_LEAST_S = 10.0
ROUND_S = {"coarse": 10.0, "fine": 1.0, "mixed": 2.0}
FOUR = {
    "FIFO": "fifo",
    "DRF": "dominant_resource_fairness?among=users",
    "fair cores": "fair_by_cores?among=users",
    "fair memory": "fair_by_memory?among=users",
}
MORE = {
    "SRSF of sets": "least_remaining_work?work_of=user",
    "SRSF of tasks": "least_remaining_work",
    "LAS": "least_attained_service?queues=continuous",
}
PORTFOLIOS = {"the four": tuple(FOUR), "all": (*FOUR, *MORE)}
METRICS = ("mean JCT", "mean slowdown", "p95 slowdown")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a workload of the suite with a seed, under a policy (a name of FOUR or MORE)."""

    workload: str
    seed: int
    jobs: int
    policy: str

    def measured(self) -> tuple[float, ...]:
        """Return the METRICS over the jobs: s, and ratios."""
        sets = task_sets(self.workload, jobs=self.jobs, seed=self.seed)
        ended_s = dict[str, float]()
        outcome = simulate(suite(self.workload, jobs=self.jobs, seed=self.seed), self.scenario())
        for row in outcome.rows:
            ended_s[row.user] = max(ended_s.get(row.user, 0.0), row.finished_at_s or np.inf)
        jct_s = np.array([ended_s[f"set-{index}"] - at_s for index, (at_s, _) in enumerate(sets)])
        bound_s = np.array([max(SLOWDOWN_LEAST_S, each.alone_s()) for _, each in sets])
        slowdown = np.maximum(1.0, jct_s / bound_s)
        return float(jct_s.mean()), float(slowdown.mean()), float(np.percentile(slowdown, 95))

    def scenario(self) -> Scenario:
        """Return the suite's cluster under the policy."""
        settings = Settings(
            policy=(FOUR | MORE)[self.policy],
            round_duration_s=ROUND_S[self.workload.partition("-")[0]],
            planning_lead_fraction=0.0,
        )
        return Scenario(cluster=cluster(), throughput={(KIND, 1, TYPE): STEPS_PER_S}, settings=settings)


Results = Mapping[Cell, Sequence[float]]


def rows(quick: bool) -> Iterator[Row]:
    """Yield each run's figures, then what the best policy of each workload brings."""
    workloads, jobs = (("coarse-both", "fine-batch", "mixed-memory"), QUICK_JOBS) if quick else (WORKLOADS, JOBS)
    instances = list(product(workloads, range(SEEDS)))
    cells = [Cell(name, seed, jobs, policy) for (name, seed), policy in product(instances, FOUR | MORE)]
    results = dict[Cell, Sequence[float]]()
    with ProcessPoolExecutor() as processes:
        for cell, figures in zip(cells, processes.map(Cell.measured, cells), strict=True):
            results[cell] = figures
            for metric, value in zip(METRICS, figures, strict=True):
                unit = "s" if metric == "mean JCT" else "ratio"
                yield Row(f"{cell.workload} {cell.seed}, {cell.policy}: {metric}", value, unit)
    for (portfolio, names), metric in product(PORTFOLIOS.items(), METRICS):
        yield from gains(results, portfolio, names, metric)


def gains(results: Results, portfolio: str, names: Sequence[str], metric: str) -> Iterator[Row]:
    """Yield what the best of `names` for each workload brings over the best single one, and what a wrong one costs."""
    values = {cell: figures[METRICS.index(metric)] for cell, figures in results.items() if cell.policy in names}
    instances = list(dict.fromkeys((cell.workload, cell.seed, cell.jobs) for cell in values))
    costs = np.log([[values[Cell(*each, name)] for name in names] for each in instances])  # (instances, policies)
    single = int(costs.mean(axis=0).argmin())
    gained = 1.0 - np.exp(costs.min(axis=1) - costs[:, single])
    mean = 1.0 - np.exp((costs.min(axis=1) - costs[:, single]).mean())
    about = f"{portfolio}, {metric}: best of each of {len(instances)} over {names[single]}"
    yield Row(about, 100.0 * float(mean), "% less")
    yield Row(f"{about}, at most", 100.0 * float(gained.max()), "% less")
    worst_over_best = np.exp((costs.max(axis=1) - costs.min(axis=1)).mean())
    yield Row(f"{portfolio}, {metric}: the worst of each over the best", float(worst_over_best), "ratio")


if __name__ == "__main__":
    run("Sets of tasks under several policies", rows)
