"""Reads what the supervisors of a job have sampled. The job runs as the same user and may have written the file."""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.backends.machine import read_from
from gavel.backends.utilization_sampler import append_lines

BYTES_PER_ANSWER = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationSample:
    """What a rank used: the mean number of CPU cores since the sample before, and its memory at this instant.

    The same of its accelerator, None where that is not known: the part of the time in which it was busy, from 0 to 1,
    and the memory in use there, of all processes.
    """

    at_s: float
    generation: int
    rank: int
    cpu_cores: float
    memory_bytes: int
    accelerator_busy: float | None = None
    accelerator_memory_bytes: int | None = None


def utilization_path(log: Path) -> Path:
    """Return the file of samples beside a job's log."""
    return log.with_name(log.name + ".utilization")


def read_utilization(log: Path) -> tuple[UtilizationSample, ...]:
    """Return the samples of a job, oldest first; lines that are none are left out."""
    text = read_from(str(utilization_path(log)), 0)
    return tuple(sample for line in text.splitlines() for sample in samples_of(line))


def read_new_samples(log: Path, offset: int) -> tuple[bytes, int]:
    """Return whole lines of the samples beside a gang's log from `offset` on, and the offset after them.

    The job may have put anything there: links are not followed, pipes are not waited for. A file that is shorter by now
    was thinned: what follows is taken, what is in it was taken before.
    """
    try:
        file = os.open(utilization_path(log), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b"", offset
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset:
            return b"", status.st_size if stat.S_ISREG(status.st_mode) else offset
        text = os.pread(file, BYTES_PER_ANSWER, offset)
    finally:
        os.close(file)
    whole = len(text) if len(text) == BYTES_PER_ANSWER and b"\n" not in text else text.rfind(b"\n") + 1
    return text[:whole], offset + whole


def append_samples(log: Path, of_instants: Sequence[Sequence[UtilizationSample]]) -> None:
    """Append samples to the file beside a job's log, those of one instant in a line. Raises OSError."""
    lines = []
    for samples in of_instants:
        ranks = [_rank_of(each) for each in samples]
        lines.append(json.dumps({"at_s": samples[0].at_s, "generation": samples[0].generation, "ranks": ranks}))
    append_lines(str(utilization_path(log)), lines)


def _rank_of(sample: UtilizationSample) -> list[float]:
    own = [sample.rank, sample.cpu_cores, sample.memory_bytes]
    if sample.accelerator_busy is None or sample.accelerator_memory_bytes is None:
        return own
    return [*own, sample.accelerator_busy, sample.accelerator_memory_bytes]


def samples_of(line: bytes) -> Iterator[UtilizationSample]:
    """Yield the samples of one line; none if the line holds none."""
    try:
        value = json.loads(line)
        yield from [_sample(value, each) for each in value["ranks"]]
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
        return


def _sample(line: Mapping[str, Any], rank: list[Any]) -> UtilizationSample:
    number, cores, memory_bytes = int(rank[0]), float(rank[1]), int(rank[2])
    at_s = float(line["at_s"])
    busy, held_bytes = (float(rank[3]), int(rank[4])) if len(rank) > 3 else (None, None)
    if busy is not None and held_bytes is not None and not (0 <= busy <= 1 and 0 <= held_bytes < 2**60):
        raise ValueError("no sample")
    if not (math.isfinite(cores) and math.isfinite(at_s) and 0 <= memory_bytes < 2**60 and 0 <= number < 2**31):
        raise ValueError("no sample")
    return UtilizationSample(
        at_s=at_s,
        generation=int(line["generation"]),
        rank=number,
        cpu_cores=cores,
        memory_bytes=memory_bytes,
        accelerator_busy=busy,
        accelerator_memory_bytes=held_bytes,
    )
