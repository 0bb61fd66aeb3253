"""CPU seconds of calls, measured alike for ours and for what they are compared with; and whether answers are proven."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.table import Row
from gavel.ports import Policy
from gavel.types import Allocation, AllocationProblem

EXACT = ("closed form", "assignment")  # solvers with nothing left to prove but that limits are kept
LONG_S = 15.0  # a call this long is repeated once only
LEAST_S = 0.05  # shorter calls are repeated within a measurement: the timer of some systems ticks at 4 ms


def warm_cpu_s(call: Callable[[], object], repetitions: int = 5) -> float:
    """Return the median CPU seconds of `call`, after one to warm up."""
    return in_turns([call], repetitions)[0]


def in_turns(calls: list[Callable[[], object]], repetitions: int = 5) -> list[float]:
    """Return the median CPU seconds of each of the `calls`, each warmed up once and then called equally often.

    They take turns, so that what else the machine does meanwhile falls on all alike. Where one of them takes long all
    are measured once.
    """
    first = [_timed(call, 1) for call in calls]
    inner = [max(1, int(LEAST_S / max(seconds, 1e-4))) for seconds in first]
    rounds = repetitions if max(first) < LONG_S else 1
    measured = [[_timed(*pair) for pair in zip(calls, inner, strict=True)] for _ in range(rounds)]
    return [statistics.median(seconds) for seconds in zip(*measured, strict=True)]


def _timed(call: Callable[[], object], inner: int) -> float:
    began = time.process_time()
    for _ in range(inner):
        call()
    return (time.process_time() - began) / inner


def cpu_s(policy: Policy, problem: AllocationProblem, repetitions: int = 5) -> float:
    """Median CPU seconds of a call, after one to warm up; nothing is known of the problem from the call before."""
    return warm_cpu_s(lambda: policy.allocate(replace(problem)), repetitions)


def solved(
    name: str, policy: Policy, problem: AllocationProblem, target: float | None = None, repetitions: int = 5
) -> Row:
    """The CPU seconds of a call, as a row that fails if the answer is not proven."""
    proven = is_proven(policy.allocate(problem))
    return Row(name, cpu_s(policy, problem, repetitions), "CPU s", target, proven=proven)


def is_proven(answer: Allocation) -> bool:
    """Whether the certificate says that limits are kept and the bound is reached, both within 1e-6."""
    gap = 0.0 if answer.solver in EXACT else gap_of(answer)
    return max(answer.certificate.primal_violation, gap) <= 1e-6


def gap_of(answer: Allocation) -> float:
    """The distance to the bound; infinite where the certificate does not tell it."""
    gap = answer.certificate.dual_gap
    return math.inf if gap is None else gap
