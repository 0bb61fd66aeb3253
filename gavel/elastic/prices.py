"""Prices of the accelerator types at which jobs want about as many workers as there are.

Only the workers of a type couple the jobs, so there is one price a type, lambda. The dual

    D(lambda) = sum_g N_g lambda_g + sum_j max(0, max_c (U_jc - lambda_g(c) n_c))

bounds every choice from above, fractional ones included.
"""

from dataclasses import dataclass

import numpy as np

from gavel.elastic.problem import NOTHING, SizeProblem
from gavel.types import FloatArray, IntArray

STEPS = 36
FIRST_STEP, STEP_FALL = 0.7, 0.9  # of the logarithm of a price at twice the workers wanted; each is so much smaller


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What jobs want at these prices (m,), the workers of each type (m,) that this takes, and the bound it proves."""

    prices: FloatArray
    configuration: IntArray  # (n,)
    workers: IntArray
    bound: float


def demand(problem: SizeProblem, prices: FloatArray) -> Demand:
    """Return what each job takes at the prices: the configuration of the largest gain, NOTHING if none gains."""
    flat, cost = problem.flat, prices[problem.type_of] * problem.workers
    gain = flat - cost
    best = gain.argmax(axis=1)
    most = gain[np.arange(len(best)), best]
    wanted = np.where(most > 0, best, NOTHING)
    bound = float(prices @ problem.capacity_workers + most[most > 0].sum())
    return Demand(prices=prices, configuration=wanted, workers=problem.held(wanted), bound=bound)


def balanced(problem: SizeProblem) -> list[Demand]:
    """Return the demands at the best prices found, the least bound first; each type's price rises with its crowd."""
    capacity = problem.capacity_workers
    if not capacity.any():
        return [demand(problem, np.zeros(len(capacity)))]
    prices, step, seen = np.full(len(capacity), _mean_worth(problem)), FIRST_STEP, []
    for _ in range(STEPS):
        seen.append(demand(problem, prices))
        crowd = seen[-1].workers / np.maximum(capacity, 1) - 1
        prices = prices * np.exp(step * np.clip(crowd, -1, 1))
        step *= STEP_FALL
    least = min(seen, key=lambda each: each.bound)
    spare = least.workers < capacity
    seen.append(demand(problem, np.where(spare, 0.0, least.prices)))
    return sorted(seen, key=lambda each: each.bound)


def _mean_worth(problem: SizeProblem) -> float:
    """Where prices begin: the jobs' best utilities spread over all workers; positive, so that it can change."""
    total = float(problem.flat.max(axis=1, initial=0.0).sum())
    return max(total, 1e-12) / float(problem.capacity_workers.sum())
