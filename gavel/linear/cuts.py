"""The prices at which a bound is lowest, by cutting planes, for a convex function that many jobs add up to.

Each evaluation gives a plane below the function; the lowest point of all planes is where it is evaluated next (Kelley,
1960). A simplex goes on from its last answer, so a round costs little beside the evaluation itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gavel.linear import simplex
from gavel.types import FloatArray

MOST_ROUNDS = 50
PRECISE = 1e-8  # relative distance of the lowest value found from that of the planes


def lowest(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray, *, precise: float = PRECISE
) -> FloatArray:
    """Return prices (m,) at which `evaluate`, the value and a subgradient (m,) at prices, is about lowest.

    Looked for between a half and twice the prices `start` (m,), until it is `precise`, relatively.
    """
    m, prices = len(start), start
    highs = _prices_and_bound(start)
    best = np.inf, prices
    for _ in range(MOST_ROUNDS):
        value, slope = evaluate(prices)
        best = min(best, (value, prices), key=lambda each: each[0])
        plane = np.append(-slope, 1.0)
        highs.addRow(value - float(slope @ prices), np.inf, m + 1, np.arange(m + 1, dtype=np.int32), plane)
        values, _ = simplex.solved(highs)
        if best[0] - float(values[m]) <= precise * abs(best[0]):
            break
        prices = values[:m].copy()
    return best[1]


def _prices_and_bound(start: FloatArray) -> Any:
    """A solver for the lowest value above all planes; its variables are the prices and that value."""
    m, none = len(start), np.zeros(0)
    matrix = simplex.ByColumn(0, np.zeros(m + 2, dtype=np.int64), np.zeros(0, dtype=np.int64), none)
    room = 1e-3 * float(start.max())
    highs = simplex.stated(matrix, np.append(np.zeros(m), 1.0), np.append(start / 2, -np.inf))
    for place, most in enumerate((2 * start + room).tolist()):
        highs.changeColBounds(place, start[place] / 2 if start[place] > room else 0.0, most)
    return highs
