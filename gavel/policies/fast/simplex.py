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


@dataclass(frozen=True, slots=True, eq=False)
class ByColumn:
    """A sparse matrix (height, v): entries `starts[c]` to `starts[c + 1]` of `rows` and `values` are column c."""

    height: int
    starts: IntArray
    rows: IntArray
    values: FloatArray


def stated(matrix: ByColumn, cost: FloatArray, lower: FloatArray, *, method: int = DUAL) -> Any:
    """A solver for: minimise cost . x with x >= `lower` (v,); the rows matrix @ x are not bound yet."""
    import highspy

    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    highs.setOptionValue("simplex_strategy", method)
    columns, rows = len(cost), matrix.height
    by_column, least = int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMinimize)
    free, any_height, whole = np.full(rows, np.inf), np.full(columns, np.inf), np.zeros(columns, dtype=np.int32)
    starts, places = matrix.starts.astype(np.int32), matrix.rows.astype(np.int32)
    shape = (columns, rows, len(matrix.values), by_column, least, 0.0)
    highs.passModel(*shape, cost, lower, any_height, -free, free, starts, places, matrix.values, whole)
    return highs


def bound(highs: Any, lower: FloatArray, upper: FloatArray) -> None:
    """Hold every row between `lower` and `upper` (rows,)."""
    highs.changeRowsBounds(len(lower), np.arange(len(lower), dtype=np.int32), lower, upper)


def solved(highs: Any) -> tuple[FloatArray, FloatArray]:
    """The best x (v,) and the prices (rows,); SolveFailed unless it is optimal."""
    from highspy import HighsModelStatus

    highs.run()
    status = highs.getModelStatus()
    if status != HighsModelStatus.kOptimal:
        raise SolveFailed(f"highs answered {highs.modelStatusToString(status)}; only optimal is used")
    solution = highs.getSolution()
    return np.asarray(solution.col_value), np.asarray(solution.row_dual)
