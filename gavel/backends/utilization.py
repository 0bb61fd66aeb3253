"""Reads what the supervisors of a job have sampled. The job runs as the same user and may have written the file."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 20


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
    try:
        file = os.open(utilization_path(log), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        text = os.read(file, READ_BYTES)
    except OSError:
        return ()
    finally:
        os.close(file)
    return tuple(sample for line in text.splitlines() for sample in _samples(line))


def _samples(line: bytes) -> Iterator[UtilizationSample]:
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
