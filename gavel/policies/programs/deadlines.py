"""Which deadlines can be kept together, and what to say of the others.

1. A deadline that its job alone on its best type could not keep is given up.
2. While the rest do not fit: the one with the highest price per weight is given up. The price of a deadline is the part
   of the bottleneck that it holds, read off the dual of "how far can all of them be met?".
3. Each one given up in step 2 is tried again, last first: one that fits beside those that are kept is kept after all.

So no deadline is given up that could be kept beside the others, and none because of somebody else's impossible one.
"""

import numpy as np

from gavel.policies import measures
from gavel.policies.programs.program import Program, cvxpy
from gavel.types import FloatArray, JobId

Notes = tuple[tuple[JobId, str], ...]
PRECISION = 1e-7  # relative


def keep_deadlines(program: Program) -> tuple[FloatArray, Notes]:
    """The relative throughput (n,) that each kept deadline needs, and a note for every other; raises SolveFailed."""
    problem = program.given
    needed = measures.needed_speed(problem)
    impossible = needed > 1
    notes = [(problem.job_ids[job], _alone(needed[job])) for job in np.flatnonzero(impossible)]
    wanted = np.where(impossible, 0.0, needed)
    if wanted.any():
        question = _Question(program)
        for job in reversed(_given_up(question, wanted, problem.weight)):
            fastest = question.fastest(job, wanted)
            if fastest >= needed[job] * (1 - PRECISION):
                wanted[job] = needed[job]
            else:
                notes.append((problem.job_ids[job], _beside_others(needed[job], fastest)))
    return wanted * (1 - PRECISION), tuple(sorted(notes))


class _Question:
    """Two linear programs over the same valid allocations, compiled once and asked many times."""

    def __init__(self, program: Program) -> None:
        cp = cvxpy()

        jobs = len(program.given.job_ids)
        self._program = program
        self._speed = cp.multiply(measures.per_best_rate(program.given), program.throughput)
        self._wanted, self._chosen = cp.Parameter(jobs, nonneg=True), cp.Parameter(jobs, nonneg=True)
        self._part = cp.Variable()
        self._at_least = self._speed >= cp.multiply(self._wanted, self._part)
        self._fit = program.over_valid(cp.Maximize(self._part), [self._at_least, self._part <= 1])
        kept = self._speed >= self._wanted * (1 - PRECISION)
        self._fastest = program.over_valid(cp.Maximize(self._chosen @ self._speed), [kept])

    def fit(self, wanted: FloatArray) -> tuple[float, FloatArray]:
        """The part, up to 1, of all `wanted` speeds (n,) that can be had together, and the price of each, (n,)."""
        self._wanted.value = wanted
        self._program.run(self._fit)
        return float(self._part.value), np.maximum(0.0, self._at_least.dual_value) * wanted

    def fastest(self, job: int, wanted: FloatArray) -> float:
        """The highest speed that `job` can have where everybody has what is `wanted` (n,)."""
        self._wanted.value = wanted
        self._chosen.value = np.eye(len(wanted))[job]
        self._program.run(self._fastest)
        return float(self._fastest.value)


def _given_up(question: _Question, wanted: FloatArray, weight: FloatArray) -> list[int]:
    """Step 2: sets to 0 in `wanted` what cannot be kept; the jobs, in the order of giving up."""
    given_up: list[int] = []
    while wanted.any():
        part, price = question.fit(wanted)
        if part >= 1 - PRECISION:
            break
        given_up.append(int(np.argmax(np.where(wanted > 0, price / weight, -1.0))))
        wanted[given_up[-1]] = 0.0
    return given_up


def _alone(needed: float) -> str:
    if not np.isfinite(needed):
        return "deadline cannot be met: it has passed"
    return f"deadline cannot be met: needs {needed:.1f}x the job's best rate"


def _beside_others(needed: float, fastest: float) -> str:
    if fastest <= PRECISION:
        return "deadline cannot be met: the other deadlines leave it no time"
    return f"deadline cannot be met: needs {needed / fastest:.1f}x the rate that the other deadlines leave it"
