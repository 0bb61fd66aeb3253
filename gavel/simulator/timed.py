"""A policy runner that records how long each solve took."""

import time
from array import array

from gavel.ports import PolicyRunner
from gavel.types import Allocation, AllocationProblem


class TimedRunner:
    """Calls `runner` and appends the wall time of each call, in seconds, to `seconds`."""

    def __init__(self, runner: PolicyRunner, seconds: "array[float]") -> None:
        self._runner = runner
        self._seconds = seconds
        self.warm, self.close = runner.warm, runner.close

    def allocate(self, policy: str, problem: AllocationProblem, time_limit_s: float) -> Allocation:
        """Return the runner's allocation."""
        began_s = time.perf_counter()
        answer = self._runner.allocate(policy, problem, time_limit_s)
        self._seconds.append(time.perf_counter() - began_s)
        return answer
