"""Chooses the configuration of each job: by prices, made whole, with a bound on what any choice is worth."""

from dataclasses import replace

import numpy as np

from gavel.elastic.exact import best_whole
from gavel.elastic.prices import Demand, balanced
from gavel.elastic.problem import NOTHING, SizeChoice, SizeProblem
from gavel.elastic.repair import repaired

REPAIRED = 3  # demands at the best prices that are made whole, one after another while the best is not good enough
GOOD_GAP = 0.002  # of the bound


def choose(problem: SizeProblem) -> SizeChoice:
    """Return the best whole choice found, with its certificate; the program is `policies/programs/elastic.py`.

    Small problems for which prices leave a gap are solved by branch and bound as well.
    """
    if not problem.flat.size:
        return SizeChoice(configuration=np.full(len(problem.flat), NOTHING), value=0.0, bound=0.0)
    best = by_prices(problem, balanced(problem))
    exact = best_whole(problem) if best.gap > GOOD_GAP else None
    if exact is None:
        return best
    better = max((best, exact), key=lambda each: each.value)
    return replace(better, bound=max(better.value, min(best.bound, exact.bound)))


def by_prices(problem: SizeProblem, demands: list[Demand]) -> SizeChoice:
    """Return the best of the demands (`prices.balanced`) that are made whole; the bound is that of the first one."""
    choices: list[SizeChoice] = []
    for each in demands[:REPAIRED]:
        whole = repaired(problem, each)
        choices.append(SizeChoice(configuration=whole, value=problem.value(whole), bound=demands[0].bound))
        if choices[-1].gap <= GOOD_GAP:
            break
    return max(choices, key=lambda each: each.value)
