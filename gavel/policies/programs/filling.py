"""Water filling along a target curve: raise its service as far as it goes, freeze who cannot rise, go on with the rest.

The answer is the lexicographic one of Gavel (OSDI '20, section 4.3) without its mixed-integer program: who is stuck is
read off the dual prices. At prices lam >= 0 of the service constraints, every valid allocation keeps lam . q <= bound:

1. aim at the curve's end and ask how far on the straight way there a valid allocation goes;
2. if it falls short, the prices of that answer bound the curve: aim at the last point within the bound, ask again;
3. at a point that is reached, a job with a positive price can rise in no valid allocation that keeps everybody else's
   target: it is frozen. A job without one can from now on use only entries of X without reduced cost, which caps it.

Step 2 never overshoots and ends at a corner of finitely many; step 3 freezes a job each time.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gavel.errors import SolveFailed
from gavel.policies.programs.program import Program, cvxpy
from gavel.policies.tiers.curves import Curve, Path
from gavel.types import FloatArray, IntArray

PRECISION = 1e-8  # relative to the service asked for
SLACK = 1e-8  # relative; what is held already may be missed by so little, or rounding would make it infeasible
LEAST_PRICE = 1e-6  # of prices that sum to about 1; the solver's zeros are below 1e-9
WHERE_NOTHING_IS_CUT = (
    30.0  # times the tolerance: prices so steep that their bound is the point itself, but for rounding
)
MOST_CUTS = 200
MOST_LEVELS_PER_JOB = 10


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """How far the way goes: `reach` along it, the prices of the jobs (n,), and which entries of X (v,) stay of use.

    `exact_reach` is the same without SLACK: no valid allocation goes further. `stuck` (n,): whose price is not zero.
    """

    reach: float
    exact_reach: float
    service: FloatArray
    prices: FloatArray
    stuck: FloatArray
    has_use: FloatArray


class Question(Protocol):
    """ "How far towards these targets?", compiled once and asked many times; n jobs, v usable entries of X."""

    @property
    def jobs(self) -> int:
        """n."""

    def within(self, workers: FloatArray | None) -> None:
        """Ask from now on within `workers` (m,) of each type; None: the whole cluster."""

    def ask(self, service: FloatArray, way: FloatArray) -> Answer:
        """How far along `way` (n,) every job can rise together from `service` (n,); raises SolveFailed."""

    def best(self, has_use: FloatArray | None = None) -> FloatArray:
        """The most service each job can have, (n,), all its time on its best entry of those that are of use (v,)."""


class Stated:
    """The question over one cvxpy program.

    The program's solver has to be a simplex method (highs): the prices of an interior point are never quite zero, and
    once jobs are frozen there is no interior.
    """

    def __init__(self, program: Program) -> None:
        cp = cvxpy()

        assert program.solver == "highs", "water filling needs the exact prices of a simplex method"
        self._program = program
        self.jobs = len(program.given.job_ids)
        self._rates = program.rates.multiply(program.service_per_step[:, None]).tocsc()  # service per entry
        self._start, self._way = cp.Parameter(self.jobs, nonneg=True), cp.Parameter(self.jobs, nonneg=True)
        self._reach = cp.Variable()
        self._at_least = program.service >= self._start + cp.multiply(self._way, self._reach)
        self._question = program.over_valid(cp.Maximize(self._reach), [self._at_least])

    def within(self, workers: FloatArray | None) -> None:
        """Ask from now on within `workers` (m,) of each type; None: the whole cluster."""
        limits = self._program.limits.copy()
        if workers is not None:
            limits[: len(workers)] = workers
        self._program.capacity.value = limits

    def ask(self, service: FloatArray, way: FloatArray) -> Answer:
        """How far along `way` every job can rise together from `service`."""
        program = self._program
        self._start.value, self._way.value = service * (1 - SLACK), way
        program.run(self._question)
        reach = float(self._reach.value)
        prices = np.maximum(0.0, self._at_least.dual_value)
        paid = program.times.T @ np.maximum(0.0, program.time_limit.dual_value)
        paid = paid + program.held.T @ np.maximum(0.0, program.capacity_limit.dual_value)
        return Answer(
            reach=reach,
            exact_reach=reach - SLACK * float(prices @ service),
            service=self._rates @ program.x.value / program.overuse(),
            prices=prices,
            stuck=prices,
            has_use=(paid - self._rates.T @ prices <= LEAST_PRICE * float(paid.max())).astype(float),
        )

    def best(self, has_use: FloatArray | None = None) -> FloatArray:
        """The most service each job can have, (n,), all its time on its best entry of those that are of use (v,)."""
        rates = self._rates if has_use is None else self._rates.multiply(has_use)
        best: FloatArray = rates.max(axis=1).toarray().ravel()
        return best


class Filling:
    """Water filling over one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.dual_gap = 0.0  # the most, in service, by which a point taken as reached was missed

    def fill(
        self, curve: Curve, *, start: FloatArray | None = None, workers: FloatArray | None = None, whole: bool = True
    ) -> FloatArray:
        """Service of each job (n,) after filling along `curve` from `start` (n,) within `workers` (m,) of each type.

        Defaults: from zero, within the whole cluster. With `whole` False it stops at the first job that is stuck.
        The question then holds an allocation that gives at least this service. Raises SolveFailed.
        """
        question = self._question
        question.within(workers)
        service = np.zeros(question.jobs) if start is None else start
        cap = np.maximum(service, question.best())
        question.ask(service, np.ones_like(service))  # it holds a valid answer even if nobody can rise
        for _ in range(MOST_LEVELS_PER_JOB * len(service) + MOST_CUTS):
            path = curve.path(service, cap)
            if float((path.targets[-1] - path.targets[0]).max()) <= _tolerance(service):
                return service
            service, answer = self._raise(path, service)
            if answer is not None:
                stuck = answer.stuck * (1.0 + cap) > LEAST_PRICE
                cap = np.where(stuck, service, np.maximum(service, np.minimum(cap, question.best(answer.has_use))))
                if not whole:
                    return service
        raise SolveFailed("water filling did not come to an end")

    def _raise(self, path: Path, service: FloatArray) -> tuple[FloatArray, Answer | None]:
        """Steps 1 and 2: the last point of the path that is reached, and the answer that says why no further.

        No answer if valid allocations go on straight beyond that point: then nobody is stuck there.
        """
        sought = float(path.service[-1])
        for _ in range(MOST_CUTS):
            way = np.zeros_like(service)
            way[path.jobs] = path.at(np.asarray([sought]))[0] - path.targets[0]
            length = float(way.max())
            if length <= _tolerance(service):
                return self._step(path, service)
            answer = self._question.ask(service, way / length)
            bound = path.last_within(answer.prices[path.jobs], answer.reach)
            missed = length - answer.reach
            if missed <= _tolerance(service + way) * (1.0 if bound < sought else WHERE_NOTHING_IS_CUT):
                self.dual_gap = max(self.dual_gap, missed)
                return self._reached(service, way / length, length, answer)
            sought = bound
        raise SolveFailed(f"water filling found no reachable point within {MOST_CUTS} cuts")

    def _step(self, path: Path, service: FloatArray) -> tuple[FloatArray, Answer | None]:
        """The bound leaves no way worth speaking of: go towards the first corner that is one, to see who is stuck."""
        ahead = (path.targets - path.targets[0]).max(axis=1)
        corner = int(np.argmax(ahead > _tolerance(service)))
        way = np.zeros_like(service)
        way[path.jobs] = (path.targets[corner] - path.targets[0]) / ahead[corner]
        return self._reached(service, way, float(ahead[corner]), self._question.ask(service, way))

    def _reached(
        self, service: FloatArray, way: FloatArray, length: float, answer: Answer
    ) -> tuple[FloatArray, Answer | None]:
        """The service `length` along `way`, or as far as the answer goes; the answer if it goes no further."""
        target = service + way * min(length, max(0.0, answer.reach))
        reached = np.maximum(service, np.minimum(target, answer.service))
        return reached, answer if answer.exact_reach <= length + _tolerance(target) else None


def _tolerance(service: FloatArray) -> float:
    return PRECISION * (1.0 + float(service.max(initial=0.0)))


def jobs_by(order: FloatArray) -> IntArray:
    """Rows sorted by `order` (n,), ascending; equals in order of arrival."""
    return np.argsort(order, kind="stable")
