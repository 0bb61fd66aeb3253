"""Least attained service by queues: a job goes to the back queue once it has held its workers for long enough."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gavel.policies import measures
from gavel.policies._serving import ServingInOrder
from gavel.policies.programs.filling import jobs_by
from gavel.types import SECONDS_PER_HOUR, AllocationProblem, FloatArray, IntArray

Queues = Literal["two", "continuous"]


@dataclass(frozen=True)
class LeastAttainedService(ServingInOrder):
    """lexicographically maximise a_i / max_j T_ij in order of [A_i >= threshold]; equals in order of arrival.

    A_i is the attained service: the worker hours that the job has held. With two queues a job runs to its end or to the
    threshold without being set aside for another one of its queue, so there are few preemptions. `queues=continuous`
    has no queues: the job with the least A_i goes first, whatever the difference is, and equal jobs take turns.
    """

    queues: Queues = "two"
    threshold_h: float = 1.0

    name: ClassVar[str] = "least_attained_service"
    formula: ClassVar[str] = (
        "lexicographically maximise a_i / max_j T_ij in order of [A_i >= threshold], then of arrival"
    )
    source: ClassVar[str] = "Tiresias (NSDI '19), section 3.2: discretized two-dimensional LAS; Nuyens, Wierman (2008)"
    choose_when: ClassVar[str] = (
        "Choose this when nobody can tell how long jobs are, and new jobs should have a quick start."
    )
    order_matters: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"attained_service_s"})

    def order(self, problem: AllocationProblem) -> IntArray:
        """Return the rows of the jobs in the order in which they are served, (n,)."""
        return jobs_by(self._queue(measures.attained_service_s(problem)))

    def _queue(self, attained_service_s: FloatArray) -> FloatArray:
        if self.queues == "continuous":
            return attained_service_s
        return np.asarray(attained_service_s >= self.threshold_h * SECONDS_PER_HOUR, dtype=np.float64)


POLICY = LeastAttainedService
