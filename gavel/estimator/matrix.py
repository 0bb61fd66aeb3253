"""What is believed of many specifications at once, as arrays: the numbers of one estimate after another.

Kinds that were measured and not stated are looked up in arrays over all kinds; the few others are asked for one by one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from gavel.estimator.beliefs import COMPLETED_ERROR, Beliefs, coordinates, places
from gavel.estimator.evidence import Evidence, column, errors
from gavel.estimator.layered import Layered
from gavel.estimator.tables import Key
from gavel.ports import ThroughputEstimate, ThroughputMatrix
from gavel.types import AcceleratorType, BoolArray, FloatArray, JobSpec

Estimate = Callable[[JobSpec, Sequence[AcceleratorType]], tuple[ThroughputEstimate, ...]]
Columns = tuple[FloatArray, FloatArray, BoolArray]  # steps per second, relative error, whether to measure it; (.., m)


class Cells:
    """Estimates of every measured kind on every type, where no user states one; for each gang size worked out once."""

    def __init__(self, rates: Layered[Key, Evidence], beliefs: Beliefs) -> None:
        self.rates, self.beliefs = rates, beliefs
        self._at: dict[int, Columns] = {}
        self._row, self._size, self._column = coordinates(known := rates.flat(), beliefs.kinds, beliefs.types)
        self._rate, self._error = column("published", known.values()), errors(known.values())
        self._is_measured = column("is_representative", known.values()) > 0

    def at(self, size: int) -> Columns:
        """Of all kinds, (K, m) each."""
        if size not in self._at:
            rate, error = (each.copy() for each in self.beliefs.of_all(size))
            is_worth_measuring = error > COMPLETED_ERROR
            known = self._size == size
            is_worth_measuring[self._row[known], self._column[known]] = False
            known &= self._is_measured
            cells = self._row[known], self._column[known]
            rate[cells], error[cells] = self._rate[known], self._error[known]
            self._at[size] = rate, error, is_worth_measuring
        return self._at[size]


def matrix(
    specs: Sequence[JobSpec], types: Sequence[AcceleratorType], cells: Cells, estimate: Estimate
) -> ThroughputMatrix:
    """Of n specifications on m types; `estimate` is asked about those that `cells` do not know."""
    row_of = cells.beliefs.row_of
    rows = np.array(
        [-1 if spec.throughput_steps_per_s else row_of.get(spec.kind, -1) for spec in specs], dtype=np.int64
    )
    sizes = np.array([spec.scale_factor for spec in specs], dtype=np.int64)
    others = np.flatnonzero(rows < 0).tolist()
    asked = ThroughputMatrix.of([estimate(specs[place], types) for place in others], types)
    shape = len(specs), len(types)
    found = np.empty(shape), np.empty(shape), np.empty(shape, dtype=bool)
    for into, answers in zip(found, (asked.steps_per_s, asked.relative_error, asked.is_worth_measuring), strict=True):
        into[others] = answers
    columns = places(types, cells.beliefs.types)
    for size in np.unique(sizes[rows >= 0]):
        at = np.flatnonzero((sizes == size) & (rows >= 0))
        for into, known in zip(found, cells.at(int(size)), strict=True):
            into[at] = known[rows[at, None], columns]
    return ThroughputMatrix(steps_per_s=found[0], relative_error=found[1], is_worth_measuring=found[2])
