"""Draws how jobs follow one another, what operators set and the autopilot puts in force, for a part of the seeds.

What else a seed draws does not depend on it.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

from gavel.faults.scenario import COMPOSITIONS, NO_CAP, OF_ROUNDS, ClientRequest, NodePlan, Program, Request

OF_GOLD = (Request.BUDGET, Request.LIMITS)
OF_OPERATORS = (*OF_ROUNDS, *OF_GOLD)
PART_OF_SEEDS = 0.25
STEADY = 5e-3  # of clocks: how much they may drift where rounds are the longest, the last composition's
SETTINGS: Mapping[str, tuple[bool | float | str, ...]] = {
    "allocation_interval_s": (30.0, 100.0),
    "backfill": (False,),
    "leader_lease_s": (3.0, 30.0),
    "lease_grace_s": (0.5, 6.0),
    "lost_backoff_s": (0.0, 20.0),
    "minimum_lease_fraction": (0.0, 0.9),
    "minimum_run_s": (15.0, 60.0),
    "pair_trials": (0,),
    "planner": ("published",),
    "planning_lead_fraction": (0.05, 0.5, 0.9),
    "price_moves": (False,),
    "solve_on": ("event",),
    "space_sharing": (False,),
    "start_limit_s": (0.0, 5.0),
    "tick_s": (0.5, 1.0),
}
BUDGETS_H, CAPS = (0.002, 0.01, 0.03), (0.25, 0.5, NO_CAP)


def one_after_another(seed: int, programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """Return the programs; in a part of the seeds some wait until an earlier one has completed."""
    chance = random.Random(f"jobs after others {seed}")  # noqa: S311 - not for secrets
    if chance.random() > PART_OF_SEEDS or any(each.reserved_after_s for each in programs):
        return programs
    return (
        programs[0],
        *(
            replace(program, after=chance.randrange(number)) if chance.random() < 0.4 else program
            for number, program in enumerate(programs[1:], start=1)
        ),
    )


def asked_by_operators(
    seed: int, nodes: Collection[NodePlan], tiers: Collection[str], until_s: float
) -> list[ClientRequest]:
    """Return which compositions are put in force, and what the tier may use; nothing of it for most seeds."""
    chance = random.Random(f"operators {seed}")  # noqa: S311 - not for secrets
    if chance.random() > PART_OF_SEEDS:
        return []
    kinds = (Request.POLICY, *OF_ROUNDS, *(OF_GOLD if tiers else ()))
    is_steady = all(abs(node.clock_rate - 1.0) < STEADY for node in nodes)
    compositions = len(COMPOSITIONS) if is_steady else len(COMPOSITIONS) - 1
    return [_request(chance, chance.choice(kinds), compositions, until_s) for _ in range(chance.randint(1, 4))]


def settings_of(seed: int) -> Mapping[str, bool | float | str]:
    """Return some settings of the service that are others than usual; none for most seeds."""
    chance = random.Random(f"settings {seed}")  # noqa: S311 - not for secrets
    if chance.random() > PART_OF_SEEDS:
        return {}
    names = chance.sample(sorted(SETTINGS), k=chance.randint(1, 4))
    return {name: chance.choice(SETTINGS[name]) for name in names}


def _request(chance: random.Random, kind: Request, compositions: int, until_s: float) -> ClientRequest:
    amount = {Request.BUDGET: chance.choice(BUDGETS_H), Request.LIMITS: chance.choice(CAPS)}.get(kind, 0.0)
    target = chance.randrange(compositions) if kind in OF_ROUNDS else 0
    return ClientRequest(at_s=chance.uniform(0.0, until_s), kind=kind, target=target, amount=amount)
