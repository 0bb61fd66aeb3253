"""Which composition was best in the epochs that are over: fixed-share Hedge over all compositions' replayed losses.

w_i <- (1 - s) w_i exp(-eta l_i) / W + s / N (Herbster and Warmuth, 1998). Every epoch is replayed with every
composition, so that nothing has to be tried to be learned.
"""

from collections.abc import Mapping

import numpy as np

SHARE = 0.05  # s: a composition that was bad can come back
RATE = 2.0  # eta


def losses(costs: Mapping[str, float]) -> dict[str, float]:
    """Return the loss of each composition in [0, 1]: by what fraction it cost more than the best, 1: twice as much."""
    least = min(costs.values(), default=0.0)
    return {name: float(np.clip(cost / least - 1, 0.0, 1.0)) if least > 0 else 0.0 for name, cost in costs.items()}


def updated(weights: Mapping[str, float], of_losses: Mapping[str, float]) -> dict[str, float]:
    """Return the weights after an epoch with these losses; both have the same names, and weights sum to 1."""
    kept = {name: weight * float(np.exp(-RATE * of_losses[name])) for name, weight in weights.items()}
    whole = sum(kept.values())
    return {name: (1 - SHARE) * weight / whole + SHARE / len(kept) for name, weight in kept.items()}


def uniform(names: tuple[str, ...]) -> dict[str, float]:
    """Return the weights before anything was learned."""
    return dict.fromkeys(names, 1 / len(names))
