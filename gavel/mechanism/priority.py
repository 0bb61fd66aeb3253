"""Who goes first on which accelerator type. Two ways, as the setting `planner` names them; arrays are (jobs, types).

`owed`: rounds promised by the allocation minus rounds planned. Gavel (OSDI '20, section 5) divides fractions by the
share received; the difference orders jobs the same way and, unlike a ratio, stays bounded and comparable over types.
`published`: the ratio as the original code computes it, since the last solve, type after type.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gavel.types import FloatArray, IntArray

OWED_ROUNDS_MAX = 3.0  # older debts and credits are forgotten: the allocation has changed since
HEAD_START_ROUNDS = 0.5  # every job's clock starts here, so that no ratio divides by zero

Claims = Iterator[tuple[int, int]]
"""(row of the job, column of the type), the strongest claim first."""


def accrue(owed_rounds: FloatArray, promised: FloatArray) -> FloatArray:
    """What is owed once the coming round's fractions are added."""
    return np.clip(owed_rounds + promised, -OWED_ROUNDS_MAX, OWED_ROUNDS_MAX)


def claims_owed(owed_rounds: FloatArray, usable: npt.NDArray[np.bool_], kept: IntArray) -> Claims:
    """Positive claims, largest first; among equals a gang that can stay where it is, then the earlier job.

    `kept` (jobs,) is the column of the type that the job holds, -1: none.
    """
    rows, columns = np.nonzero(usable & (owed_rounds > 1e-6))
    moves = kept[rows] != columns
    order = np.lexsort((columns, rows, moves, -np.round(owed_rounds[rows, columns], 2)))
    return zip(rows[order].tolist(), columns[order].tolist(), strict=True)


def claims_published(
    promised: FloatArray, received_rounds: FloatArray, usable: npt.NDArray[np.bool_], columns: list[int]
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
