"""The prices at which a bound is lowest that many parts add up to, by cutting planes of each part.

Each part depends on prices that all share and on at most one of its own. Each evaluation gives a plane below every
part, which says more than one below their sum does: the prices are good after some ten evaluations, where planes of the
sum need several times as many as there are prices (Birge and Louveaux, 1988, on the L-shaped method).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gavel.linear import simplex
from gavel.types import FloatArray, IntArray

MOST_ROUNDS = 60
PRECISE = 1e-9  # relative distance of the lowest value found from that of the planes


class Planes(NamedTuple):
    """What k parts are worth at prices, (k,), and how that changes with shared prices, (k, s), and its own, (k,)."""

    value: FloatArray
    shared: FloatArray
    own: FloatArray


def lowest_of_parts(
    evaluate: Callable[[FloatArray, FloatArray], Planes],
    own_of: IntArray,
    linear: tuple[FloatArray, FloatArray],
    start: tuple[FloatArray, FloatArray],
    most: tuple[float, float],
) -> tuple[FloatArray, FloatArray]:
    """Return the shared prices (s,) and own ones (g,) at which all parts and `linear` times prices are about lowest.

    Prices are from 0 to `most`: a shared one, an own one. `own_of` (k,): which own price each part has, -1 for none.
    """
    shared, own = start
    highs = _prices_and_parts(linear, most, len(own_of))
    lowest, best = np.inf, start
    for _ in range(MOST_ROUNDS):
        planes = evaluate(shared, own)
        value = float(planes.value.sum() + linear[0] @ shared + linear[1] @ own)
        if value < lowest:
            lowest, best = value, (shared, own)
        _add(highs, planes, own_of, shared, own)
        x, _ = simplex.solved(highs)
        shared, own, rest = np.split(x, np.cumsum([len(shared), len(own)]))
        bound = float(linear[0] @ shared + linear[1] @ own + rest.sum())
        if lowest - bound <= PRECISE * abs(lowest):
            break
    return best


def _prices_and_parts(linear: tuple[FloatArray, FloatArray], most: tuple[float, float], parts: int) -> Any:
    """A solver for the lowest sum of planes: its variables are the prices, and what each part is worth at least."""
    cost, none = np.concatenate([*linear, np.ones(parts)]), np.zeros(0)
    matrix = simplex.ByColumn(0, np.zeros(len(cost) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), none)
    prices = len(cost) - parts
    highs = simplex.stated(matrix, cost, np.append(np.zeros(prices), np.full(parts, -np.inf)))
    upper = np.repeat(most, [len(linear[0]), len(linear[1])])
    highs.changeColsBounds(prices, np.arange(prices, dtype=np.int32), np.zeros(prices), upper)
    return highs


def _add(highs: Any, planes: Planes, own_of: IntArray, shared: FloatArray, own: FloatArray) -> None:
    """Hold each part at or above its plane at these prices."""
    parts, s, g = len(own_of), len(shared), len(own)
    at = np.column_stack(
        [np.tile(np.arange(s), (parts, 1)), np.where(own_of < 0, -1, s + own_of), s + g + np.arange(parts)]
    )
    values = np.column_stack([-planes.shared, -planes.own, np.ones(parts)])
    used = (at >= 0) & (values != 0)
    starts = np.append(0, used.sum(axis=1).cumsum())[:-1]
    least = planes.value - planes.shared @ shared - planes.own * np.append(own, 0.0)[own_of]
    entries = values[used]
    every = (starts.astype(np.int32), at[used].astype(np.int32), entries)
    highs.addRows(parts, least, np.full(parts, np.inf), len(entries), *every)
