"""Problems as most clusters have them: 10 to 60 jobs on 2 to 4 types, solved by every policy of the registry.

No two jobs are alike. Contended and spare as in `policies`; a fourth type is up to twice as fast as a v100. Each row is
the slowest of all these problems, warmed up, without prices of a round before.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.policies import CONTENDED, SPARE, a_problem
from benchmarks.table import Row
from benchmarks.timing import cpu_s, is_proven
from gavel.policies import registry
from gavel.ports import Policy
from gavel.types import AllocationProblem

SHAPES = ((10, 2), (10, 4), (30, 3), (60, 2), (60, 4))
MOST_CPU_S = 0.003
PLAIN = ("max_min_fairness?water_filling=false", "finish_time_fairness?backfill=false", "makespan?backfill=false")


def rows(quick: bool) -> Iterator[Row]:
    problems = [a_small_problem(*shape, load) for shape in SHAPES for load in (CONTENDED, SPARE)]
    for spec in (*(info.name for info in registry.available()), *PLAIN):
        yield slowest(spec, registry.load(spec), problems, 3 if quick else 5)


def slowest(spec: str, policy: Policy, problems: list[AllocationProblem], repetitions: int) -> Row:
    """The most CPU seconds that one of the problems takes; a miss if any answer is not proven."""
    seconds = [cpu_s(policy, problem, repetitions) for problem in problems]
    proven = all(is_proven(policy.allocate(problem)) for problem in problems)
    name = f"{spec}, 10 to 60 jobs: the slowest of {len(problems)} (median {np.median(seconds) * 1e3:.2g} ms)"
    return Row(name, max(seconds), "CPU s", MOST_CPU_S, proven=proven)


def a_small_problem(jobs: int, types: int, load: float) -> AllocationProblem:
    """`jobs` unique jobs on load * jobs accelerators of `types` types, the fastest of four."""
    problem = a_problem(jobs, load, unique=True, seed=jobs + types)
    rates_before, names = problem.throughput_steps_per_s, problem.accelerator_types
    faster = rates_before[:, :, -1:] * np.random.default_rng(types).uniform(1, 2, (jobs, 1, 1))
    columns = slice(max(0, 3 - types), None)
    rates = np.concatenate([rates_before, faster], axis=2) if types > 3 else rates_before[:, :, columns]
    prices = np.append(problem.price_usd_per_hour, 1.5) if types > 3 else problem.price_usd_per_hour[columns]
    return replace(
        problem,
        throughput_steps_per_s=rates,
        accelerator_types=(*names, "a100") if types > 3 else names[columns],
        capacity_workers=np.full(types, max(8, round(load * jobs / types))),
        price_usd_per_hour=prices,
    )
