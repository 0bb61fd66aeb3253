"""The best whole choice of a small problem by branch and bound, where a few workers that are left over weigh most."""

from typing import Any

import numpy as np

from gavel.elastic.problem import NOTHING, SizeChoice, SizeProblem
from gavel.types import FloatArray, IntArray

CELLS_MAX = 1200  # of jobs and possible configurations: some tens of milliseconds
OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "mip_max_nodes": 300,  # a decision is bounded by work, not by time
    "mip_rel_gap": 1e-3,
}
COLUMN_WISE, MINIMIZE = 1, 1  # highspy.MatrixFormat.kColwise, highspy.ObjSense.kMinimize


def best_whole(problem: SizeProblem) -> SizeChoice | None:
    """Return the best choice found and its bound; None where the problem is too large, or nothing was found."""
    rows, columns = np.nonzero(problem.flat > 0)
    if not 0 < len(rows) <= CELLS_MAX:
        return None
    solver = _solver()
    _state(solver, problem, rows, columns)
    solver.run()
    chosen = np.array(solver.getSolution().col_value) > 0.5
    if len(chosen) != len(rows):
        return None
    configuration = np.full(len(problem.flat), NOTHING, dtype=np.int64)
    configuration[rows[chosen]] = columns[chosen]
    if (problem.held(configuration) > problem.capacity_workers).any():
        return None
    bound = -float(solver.getInfo().mip_dual_bound)
    return SizeChoice(configuration=configuration, value=problem.value(configuration), bound=bound)


def _state(solver: Any, problem: SizeProblem, rows: IntArray, columns: IntArray) -> None:
    """Pass the program to the solver: a variable of 0 or 1 for each job (row) and possible configuration (column)."""
    jobs, cells = len(problem.flat), len(rows)
    places = np.column_stack([rows, jobs + problem.type_of[columns]]).ravel().astype(np.int32)
    values = np.column_stack([np.ones(cells), problem.workers[columns]]).ravel().astype(np.float64)
    most: FloatArray = np.append(np.ones(jobs), problem.capacity_workers)
    starts, whole = np.arange(0, 2 * cells, 2, dtype=np.int32), np.ones(cells, dtype=np.int32)
    shape = (cells, len(most), len(values), COLUMN_WISE, MINIMIZE, 0.0)
    limits = np.zeros(cells), np.ones(cells), np.full(len(most), -np.inf), most
    solver.passModel(*shape, -problem.flat[rows, columns], *limits, starts, places, values, whole)


def _solver() -> Any:
    from highspy import _Highs  # type: ignore[attr-defined]  # what `Highs` puts around it stays until it is collected

    solver: Any = _Highs()
    for name, value in OPTIONS.items():
        solver.setOptionValue(name, value)
    return solver
