"""The rates of jobs that share workers, by kind, as an allocation problem holds them."""

from collections.abc import Sequence

import numpy as np

from gavel.types import IntArray, JobSpec, PairRates
from workloads.traces.throughputs import PairThroughput


class Packing:
    """The pair rates of a table, prepared for problems over `types`."""

    def __init__(self, colocated: PairThroughput, types: Sequence[str]) -> None:
        kinds = dict.fromkeys((kind, size) for kind, _, size, _ in colocated)
        self._index = {kind: index for index, kind in enumerate(kinds)}
        column_of = {name: column for column, name in enumerate(types)}
        self._steps_per_s = np.zeros((len(kinds), len(kinds), len(types)))
        for (kind, other, size, name), rate in colocated.items():
            if name in column_of:
                self._steps_per_s[self._index[kind, size], self._index[other, size], column_of[name]] = rate

    def rates(self, specs: Sequence[JobSpec], columns: IntArray | slice = slice(None)) -> PairRates:
        """Return the rates at which these jobs, the rows of a problem, run when they share workers.

        The problem's types are those at `columns`.
        """
        kinds = [self._index.get((spec.kind, spec.scale_factor), -1) for spec in specs]
        return PairRates(kind_of_job=np.array(kinds, dtype=np.int64), steps_per_s=self._steps_per_s[:, :, columns])
