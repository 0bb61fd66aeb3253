"""Draws how jobs follow one another, and what operators and the autopilot put in force, for a part of the seeds.

What else a seed draws does not depend on it.
"""

import random
from collections.abc import Collection
from dataclasses import replace

from gavel.faults.scenario import COMPOSITIONS, NO_CAP, ClientRequest, NodePlan, Program, Request

OF_ROUNDS = (Request.POLICY, Request.POLICY, Request.PIN, Request.DECISION)
OF_GOLD = (Request.BUDGET, Request.LIMITS)
OF_OPERATORS = (*OF_ROUNDS, *OF_GOLD)
PART_OF_SEEDS = 0.25
STEADY = 5e-3  # of clocks: how much they may drift where rounds are the longest, the last composition's
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
    kinds = (*OF_ROUNDS, *(OF_GOLD if tiers else ()))
    is_steady = all(abs(node.clock_rate - 1.0) < STEADY for node in nodes)
    compositions = len(COMPOSITIONS) if is_steady else len(COMPOSITIONS) - 1
    return [_request(chance, chance.choice(kinds), compositions, until_s) for _ in range(chance.randint(1, 4))]


def _request(chance: random.Random, kind: Request, compositions: int, until_s: float) -> ClientRequest:
    amount = {Request.BUDGET: chance.choice(BUDGETS_H), Request.LIMITS: chance.choice(CAPS)}.get(kind, 0.0)
    target = chance.randrange(compositions) if kind in OF_ROUNDS else 0
    return ClientRequest(at_s=chance.uniform(0.0, until_s), kind=kind, target=target, amount=amount)
