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
    program, columns, rows = highspy.HighsLp(), len(cost), matrix.height
    program.num_col_, program.num_row_ = columns, rows
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, lower, np.full(columns, np.inf)
    program.row_lower_, program.row_upper_ = np.full(rows, -np.inf), np.full(rows, np.inf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.starts
    program.a_matrix_.index_, program.a_matrix_.value_ = matrix.rows, matrix.values
    highs.passModel(program)
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
    found = highs.getSolution()
    return np.asarray(found.col_value), np.asarray(found.row_dual)
