"""How fast the default policy decides for a whole company: 50 users, five objectives, three levels of tiers.

Two divisions, three departments below them and five teams below these, each team with an objective of its own; every
job is one of 50 users', a third has a deadline. Contended, spare, unique: as in benchmarks/policies.py. CPU seconds of
whole calls on one thread, after one that warms up.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.table import Row
from gavel.policies import registry
from gavel.types import AllocationProblem, Tier

OBJECTIVES = ("fairness", "fifo", "shortest_job_first", "deadline", "finish_time_fairness")
ABOVE = {"search": "products", "maps": "products", "lab": "research"}
USERS = 50
CAP = 0.15


def rows(quick: bool) -> Iterator[Row]:
    """Seconds of a call by load and size; with caps that bind."""
    from benchmarks.policies import CONTENDED, SPARE, a_problem, cpu_s  # which asks for these rows

    policy = registry.load("hierarchical")
    sizes = [(2_048, CONTENDED, "contended", 0.05), (2_048, SPARE, "spare", 0.2)]
    sizes += [] if quick else [(16_384, CONTENDED, "contended", 0.3)]
    for jobs, load, name, most in sizes:
        problem = in_teams(a_problem(jobs, load, unique=True))
        yield Row(f"hierarchical, {jobs} unique of 50 users, 5 objectives, 3 levels, {name}",
                  cpu_s(policy, problem, 3), "CPU s", most)  # fmt: skip
    problem = in_teams(a_problem(2_048, CONTENDED, unique=True), cap=CAP)
    yield Row("hierarchical, 2048 unique of 50 users, caps that bind", cpu_s(policy, problem, 3), "CPU s", 0.1)


def in_teams(problem: AllocationProblem, *, cap: float = 1.0) -> AllocationProblem:
    """The jobs of `problem` in five teams of three departments of two divisions; every other team has the `cap`."""
    jobs, draw = len(problem.job_ids), np.random.default_rng(1)
    teams = [
        Tier(name=f"team-{index}", objective=objective, parent=list(ABOVE)[index % 3], weight=1.0 + index % 3,
             cap=1.0 if index % 2 else cap)
        for index, objective in enumerate(OBJECTIVES)
    ]  # fmt: skip
    above = [Tier(name=name, parent=parent, weight=1.0 + len(name) % 2) for name, parent in ABOVE.items()]
    above += [Tier(name=name) for name in dict.fromkeys(ABOVE.values())]
    alone_s = problem.steps_remaining / problem.throughput_steps_per_s[:, 0].max(axis=1)
    due_s = np.where(draw.random(jobs) < 1 / 3, alone_s * draw.uniform(0.5, 9.0, jobs), np.inf)
    return replace(
        problem,
        tiers=(*teams, *above),
        tier_of_job=draw.integers(0, len(teams), jobs),
        users=tuple(f"user-{user}" for user in draw.integers(0, USERS, jobs).tolist()),
        deadline_at_s=due_s,
    )
