"""Predicts when a job ends, for explanations, deadlines and stored predictions alike.

A job that is in the newest round is predicted by that round's forecast. Any other (it was submitted since, or no plan
moves it) is added to the fluid model with all present jobs: `state_of_now`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.cluster.nodes import usable
from gavel.mechanism.explaining.explanation import State, Why, blocked
from gavel.mechanism.explaining.forecast import Errors, Forecast, expected_finish, expected_start, log_speed_error
from gavel.mechanism.explaining.forecast import forecast as forecast_of
from gavel.mechanism.jobs.admission_holds import held
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.planning.own_rates import own_estimates, reliable_rates
from gavel.mechanism.planning.problem import as_known, problem_from, schedulable
from gavel.ports import ThroughputEstimator
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Certificate,
    Expected,
    FloatArray,
    Job,
    JobId,
    JobState,
    RoundRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knowledge:
    """What a prediction is made from. `of_round`: the newest round's forecast; `of_now`: that of `state_of_now`.

    Both are computed when they are first needed. `errors`: how far off earlier answers were, if enough jobs have ended.
    """

    state: State
    estimator: ThroughputEstimator
    errors: Errors | None
    of_round: Callable[[RoundRecord], Forecast]
    of_now: Callable[[], "tuple[Now, Forecast]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """When an unfinished job ends, as things stand.

    `finish` None: nothing says so, or somebody has to act first (`blocked`). `earliest_at_s`: alone on its fastest
    type, `fastest`, from now on; None: no type holds it. Both are None while nobody has said how many steps it has.
    `is_speed_known`: well enough for a promise, on some type.
    """

    finish: Expected | None
    earliest_at_s: float | None
    fastest: AcceleratorType | None
    is_speed_known: bool
    blocked: Why | None


def job_end(job: Job, knowledge: Knowledge) -> JobEnd:
    """Return when the job is expected to end, with an interval that should hold nine times in ten."""
    state = knowledge.state
    (seen,) = ruled_out([job], state.infeasible)
    estimates = own_estimates(job, knowledge.estimator, Feasibility(state.cluster).types_of(seen.spec))
    fastest = max(estimates, key=lambda name: estimates[name].steps_per_s, default=None)
    total_steps, earliest_at_s = job.total_steps, None
    if fastest is not None and total_steps is not None:
        left = max(0, total_steps - job.steps_so_far)
        earliest_at_s = state.now_s + left / estimates[fastest].steps_per_s
    reason = blocked(job, state)
    finish = None
    if reason is None and total_steps is not None:
        forecast, _ = _basis(job, knowledge)
        finish = expected_finish(forecast, job.id, knowledge.errors, log_speed_error(estimates.values()))
    if finish is not None and earliest_at_s is not None:
        finish = _not_before(finish, earliest_at_s, state.now_s)
    return JobEnd(
        finish=finish,
        earliest_at_s=earliest_at_s,
        fastest=fastest,
        is_speed_known=bool(reliable_rates(estimates)),
        blocked=reason,
    )


def size_assumed(job: Job) -> str:
    """Return for which size of an elastic job its end is expected, in words; empty for a rigid one."""
    if not job.spec.is_elastic:
        return ""
    workers = f"{job.spec.scale_factor} worker{'s' if job.spec.scale_factor > 1 else ''}"
    return f"for {workers}, the size in force; rounds may choose another"


def job_start(job: Job, knowledge: Knowledge) -> Expected | None:
    """Return when a waiting job is given workers next; None for one that runs, or if nothing says so."""
    if job.state is not JobState.QUEUED or blocked(job, knowledge.state) is not None:
        return None
    forecast, record = _basis(job, knowledge)
    return None if record is None else expected_start(forecast, record, job.id)


def _basis(job: Job, knowledge: Knowledge) -> tuple[Forecast, RoundRecord | None]:
    """The forecast that knows the job, and the newest round with the problem and the allocation behind it."""
    record = knowledge.state.record
    if record is not None and job.id in (forecast := knowledge.of_round(record)).row_of:
        return forecast, record
    now, forecast = knowledge.of_now()
    return forecast, record and replace(record, problem=now.problem, allocation=now.allocation)


def _not_before(finish: Expected, earliest_at_s: float, now_s: float) -> Expected:
    """The end, not before the job could end alone on its fastest type: the forecast is as old as its round."""
    at_s = max(finish.at_s, earliest_at_s)
    return Expected(at_s=at_s, low_s=max(now_s, finish.low_s), high_s=max(at_s, finish.high_s))


# --- jobs that the newest round does not know ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Now:
    """All jobs that may run now, and what the newest round gives them. It gives nothing to `newcomers` yet."""

    problem: AllocationProblem
    allocation: Allocation
    newcomers: frozenset[JobId]

    def forecast(self) -> Forecast:
        """Return when these jobs start and end in the fluid."""
        return forecast_of(self.problem, self.allocation, self.newcomers)


def state_of_now(state: State, estimator: ThroughputEstimator, *, policy: str, round_duration_s: float) -> Now:
    """Return the problem of all jobs that may run now, with the newest round's allocation.

    `policy` is used if no round was decided yet. A lost job counts as if it were to start again at once.
    """
    holds = held(state.jobs.values(), tiers=state.tiers, usage=state.usage, now_s=state.now_s)
    there = ruled_out((job for job in schedulable(state.jobs.values(), inf) if job.id not in holds), state.infeasible)
    jobs = [as_known(job, estimator) for job in there if job.spec.tier in state.tiers]
    problem = problem_from(
        jobs,
        feasibility=Feasibility(usable(state.cluster, state.nodes)),
        tiers=state.tiers,
        matrix=estimator.matrix,
        now_s=state.now_s,
        round_duration_s=round_duration_s,
        pair_rates=None,
        warm_start={},
    )
    return _in_force(state.record, problem, policy)


def _in_force(record: RoundRecord | None, problem: AllocationProblem, policy: str) -> Now:
    """The newest round's allocation of the jobs of the problem; who holds a lease beside it has its time there."""
    rows: dict[tuple[JobId, ...], FloatArray] = dict(_shared(record, problem)) if record else {}
    covered = {job_id for members in rows for job_id in members}
    leased = {lease.job_id: lease.accelerator_type for lease in record.plan.leases} if record else {}
    types = problem.accelerator_types
    others = [job_id for job_id in problem.job_ids if job_id not in covered]
    rows |= {(each,): np.array([name == leased.get(each) for name in types], dtype=np.float64) for each in others}
    allocation = Allocation(
        combinations=tuple(rows),
        accelerator_types=types,
        time_fraction=np.array(list(rows.values())).reshape(len(rows), len(types)),
        certificate=Certificate(primal_violation=0.0),
        policy=record.allocation.policy if record else policy,
        solver="",
    )
    return Now(problem=problem, allocation=allocation, newcomers=frozenset(others) - leased.keys())


def _shared(record: RoundRecord, problem: AllocationProblem) -> Iterator[tuple[tuple[JobId, ...], FloatArray]]:
    """Combinations of the round's allocation whose jobs are all there, with their time on the types of now."""
    there, types = set(problem.job_ids), record.allocation.accelerator_types
    columns = [types.index(name) if name in types else -1 for name in problem.accelerator_types]
    fractions = np.pad(record.allocation.time_fraction, ((0, 0), (0, 1)))[:, columns]
    for members, row in zip(record.allocation.combinations, fractions, strict=True):
        if there.issuperset(members):
            yield members, row
