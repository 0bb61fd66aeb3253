"""Estimates of many job specifications at once, as arrays; the numbers are those of `estimate` for each.

Kinds that were measured and have no user claim are looked up in arrays over all kinds; the few others are estimated one
by one, jobs that are alike together.
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
    """Estimates of every measured kind on every type, without user claims; computed once for each gang size."""

    def __init__(self, rates: Layered[Key, Evidence], beliefs: Beliefs) -> None:
        self.rates, self.beliefs = rates, beliefs
        self._at: dict[int, Columns] = {}
        self._row, self._size, self._column = coordinates(evidence := rates.flat(), beliefs.kinds, beliefs.types)
        self._rate, self._error = column("published", evidence.values()), errors(evidence.values())
        self._is_measured = column("is_representative", evidence.values()) > 0

    def at(self, size: int) -> Columns:
        """Return steps/s, relative error and whether to measure, of all kinds at a gang size, (K, m) each."""
        if size not in self._at:
            rate, error = (each.copy() for each in self.beliefs.of_all(size))
            is_worth_measuring = error > COMPLETED_ERROR
            of_size = self._size == size
            is_worth_measuring[self._row[of_size], self._column[of_size]] = False
            of_size &= self._is_measured
            cells = self._row[of_size], self._column[of_size]
            rate[cells], error[cells] = self._rate[of_size], self._error[of_size]
            self._at[size] = rate, error, is_worth_measuring
        return self._at[size]


def matrix(
    specs: Sequence[JobSpec], types: Sequence[AcceleratorType], cells: Cells, estimate: Estimate
) -> ThroughputMatrix:
    """Return the estimates of n specifications on m types; `estimate` gives those that are not in `cells`."""
    row_of = cells.beliefs.row_of
    rows = np.array(
        [-1 if spec.throughput_steps_per_s else row_of.get(spec.kind, -1) for spec in specs], dtype=np.int64
    )
    sizes = np.array([spec.scale_factor for spec in specs], dtype=np.int64)
    others = np.flatnonzero(rows < 0).tolist()
    index_of: dict[object, int] = {}
    answer_of = [index_of.setdefault(question(specs[place]), len(index_of)) for place in others]
    first = dict(zip(reversed(answer_of), reversed(others), strict=True))
    asked = ThroughputMatrix.of([estimate(specs[first[answer]], types) for answer in range(len(first))], types)
    shape = len(specs), len(types)
    arrays = np.empty(shape), np.empty(shape), np.empty(shape, dtype=bool)
    for into, answers in zip(arrays, (asked.steps_per_s, asked.relative_error, asked.is_worth_measuring), strict=True):
        into[others] = answers[np.array(answer_of, dtype=np.int64)]
    columns = places(types, cells.beliefs.types)
    for size in np.unique(sizes[rows >= 0]):
        at = np.flatnonzero((sizes == size) & (rows >= 0))
        for into, measured in zip(arrays, cells.at(int(size)), strict=True):
            into[at] = measured[rows[at, None], columns]
    return ThroughputMatrix(steps_per_s=arrays[0], relative_error=arrays[1], is_worth_measuring=arrays[2])


def question(spec: JobSpec) -> object:
    """Return all that an estimate depends on, beside the types."""
    return spec.kind, spec.scale_factor, spec.user, tuple(spec.throughput_steps_per_s.items())
