"""First reports that cannot be true: far above the estimate for a kind on a type where it was not measured before.

The limit is `IMPOSSIBLE` times the estimate, or `SURE` of its standard deviations if that is more. Such reports are
counted and not believed until a second job has reported the same.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

from gavel.estimator.beliefs import Beliefs
from gavel.estimator.evidence import IMPOSSIBLE, Outlier
from gavel.types import AcceleratorType, JobId

SURE = 3.0  # deviations of the estimate
UNUSED_TYPE_ERROR = 2.0  # of log(steps/s) on a type that nobody has used: a CPU may be next to a GPU
LARGEST_LOG_RATE = math.log(1e9)  # steps per second; nothing trains faster
AGREEMENT = math.log(1.5)  # between two jobs that show the same
REPORTS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedReport:
    """What was refused of one (job kind, scale factor, accelerator type) that has no evidence yet."""

    refused: int = 0
    reports: tuple[Outlier, ...] = ()  # the newest

    def with_report(self, job_id: JobId, log_rate: float) -> "RejectedReport":
        """Return the record with one more report that is not believed."""
        return replace(
            self, refused=self.refused + 1, reports=(*self.reports, Outlier(job_id, log_rate))[-REPORTS_MAX:]
        )

    def is_confirmed(self, log_rate: float) -> bool:
        """Return whether two jobs, with two reports each, show such a rate."""
        near = Counter(each.job_id for each in self.reports if abs(each.log_rate - log_rate) <= AGREEMENT)
        return sum(count >= 2 for count in near.values()) >= 2


def log_limit(beliefs: Beliefs, kind: str, size: int, name: AcceleratorType) -> float:
    """Return the largest log(steps/s) at which a first report of the kind on the type is believed."""
    belief = beliefs.of(kind, size)
    if not belief.is_level_known:
        return LARGEST_LOG_RATE
    column = beliefs.types.index(name)
    error = math.sqrt(max(0.0, float(belief.covariance[column, column])))
    if name not in beliefs.used_types:
        error = max(error, UNUSED_TYPE_ERROR)
    return min(LARGEST_LOG_RATE, float(belief.mean[column]) + max(math.log(IMPOSSIBLE), SURE * error))
