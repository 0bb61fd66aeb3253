"""The lines of a run's jobs, kept in a file, so that memory grows with the running jobs and not with the trace."""

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import fields
from tempfile import SpooledTemporaryFile
from typing import overload
from weakref import finalize

import numpy as np

from gavel.simulator.report import JobResult
from gavel.types import JobState

IN_MEMORY_BYTES = 1 << 16
FIELDS = tuple(each.name for each in fields(JobResult))


class Rows(Sequence[JobResult]):
    """JobResults in order of arrival, in whatever order the jobs ended. Beyond 64 KB they lie in a temporary file."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  lives as long as this object
        finalize(self, self._file.close)
        self._place, self._offset = array("q"), array("q")  # 16 bytes a job
        self._order: np.ndarray | None = None

    def add(self, place: int, row: JobResult) -> None:
        """Keep the line of the job that arrived at this place."""
        self._place.append(place)
        self._offset.append(self._file.seek(0, 2))
        self._file.write(json.dumps({name: getattr(row, name) for name in FIELDS}).encode() + b"\n")
        self._order = None

    def __len__(self) -> int:
        return len(self._place)

    @overload
    def __getitem__(self, index: int) -> JobResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobResult]: ...
    def __getitem__(self, index: int | slice) -> JobResult | Sequence[JobResult]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        if self._order is None:
            self._order = np.argsort(np.frombuffer(self._place, dtype=np.int64), kind="stable")
        self._file.seek(self._offset[int(self._order[index])])
        content = json.loads(self._file.readline())
        return JobResult(**content | {"state": JobState(content["state"])})

    def __iter__(self) -> Iterator[JobResult]:
        return (self[index] for index in range(len(self)))
