"""Points of the curves of a job's metrics, and how many of them are kept."""

from collections.abc import Mapping
from dataclasses import dataclass

from gavel.types.cluster import AcceleratorType
from gavel.types.jobs import JobId

POINTS_PER_JOB = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPoint:
    """The metrics of one report of a gang, after `step` steps; the report before it was after `previous_step`."""

    job_id: JobId
    generation: int
    accelerator_type: AcceleratorType
    previous_step: int
    step: int
    at_s: float
    values: Mapping[str, float]


def spacing_of(step: int) -> int:
    """Return how many steps share one kept point once a job has done `step` steps: a power of two.

    It is 1 up to 1,000 steps and doubles when the number of steps doubles, so that at most 1,000 points are left.
    """
    return 1 << (step // POINTS_PER_JOB).bit_length()
