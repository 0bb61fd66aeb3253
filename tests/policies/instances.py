"""Random problems for comparing policies with oracles: uneven capacities, zero rates, gangs, weights, tiers."""

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import settings

from gavel.types import Allocation, AllocationProblem, Tier
from tests.builders import a_problem

FULL = os.environ.get("GAVEL_TEST_PROFILE") == "full"
few_examples = settings(max_examples=300 if FULL else 12)


def seeds(few: int, full: int) -> list[int]:
    """Seeds of the instances to try: `few` by default, `full` in the full profile."""
    return list(range(full if FULL else few))


def an_instance(seed: int, *, jobs: int = 6, types: int = 3) -> AllocationProblem:
    """A contended cluster of uneven capacities; some jobs cannot run on some types."""
    draw = np.random.default_rng(seed)
    rates = draw.uniform(0.2, 5.0, (jobs, types)) * draw.uniform(0.5, 40.0, (jobs, 1))
    rates[draw.random((jobs, types)) < 0.25] = 0.0
    tiers = (
        Tier(name="gold", weight=2.0, within_user="equal", guarantee=float(draw.choice([0.0, 0.3]))),
        Tier(name="bronze", objective="fifo", guarantee=float(draw.choice([0.0, 0.5]))),
    )
    return a_problem(
        rates,
        draw.integers(1, 5, types),
        scale_factor=draw.choice([1, 1, 1, 2], jobs),
        weight=draw.choice([1.0, 2.0, 5.0], jobs),
        steps_remaining=draw.uniform(1e2, 1e5, jobs),
        age_s=np.sort(draw.uniform(0.0, 2000.0, jobs))[::-1],
        isolated_time_s=draw.uniform(0.0, 500.0, jobs),
        tiers=tiers,
        tier_of_job=draw.integers(0, 2, jobs),
    )


def a_tree(seed: int, objectives: Sequence[str], *, depth: int, caps: bool, jobs: int) -> AllocationProblem:
    """`an_instance` whose jobs are in tiers anywhere in a random tree, each of one to three tiers below another.

    Guarantees of tiers below one are at most its own together, in part exactly; a third has a cap if `caps`.
    """
    draw = np.random.default_rng(seed)
    problem = an_instance(seed, jobs=jobs, types=2 + seed % 3)
    tiers: list[Tier] = []

    def grow(parent: str | None, levels: int, guaranteed: float) -> None:
        count = int(draw.integers(1, 4))
        for index in range(count if levels else 0):
            guarantee = float(draw.choice([0.0, 0.5, 1.0])) * guaranteed / count
            cap = max(guarantee, float(draw.uniform(0.1, 0.8))) if caps and draw.random() < 1 / 3 else 1.0
            tier = Tier(
                name=f"{parent or 'tier'}-{index}",
                parent=parent,
                weight=float(draw.choice([1.0, 2.0, 3.0])),
                objective=str(draw.choice(list(objectives))),
                within_user="equal",
                guarantee=guarantee,
                cap=cap,
            )
            tiers.append(tier)
            grow(tier.name, levels - 1, guarantee)

    grow(None, depth, 1.0)
    due = np.where(draw.random(jobs) < 0.5, draw.uniform(10.0, 1e4, jobs), np.inf)
    return replace(problem, tiers=tuple(tiers), tier_of_job=draw.integers(0, len(tiers), jobs), deadline_at_s=due)


def workers_held(problem: AllocationProblem, allocation: Allocation) -> np.ndarray:
    """Workers of each type in use, (types,)."""
    return problem.scale_factor @ allocation.time_fraction


def idle_pairs(problem: AllocationProblem, allocation: Allocation) -> np.ndarray:
    """Where a job has time to spare, a type workers to spare, and the one can run on the other (jobs, types)."""
    spare_time = allocation.time_fraction.sum(axis=1) < 1 - 1e-4
    spare_workers = workers_held(problem, allocation) < problem.capacity_workers - 1e-4
    can_run = (problem.throughput_steps_per_s[:, 0] > 0) & (
        problem.scale_factor[:, None] <= problem.capacity_workers[None, :]
    )
    return can_run & spare_time[:, None] & spare_workers[None, :]
