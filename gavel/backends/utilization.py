"""Reads what the supervisors of a job have sampled. The job runs as the same user and may have written the file."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.backends.machine import read_from


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationSample:
    """What a rank used: the mean number of CPU cores since the sample before, and its memory at this instant."""

    at_s: float
    generation: int
    rank: int
    cpu_cores: float
    memory_bytes: int


def utilization_path(log: Path) -> Path:
    """Return the file of samples beside a job's log."""
    return log.with_name(log.name + ".utilization")


def read_utilization(log: Path) -> tuple[UtilizationSample, ...]:
    """Return the samples of a job, oldest first; lines that are none are left out."""
    text = read_from(str(utilization_path(log)), 0)
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
    if not (math.isfinite(cores) and math.isfinite(at_s) and 0 <= memory_bytes < 2**60 and 0 <= number < 2**31):
        raise ValueError("no sample")
    return UtilizationSample(
        at_s=at_s, generation=int(line["generation"]), rank=number, cpu_cores=cores, memory_bytes=memory_bytes
    )
