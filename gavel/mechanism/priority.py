"""Who goes first on which accelerator type. Two ways, as the setting `planner` names them; arrays are (jobs, types).

`owed`: rounds promised by the allocation minus rounds planned, the lag. Gavel (OSDI '20, section 5) divides fractions
by the share received; the difference orders jobs the same way and, unlike a ratio, stays bounded and comparable over
types.
`published`: the ratio as the original code computes it, since the last solve, type after type.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gavel.types import BoolArray, FloatArray, IntArray

OWED_ROUNDS_MAX = 3.0  # older debts and credits are forgotten: the allocation has changed since
STAYING_ROUNDS = 0.01  # among nearly equal claims nobody moves
EARLIER_ROUNDS = 1e-3  # among equal ones the earlier job goes first
HEAD_START_ROUNDS = 0.5  # every job's clock starts here, so that no ratio divides by zero


def accrue(owed_rounds: FloatArray, promised: FloatArray, *, beyond_rounds: float = 0.0) -> FloatArray:
    """What is owed once the coming round's fractions are added; `beyond_rounds` more where gangs may stay so long."""
    most = OWED_ROUNDS_MAX + beyond_rounds
    return np.clip(owed_rounds + promised, -most, most)


def urgency(claims: FloatArray, kept: IntArray) -> FloatArray:
    """How much it matters that each job runs on each type now, (n, m), from the rounds it claims there.

    The square of the claim, so that one that has waited long goes before two that have not; among equals a gang that
    can stay where it is, then the earlier job. `kept` (n,): column of the type that the job holds, -1: none. No two are
    equal, else prices could not tell apart jobs of one kind.
    """
    count, types = claims.shape
    rows = np.arange(count)
    step = EARLIER_ROUNDS / max(1, count)
    apart = np.outer(rows, np.sqrt(np.arange(2, 2 + types))) % 1.0  # fixed, and as good as random
    least = np.where(claims > 0, claims, 0.0) + step * ((count - rows)[:, None] + 0.5 * apart)
    held = kept >= 0
    least[rows[held], kept[held]] += STAYING_ROUNDS
    return np.asarray(np.square(least))


def claims_published(
    promised: FloatArray, received_rounds: FloatArray, usable: BoolArray, columns: list[int]
) -> Iterator[tuple[int, list[int]]]:
    """(column, its rows) type after type in the order of `columns`: by X / rounds received since the solve, then by X.

    A fraction of zero does not bar a job from what is left of a type. The ratio leaves out the rounds received by all
    jobs on the type, which are the same for all of them.
    """
    priority = promised / (received_rounds + HEAD_START_ROUNDS)
    for column in columns:
        order = np.lexsort((-promised[:, column], -priority[:, column]))
        yield column, order[usable[order, column]].tolist()


def fastest_first(rates: FloatArray) -> list[int]:
    """Columns of the types, the one with the largest mean relative speed (T_mj / max_j T_mj) first."""
    best = rates.max(axis=1, keepdims=True)
    speed: Any = np.divide(rates, best, out=np.zeros_like(rates), where=best > 0).sum(axis=0)
    return np.argsort(-speed, kind="stable").tolist()  # type: ignore[no-any-return]


def shuffled(columns: list[int], round_index: int) -> list[int]:
    """Another order of the types each round, for allocations that do not tell them apart; the same for the same index.

    The original draws the order; here it runs through a fixed sequence, so that a round can be planned again.
    """
    rest, number = list(columns), round_index * 2_654_435_761 % 2**32  # Knuth's multiplicative hash
    order = []
    while rest:
        number, index = divmod(number, len(rest))
        order.append(rest.pop(index))
    return order
