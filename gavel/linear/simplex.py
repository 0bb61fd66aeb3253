"""HiGHS, asked directly for what cvxpy and scipy do not give: little overhead, exact prices, columns added later."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gavel.errors import SolveFailed
from gavel.types import FloatArray, IntArray

_OPTIONS: Mapping[str, bool | int | str | float] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
DUAL, PRIMAL = 1, 4
COLUMN_WISE, MINIMIZE = 1, 1  # highspy.MatrixFormat.kColwise, highspy.ObjSense.kMinimize

_IDLE: list[Any] = []  # solvers that nobody uses: making one takes as long as solving for thirty jobs


@dataclass(frozen=True, slots=True, eq=False)
class ByColumn:
    """A sparse matrix (height, v): entries `starts[c]` to `starts[c + 1]` of `rows` and `values` are column c."""

    height: int
    starts: IntArray
    rows: IntArray
    values: FloatArray


def stated(matrix: ByColumn, cost: FloatArray, lower: FloatArray, *, method: int = DUAL) -> Any:
    """A solver for: minimise cost . x with x >= `lower` (v,); the rows matrix @ x are not bound yet."""
    highs, free = _solver(), np.full(matrix.height, np.inf)
    highs.setOptionValue("simplex_strategy", method)
    _state(highs, matrix, cost, lower, (-free, free))
    return highs


def bound(highs: Any, lower: FloatArray, upper: FloatArray) -> None:
    """Hold every row between `lower` and `upper` (rows,)."""
    highs.changeRowsBounds(len(lower), np.arange(len(lower), dtype=np.int32), lower, upper)


def least(
    matrix: ByColumn,
    cost: FloatArray,
    lower: FloatArray,
    rows: tuple[FloatArray, FloatArray],
    *,
    method: int = DUAL,
) -> tuple[FloatArray, FloatArray]:
    """The x >= `lower` (v,) of least cost . x with matrix @ x between the two bounds of `rows`, and their prices.

    Raises SolveFailed. Asked once: the solver is kept for the next program, which it solves as a new one would.
    """
    highs = _IDLE.pop() if _IDLE else _solver()
    highs.setOptionValue("simplex_strategy", method)
    _state(highs, matrix, cost, lower, rows)
    answer = solved(highs)
    _IDLE.append(highs)
    return answer


def _solver() -> Any:
    from highspy import _Highs  # type: ignore[attr-defined]  # what `Highs` puts around it refers back to it, and stays until it is collected

    highs: Any = _Highs()
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    return highs


def _state(
    highs: Any, matrix: ByColumn, cost: FloatArray, lower: FloatArray, rows: tuple[FloatArray, FloatArray]
) -> None:
    columns, any_height, whole = len(cost), np.full(len(cost), np.inf), np.zeros(len(cost), dtype=np.int32)
    starts, places = matrix.starts.astype(np.int32), matrix.rows.astype(np.int32)
    shape = (columns, matrix.height, len(matrix.values), COLUMN_WISE, MINIMIZE, 0.0)
    highs.passModel(*shape, cost, lower, any_height, *rows, starts, places, matrix.values, whole)


def solved(highs: Any) -> tuple[FloatArray, FloatArray]:
    """The best x (v,) and the prices (rows,); SolveFailed unless it is optimal."""
    from highspy import HighsModelStatus

    highs.run()
    status = highs.getModelStatus()
    if status != HighsModelStatus.kOptimal:
        raise SolveFailed(f"highs answered {highs.modelStatusToString(status)}; only optimal is used")
    solution = highs.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)
