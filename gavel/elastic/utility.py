"""What a configuration is worth to a job: its speed there, less what a restart costs, by the rank of its length.

n jobs, m types, k sizes; `speed` (n, m, k) is in steps per second, 0 where a job cannot have the configuration.
"""

from dataclasses import dataclass, fields

import numpy as np

from gavel.rank_weights import CONCAVITY, EVEN_PART, rank_weight
from gavel.types import BoolArray, FloatArray, IntArray

HORIZON_S = 600.0  # over which a restart has to pay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticJobs:
    """What is known of n jobs."""

    speed: FloatArray  # (n, m, k)
    steps_left: FloatArray  # (n,)
    configuration: IntArray  # (n,) that each has now, -1: none
    restart_s: FloatArray  # (n,) without a step, at each change
    weight: FloatArray  # (n,) of its user and priority
    is_fixed: BoolArray  # (n,) it keeps what it has: it is starting

    @property
    def flat(self) -> FloatArray:
        """Return the speeds by job and configuration, (n, m k)."""
        return self.speed.reshape(len(self.speed), self.speed.shape[1] * self.speed.shape[2])

    @property
    def slowest(self) -> FloatArray:
        """Return the speed of each job in its slowest configuration, (n,); 1 for one that can have none."""
        return slowest_speed(self.flat, axis=1)

    def at(self, rows: IntArray) -> "ElasticJobs":
        """Return some of the jobs."""
        return ElasticJobs(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


def slowest_speed(speed: FloatArray, axis: int) -> FloatArray:
    """Return the least speed above 0 along an axis of configurations; 1 where there is none."""
    slowest = speed.min(axis=axis, initial=np.inf)
    if not (slowest > 0).all():
        slowest = np.where(speed > 0, speed, np.inf).min(axis=axis, initial=np.inf)
    return np.where(np.isfinite(slowest), slowest, 1.0)


def weights_of(jobs: ElasticJobs, slowest: FloatArray) -> FloatArray:
    """Return w of all jobs that there are, (n,): by user and priority, and by the rank of what is left."""
    return jobs.weight * rank_weight(jobs.steps_left / slowest, EVEN_PART)


def utility(jobs: ElasticJobs, weights: FloatArray | None = None) -> FloatArray:
    """Return U, (n, m, k): w_j (s_jc f_jc / s_j,slowest)^q, w by the rank of what is left at the slowest speed.

    f is H / (H + restart) where a configuration is not the job's own, H = min(HORIZON_S, time left there): what it
    gains must pay for the restart within H. A job that is fixed has its own configuration or nothing. `weights`: w of
    these jobs, as of `weights_of`, if they are not all that there are.
    """
    flat, slowest = jobs.flat, jobs.slowest
    kept = _own(jobs)
    part = np.where(kept, 1.0, after_restart(flat, jobs.steps_left[:, None], jobs.restart_s[:, None]))
    relative = flat * part / slowest[:, None]
    worth = (weights_of(jobs, slowest) if weights is None else weights)[:, None] * relative**CONCAVITY
    worth = np.where(jobs.is_fixed[:, None] & ~kept, 0.0, worth)
    return worth.reshape(jobs.speed.shape)


def after_restart(speed: FloatArray, steps_left: FloatArray, restart_s: FloatArray) -> FloatArray:
    """Return f, H / (H + restart), of jobs that change to a configuration of this speed; arrays of one shape."""
    steps_left = np.broadcast_to(steps_left, speed.shape)
    left_s = np.divide(steps_left, speed, out=np.full(speed.shape, HORIZON_S), where=speed > 0)
    horizon_s = np.minimum(HORIZON_S, np.maximum(left_s, 1.0))
    part: FloatArray = horizon_s / (horizon_s + restart_s)
    return part


def _own(jobs: ElasticJobs) -> BoolArray:
    """Where a configuration is the one that the job has, (n, m k)."""
    own: BoolArray = np.arange(jobs.flat.shape[1]) == jobs.configuration[:, None]
    return own
