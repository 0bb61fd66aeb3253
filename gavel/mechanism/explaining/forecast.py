"""When jobs will start and end, from the newest round: a fluid model in closed steps, and learned intervals.

The fluid: every job receives service (docs of `AllocationProblem`: q = s a / e) at a steady rate instead of in rounds,
and what a job leaves when it ends goes to the others, first by the weights of tiers, then to users alike where the
tier orders the jobs of each, then by that order or the jobs' weights, nobody above what its fastest type gives. Where
jobs are to end soonest, one that is late, or becomes so, has its isolated rate first, as the policy gives it. It
begins at the rates of the allocation in force. It knows neither jobs that come later nor what rounds, moves and ends
within a round cost; the interval does: until enough jobs have ended it reaches from "alone on the fastest type" to "the
share never grows", then it is taken from how far earlier predictions were off (split conformal
prediction: Lei et al., JASA 2018, section 2.2).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gavel import finish_time
from gavel.mechanism.planning.own_rates import own_estimates
from gavel.mechanism.planning.planner import time_per_job
from gavel.ports import ThroughputEstimate, ThroughputEstimator
from gavel.types import (
    Allocation,
    AllocationProblem,
    BoolArray,
    Expected,
    FloatArray,
    IntArray,
    Job,
    JobId,
    Prediction,
    RoundRecord,
    shares_by_weight,
)
from gavel.types.tier_objectives import TIERED, chosen_by, in_force

MOST_STEPS = 48  # of a forecast, however many jobs end in it
ROUNDING = 2.0**-50  # so that amounts never sum to more than there is
OUTCOMES_MIN = 30  # fewer completed predictions are not enough to learn an interval from
COVERAGE = 0.9
QUANTILE = 1.645  # of a normal distribution: nine in ten are within so many standard deviations
NOTHING_KNOWN = 1.0  # of log(steps/s), of a kind that no table has
TARGET_FRACTION_MIN = 1e-6
LATE_SLACK = 1e-9  # relative: a job that has just become late is late, whatever rounding says
OWN_PACE = (0.25, 4.0)  # how far a job's pace in the allocation is believed to differ from that of the fluid
KEEP_LATE_JOBS_GOING = ("speed", "fast")  # of these orders those in which a late job has its isolated rate first
IN_ORDER = ("fifo", "shortest_job_first", "throughput", "speed", "fast")  # orders that serve one job after the other


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fluid:
    """What jobs need and may have, rows as in the problem. `work` and `most` are in service: seconds, and rate."""

    work: FloatArray  # (n,) left to do
    most: FloatArray  # (n,) on its fastest type
    given: FloatArray  # (n,) by the allocation in force
    tier: IntArray  # (n,) the group that the job shares with
    rows: tuple[IntArray, ...]  # (k,) the rows of each group
    weight: FloatArray  # (n,)
    tier_weight: FloatArray  # (k,)
    guarantee: FloatArray  # (k,)
    orders: tuple[IntArray | None, ...]  # (k,) rows in order of service; None: by weight
    isolated: FloatArray  # (n,) service at the isolated rate, where a late job keeps that; 0 elsewhere
    isolated_s: FloatArray  # (n,) submission to end at that rate
    deficit_s: FloatArray  # (n,) how far the job is behind it now
    total: float  # service there is to give


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Seconds from `made_at_s`, (n,): first and last service of each job in the fluid, and two bounds; +inf: never.

    `made_at_s` is the instant of the problem, `round_s` the length of its rounds.
    """

    made_at_s: float
    round_s: float
    start_s: FloatArray
    finish_s: FloatArray
    alone_s: FloatArray  # alone on its fastest type
    steady_s: FloatArray  # at the pace of now, for good
    row_of: Mapping[JobId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Quantiles of (what happened / what was predicted), seconds from the prediction on; of finishes that ended."""

    low: float
    high: float


def forecast(
    problem: AllocationProblem, allocation: Allocation, newcomers: Collection[JobId] = frozenset()
) -> Forecast:
    """Return when each job of the problem starts and ends in the fluid, which begins at the rates of the allocation.

    `newcomers` are jobs that came after the allocation was solved: they get no time in it, so their pace is not taken
    from it.
    """
    fluid = _fluid(problem, allocation)
    is_new = np.array([job_id in newcomers for job_id in problem.job_ids], dtype=bool)
    start_s, finish_s = _service_times(fluid, is_new)
    return Forecast(
        made_at_s=problem.now_s,
        round_s=problem.round_duration_s,
        start_s=start_s,
        finish_s=finish_s,
        alone_s=_over(fluid.work, fluid.most),
        steady_s=_over(fluid.work, fluid.given),
        row_of={job_id: row for row, job_id in enumerate(problem.job_ids)},
    )


def log_speed_error(estimates: Iterable[ThroughputEstimate]) -> float:
    """Return one standard deviation of log(steps/s) of a job: the largest among its estimates, one per type."""
    return max((each.relative_error for each in estimates), default=NOTHING_KNOWN)


def expected_finish(times: Forecast, job_id: JobId, errors: Errors | None, speed_error: float = 0.0) -> Expected | None:
    """Return when the job should end, its speed known to within `speed_error` (see `log_speed_error`).

    None if the job is not in the forecast or never ends in it.
    """
    row = times.row_of.get(job_id)
    if row is None or not np.isfinite(times.finish_s[row]):
        return None
    left_s = float(times.finish_s[row])
    if errors is None:
        alone_s, steady_s = float(times.alone_s[row]), float(times.steady_s[row])
        low_s = min(alone_s, left_s)
        high_s = max(left_s, steady_s if np.isfinite(steady_s) else 2 * left_s) + 2 * times.round_s
    else:
        low_s, high_s = left_s * min(1.0, errors.low), left_s * max(1.0, errors.high)
    now_s, factor = times.made_at_s, math.exp(QUANTILE * speed_error)
    return Expected(at_s=now_s + left_s, low_s=now_s + low_s / factor, high_s=now_s + high_s * factor)


def expected_start(times: Forecast, record: RoundRecord, job_id: JobId) -> Expected | None:
    """Return when a waiting job should get workers next; None if the job is not in the forecast or never starts in it.

    A job that lags L rounds with a target fraction x gets workers within (1 - L) / x rounds (the window of Pfair:
    Baruah et al., Algorithmica 1996), or earlier if a job ends. A job without a target fraction gets them with its
    first service in the fluid.
    """
    row = times.row_of.get(job_id)
    if row is None:
        return None
    problem, plan = record.problem, record.plan
    if any(lease.job_id == job_id for lease in plan.leases):
        return Expected(at_s=plan.starts_at_s, low_s=problem.now_s, high_s=plan.ends_at_s)
    target_fraction = float(time_per_job(record.allocation, problem)[row].sum())
    if target_fraction > TARGET_FRACTION_MIN:
        lag = max((rounds for (each, _), rounds in record.lag_rounds.items() if each == job_id), default=0.0)
        window_s = max(1.0, (1.0 - lag) / target_fraction) * plan.duration_s
        finish_s = float(times.finish_s[row])
        last_s = max(plan.ends_at_s, min(plan.starts_at_s + window_s, problem.now_s + finish_s))
        middle_s = (plan.ends_at_s + last_s) / 2
        return Expected(at_s=middle_s, low_s=problem.now_s, high_s=last_s + plan.duration_s)
    if not np.isfinite(times.start_s[row]):
        return None
    at_s = max(plan.ends_at_s, problem.now_s + float(times.start_s[row]))
    return Expected(at_s=at_s, low_s=problem.now_s, high_s=at_s + (at_s - problem.now_s) + plan.duration_s)


def predictions(
    record: RoundRecord, new: Sequence[Job], estimator: ThroughputEstimator, errors: Errors | None
) -> tuple[Prediction, ...]:
    """Return when the `new` jobs should start and end, if their length is known and they end in `record`'s forecast."""
    new = [job for job in new if job.total_steps is not None]
    if not new:
        return ()
    times = forecast(record.problem, record.allocation)
    made, problem = [], record.problem
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    for job in new:
        rates = problem.throughput_steps_per_s[row_of[job.id], 0]
        types = [name for name, rate in zip(problem.accelerator_types, rates, strict=True) if rate > 0]
        speed_error = log_speed_error(own_estimates(job, estimator, types).values())
        finish = expected_finish(times, job.id, errors, speed_error)
        if finish is not None:
            start = expected_start(times, record, job.id) if job.started_at_s is None else None
            made.append(Prediction(job_id=job.id, made_at_s=record.problem.now_s, finish=finish, start=start))
    return tuple(made)


def errors_of(past: Iterable[Prediction]) -> Errors | None:
    """Return the quantiles of (actual / predicted) time to the end; None until OUTCOMES_MIN jobs have completed."""
    ratios = sorted(
        max(1e-9, each.finished_at_s - each.made_at_s) / (each.finish.at_s - each.made_at_s)
        for each in past
        if each.finished_at_s is not None and each.finish.at_s > each.made_at_s
    )
    count = len(ratios)
    if count < OUTCOMES_MIN:
        return None
    last = min(count, int(np.ceil((count + 1) * (1 + COVERAGE) / 2)))  # the finite-sample rank of the quantile
    return Errors(low=ratios[count - last], high=ratios[last - 1])


# --- the fluid --------------------------------------------------------------------------------------------------


def _fluid(problem: AllocationProblem, allocation: Allocation) -> Fluid:
    """Service as in docs/policies.md: of e_m, the equal-share rate; 0 for a job that no type can hold."""
    count = len(problem.job_ids)
    rates, workers = problem.throughput_steps_per_s[:count, 0], problem.capacity_workers.astype(np.float64)
    equal = rates @ workers / max(1.0, workers.sum())
    per_step = np.divide(problem.scale_factor, equal, out=np.zeros(count), where=equal > 0)
    given = (time_per_job(allocation, problem) * rates).sum(axis=1) * per_step
    most, work = rates.max(axis=1, initial=0.0) * per_step, problem.steps_remaining * per_step
    group, groups = _groups(problem, allocation)
    is_kept = np.array([each.objective in KEEP_LATE_JOBS_GOING for each in groups], dtype=bool)[group]
    share = (equal > 0) / max(1, int((equal > 0).sum()))
    workers_of, scale, choice = problem.capacity_workers, problem.scale_factor, problem.configurations
    isolated = finish_time.isolated_rate(rates, workers_of, scale, share, choice) * per_step
    rows = tuple(np.flatnonzero(group == index) for index in range(len(groups)))
    return Fluid(
        work=work,
        most=most,
        given=given,
        tier=group,
        rows=rows,
        weight=problem.weight,
        tier_weight=np.array([each.weight for each in groups]),
        guarantee=np.array([each.guarantee for each in groups]),
        orders=tuple(_order(each.objective, of_group, work, most) for each, of_group in zip(groups, rows, strict=True)),
        total=max(float(given.sum()), float(workers.sum())),
        isolated=np.minimum(isolated, most) * is_kept,  # an elastic job's may be that of a larger size
        isolated_s=problem.isolated_time_s + _over(work, isolated),
        deficit_s=problem.age_s - problem.isolated_time_s,
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Jobs that share what they are given by one objective."""

    objective: str
    weight: float
    guarantee: float


def _groups(problem: AllocationProblem, allocation: Allocation) -> tuple[IntArray, list[_Group]]:
    """The group of each job, (n,): its tier, or one for all where the policy knows no tiers."""
    if allocation.policy.partition("?")[0] != TIERED:
        return np.zeros(len(problem.job_ids), dtype=np.int64), [_Group(allocation.policy, 1.0, 0.0)]
    problem = replace(problem, tiers=in_force(problem.tiers, chosen_by(allocation.policy)))
    used = {problem.tiers[index].name for index in set(problem.tier_of_job.tolist())}
    weights = shares_by_weight({tier.name: tier for tier in problem.tiers}, used)
    return _by_user(problem, weights)


def _by_user(problem: AllocationProblem, weights: Mapping[str, float]) -> tuple[IntArray, list[_Group]]:
    """As `_groups`, where users of a tier that orders the jobs of each have an equal part of it."""
    ordered = [tier.objective == "fairness" and tier.within_user in IN_ORDER for tier in problem.tiers]
    keys = [
        (tier, user if ordered[tier] else "")
        for tier, user in zip(problem.tier_of_job.tolist(), problem.users, strict=True)
    ]
    index = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    parts = Counter(tier for tier, _ in index)
    groups = []
    for place, _ in index:
        tier = problem.tiers[place]
        order = tier.within_user if ordered[place] else tier.objective
        groups.append(_Group(order, weights[tier.name] / parts[place], tier.guarantee / parts[place]))
    return np.asarray([index[key] for key in keys], dtype=np.int64), groups


def _order(objective: str, rows: IntArray, work: FloatArray, most: FloatArray) -> IntArray | None:
    if objective not in IN_ORDER:
        return None
    keys = {"fifo": rows, "throughput": -most[rows]}
    return rows[np.argsort(keys.get(objective, _over(work[rows], most[rows])), kind="stable")]


def _service_times(fluid: Fluid, is_new: BoolArray) -> tuple[FloatArray, FloatArray]:
    """First and last service of each job, (n,) seconds from now."""
    left, now_s = fluid.work.copy(), 0.0
    start_s, finish_s = np.full(len(left), np.inf), np.full(len(left), np.inf)
    alive = (left > 0) & (fluid.most > 0)
    deficit_s = fluid.deficit_s.copy()
    pace = _own_pace(fluid, alive & ~is_new)
    for step in range(MOST_STEPS):
        least = np.where(alive, _of_late_jobs(fluid, deficit_s), 0.0)
        rate = np.minimum(_shared(fluid, alive, least) * pace, fluid.most)
        start_s[alive & (rate > 0) & np.isinf(start_s)] = now_s
        end_s = np.where(alive, _over(left, rate), np.inf)
        ending = int(np.isfinite(end_s).sum())
        if not ending:
            break
        share = -(-int(alive.sum()) // (MOST_STEPS - step))  # so many soonest at once, and all in the last step
        lasts_s = float(np.sort(end_s)[min(ending, share) - 1])
        grows = np.where(alive & (fluid.isolated > 0), 1 - _over(rate, fluid.isolated), 0.0)
        if step < MOST_STEPS // 2:
            lasts_s = min(lasts_s, _soonest_late_s(fluid, deficit_s, np.where(least > 0, 0.0, grows)))
        deficit_s += grows * lasts_s
        over = end_s <= lasts_s
        finish_s[over] = now_s + end_s[over]
        left = np.where(alive, np.maximum(0.0, left - rate * lasts_s), 0.0)
        alive &= ~over
        now_s += lasts_s
    return start_s, finish_s


def _of_late_jobs(fluid: Fluid, deficit_s: FloatArray) -> FloatArray:
    """Service of each job at its isolated rate, (n,), 0 for those that are not late."""
    late = (fluid.isolated > 0) & finish_time.is_late(deficit_s * (1 + LATE_SLACK), fluid.isolated_s)
    return np.where(late, np.minimum(fluid.isolated, fluid.most), 0.0)


def _soonest_late_s(fluid: Fluid, deficit_s: FloatArray, grows: FloatArray) -> float:
    """Return in how many seconds the next job becomes late, while deficits grow by `grows` (n,) a second; or +inf."""
    missing_s = (finish_time.LATE_RHO - 1) * fluid.isolated_s - deficit_s
    return float(_over(np.maximum(0.0, missing_s), grows).min(initial=np.inf))


def _own_pace(fluid: Fluid, alive: np.ndarray) -> FloatArray:
    """How much faster than in the fluid each job is in the allocation in force, (n,); 1 for one that waits."""
    shared = _shared(fluid, alive, np.where(alive, _of_late_jobs(fluid, fluid.deficit_s), 0.0))
    is_known = (shared > 0) & (fluid.given > 0)
    return np.where(is_known, np.clip(_over(fluid.given, shared), *OWN_PACE), 1.0)


def _shared(fluid: Fluid, alive: np.ndarray, least: FloatArray) -> FloatArray:
    """Service of each job while these are there, (n,): over tiers by weight above their guarantees, then inside.

    Of what a group has in order each job has its `least` (n,) first.
    """
    most = np.where(alive, fluid.most, 0.0)
    wanted = np.bincount(fluid.tier, most, minlength=len(fluid.tier_weight)).astype(np.float64)
    floors = np.minimum(wanted, fluid.guarantee * fluid.total)
    of_tier = _level(fluid.total, fluid.tier_weight, floors, wanted)
    shared = np.zeros(len(most))
    for index, (rows, order) in enumerate(zip(fluid.rows, fluid.orders, strict=True)):
        if order is None:
            shared[rows] = _level(float(of_tier[index]), fluid.weight[rows], np.zeros(len(rows)), most[rows])
        else:
            first = least[order] * min(1.0, float(of_tier[index]) / max(float(least[order].sum()), 1e-300))
            more = most[order] - first
            left = float(of_tier[index]) - float(first.sum())
            shared[order] = first + np.clip(left - (np.cumsum(more) - more), 0.0, more)
    return shared


def _level(total: float, weight: FloatArray, least: FloatArray, most: FloatArray) -> FloatArray:
    """Amounts in proportion to the weights, each within its bounds, that sum to `total`; all to `most` if that fits."""
    if most.sum() <= total:
        return most
    # Between the levels at which an amount leaves its lower bound or reaches its upper one, the sum is linear.
    levels = np.concatenate([least / weight, most / weight])
    order = np.argsort(levels, kind="stable")
    levels, slopes = levels[order], np.concatenate([weight, -weight])[order].cumsum()
    sums = least.sum() + np.concatenate([[0.0], (slopes[:-1] * np.diff(levels)).cumsum()])
    place = max(0, int(np.searchsorted(sums, total, side="right")) - 1)
    level = levels[place] + max(0.0, total - sums[place]) / slopes[place] if slopes[place] > 0 else levels[place]
    amounts: FloatArray = np.clip(level * (1 - ROUNDING) * weight, least, most)
    return amounts


def _over(amount: FloatArray, rate: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(amount, rate, out=np.full(len(amount), np.inf), where=rate > 0)
    return ratio
