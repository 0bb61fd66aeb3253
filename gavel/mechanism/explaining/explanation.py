"""Why a job does not run, from the newest round and the stored job: the first reason that holds.

docs/explain.md says what each reason means and what helps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gavel.mechanism.cluster.configured import regions_of
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.cluster.unmet_needs import unmet_need
from gavel.mechanism.explaining.durations import lasting
from gavel.mechanism.explaining.waiting import Binding, Line, Shortage, counted, is_ahead, starting, workers_of
from gavel.mechanism.jobs.admission_holds import held, month_too_short
from gavel.mechanism.jobs.infeasibility import marks_of, ruled_out
from gavel.mechanism.jobs.sizes import variants_of
from gavel.types import (
    AcceleratorType,
    Cluster,
    InfeasibleType,
    Job,
    JobId,
    JobState,
    Lease,
    NodeStatus,
    Reason,
    RoundRecord,
    Tier,
    Usage,
)

OF_THE_TICK = (Reason.LOW_DISK, Reason.DISK_BUDGET_EXCEEDED, Reason.NON_PREEMPTIBLE_LIMIT)
"""Holds that only the scheduler sees, in each tick; it keeps them with the job."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """What an explanation is made from. `jobs` are all unfinished ones; `record` None: no round was decided yet."""

    jobs: Mapping[JobId, Job]
    tiers: Mapping[str, Tier]
    cluster: Cluster
    record: RoundRecord | None
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    infeasible: tuple[InfeasibleType, ...] = ()
    now_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """An explanation of a job's state.

    `target_fraction` and `received` are fractions of time by type: of the allocation, and since the submission.
    `lag_rounds`: on the type where it lags most. `position` counts from 1 among the jobs of the tier that wait, the
    largest lag first; None for a job that does not wait there. `would_unblock` are sentences; `shortage` is the one of
    the message that says which workers it waits for, empty if it waits for none.
    """

    code: Reason
    message: str
    binding: Binding | None = None
    target_fraction: Mapping[AcceleratorType, float] = field(default_factory=dict)
    received: Mapping[AcceleratorType, float] = field(default_factory=dict)
    lag_rounds: float = 0.0
    position: int | None = None
    would_unblock: tuple[str, ...] = ()
    shortage: str = ""

    @property
    def jobs_ahead(self) -> int:
        """The number of jobs of the tier that come before it."""
        return 0 if self.position is None else self.position - 1


def explain(job: Job, state: State) -> Why:
    """Return the first reason that holds, with figures, and what would change it."""
    explanation = blocked(job, state) or _starts_again(job, state) or _without_progress(job, _in_round(job, state))
    fix = explanation.code.fix(job.id)
    marks = () if job.state.is_terminal else tuple(map(_of_mark, marks_of(job, state.infeasible)))
    helps = (*explanation.would_unblock, *((fix,) if fix else ()), *marks)
    message = f"{explanation.message}{_of_sizes(job)}{_of_partner(job, state)}"
    return replace(explanation, message=message, received=_received(job, state), would_unblock=helps)


def _of_sizes(job: Job) -> str:
    """The size in force of an elastic job, and those that it may have; empty for others, and at the end."""
    if not job.spec.is_elastic or job.state.is_terminal:
        return ""
    is_running, sizes = job.state is JobState.LEASED, ", ".join(map(str, job.spec.sizes))
    verb = "has" if is_running else "would have"
    return f" Its gang {verb} {counted(job.spec.scale_factor, 'worker')}, of the sizes {sizes}."


def _of_partner(job: Job, state: State) -> str:
    """Which session a running job is beside on its accelerators, or who is beside a session; empty for all others.

    A job of another user has no name here.
    """
    leases = state.record.plan.leases if state.record and job.state is JobState.LEASED else ()
    pair = next((lease.combination for lease in leases if lease.job_id == job.id), ())
    other = next((state.jobs[each] for each in pair if each != job.id and each in state.jobs), None)
    if other is None or not (job.spec.is_interactive or other.spec.is_interactive):
        return ""
    what = "session" if other.spec.is_interactive else "training"
    name = f"{what} {other.id}" if other.spec.user == job.spec.user else f"a {what} of another user"
    if job.spec.is_interactive:
        return f" It shares its accelerators with {name}."
    return f" It runs beside {name}, on the same accelerators, where it would wait otherwise."


def blocked(job: Job, state: State) -> Why | None:
    """Return why no round will serve the job until somebody does something; None: the rounds decide."""
    return _ended(job) or _never(job, state) or _held(job, state)


def _of_mark(mark: InfeasibleType) -> str:
    """A sentence on an accelerator type on which the job does not fit, and how to try it again."""
    day = datetime.fromtimestamp(mark.at_s, UTC).date().isoformat()
    seen = f"`{mark.evidence}` was seen of job {mark.job_id} on {day}"
    return f"It is not given {mark.accelerator_type}: {seen}; `gavel infeasible clear {mark.id}` allows it again."


# --- what no round can mend ---------------------------------------------------------------------------------------


def _ended(job: Job) -> Why | None:
    if job.state.is_terminal:
        return Why(code=job.reason, message=job.explanation)
    if job.cancel_requested:
        return Why(code=Reason.CANCELLING, message=Reason.CANCELLING.sentence)
    return None


def _never(job: Job, state: State) -> Why | None:
    return _misconfigured(job, state) or _away(job, state) or _without_type(job, state) or _beyond_quota(job, state)


def _misconfigured(job: Job, state: State) -> Why | None:
    spec = job.spec
    if spec.tier not in state.tiers:
        return Why(code=Reason.MISCONFIGURED, message=f"There is no tier {spec.tier}.")
    return None


def _away(job: Job, state: State) -> Why | None:
    """None of the regions in which the job may be has a node now, as where a link is lost."""
    named = job.spec.needs.regions
    if not named or not {*named}.isdisjoint(regions_of(state.cluster)):
        return None
    where = f"region {named[0]}" if len(named) == 1 else f"the regions {', '.join(named)}"
    then = "its gang runs to the end of its lease" if job.state is JobState.LEASED else "the job waits for one"
    return Why(code=Reason.REGION_AWAY, message=f"No node of {where} can be used now; {then}.")


def _without_type(job: Job, state: State) -> Why | None:
    capacity, size = state.cluster.capacity_workers(), job.spec.scale_factor
    if any(count >= size for count in capacity.values()):
        return _with_unmet_need(job, state)
    there = ", ".join(f"{name} {count}" for name, count in capacity.items()) or "no workers at all"
    most = max(capacity.values(), default=0)
    helps = [f"{counted(size - most, 'more worker')} of one accelerator type would be enough."]
    if most:
        helps.append(f"A scale factor of at most {most} would fit.")
    message = f"The gang needs {counted(size, 'worker')} of one accelerator type; there are {there}."
    return Why(code=Reason.NO_MATCHING_TYPE, message=message, would_unblock=tuple(helps))


def _with_unmet_need(job: Job, state: State) -> Why | None:
    """What the job needs is nowhere in the cluster, as it is now."""
    feasibility = Feasibility(state.cluster)
    unmet = unmet_need(job.spec, feasibility)
    if unmet is None:
        if any(feasibility.types_of(each.spec) for each in ruled_out(variants_of(job), state.infeasible)):
            return None
        return Why(code=Reason.DOES_NOT_FIT, message="The job fits none of the accelerator types that it may use.")
    message = f"{unmet.message[0].upper()}{unmet.message[1:]}."
    return Why(code=Reason.MISCONFIGURED, message=message, would_unblock=(unmet.would_do,))


def _beyond_quota(job: Job, state: State) -> Why | None:
    """The tier's month is too short for what is left of the job, however long it waits."""
    tier, record = state.tiers[job.spec.tier], state.record
    if record is None or job.id not in record.problem.job_ids:
        return None
    row = record.problem.job_ids.index(job.id)
    best = float(record.problem.throughput_steps_per_s[row, 0].max(initial=0.0))
    left = None if job.total_steps is None else max(0, job.total_steps - job.steps_done)
    message = month_too_short(tier, left, job.spec.scale_factor, best) if best > 0 and left is not None else None
    return Why(code=Reason.EXCEEDS_MAX_QUOTA, message=message) if message else None


# --- what somebody else has to do ---------------------------------------------------------------------------------


def _held(job: Job, state: State) -> Why | None:
    bare = replace(job, pause_requested=False, waits_for=())  # a spent limit goes before what the user requested
    for each in (bare, job):
        hold = held([each], tiers=state.tiers, usage=state.usage, now_s=state.now_s).get(job.id)
        if hold is not None:
            return Why(code=hold[0], message=hold[1])
    if job.state is JobState.QUEUED and job.reason in OF_THE_TICK:
        return Why(code=job.reason, message=job.explanation)
    return None


def _starts_again(job: Job, state: State) -> Why | None:
    if job.retry_at_s > state.now_s:
        message = job.message if job.reason is Reason.LOST else Reason.LOST.sentence
        left_s, losses = job.retry_at_s - state.now_s, counted(job.losses, "lost gang")
        again = f"The job starts again by itself in {lasting(left_s)}, after {losses}."
        return Why(code=Reason.LOST, message=message, would_unblock=(again,))
    return None


# --- what the round says ------------------------------------------------------------------------------------------


def _in_round(job: Job, state: State) -> Why:
    record = state.record
    if record is None or job.id not in record.problem.job_ids:
        return _unseen(job, state)
    shortage, row = Shortage(record, state.jobs), record.problem.job_ids.index(job.id)
    types, why = record.problem.accelerator_types, _running(job, record) or _waiting(job, state, record, shortage)
    return replace(
        why,
        target_fraction=dict(zip(types, shortage.target_fraction[row].tolist(), strict=True)),
        lag_rounds=max((rounds for (each, _), rounds in record.lag_rounds.items() if each == job.id), default=0.0),
    )


def _without_progress(job: Job, why: Why) -> Why:
    """What keeps the job from progress goes before what the round says, whether it waits or runs again."""
    if not job.no_progress:
        return why
    return replace(why, code=Reason.NO_PROGRESS, message=f"{job.no_progress} {why.message}".rstrip(), shortage="")


def _unseen(job: Job, state: State) -> Why:
    if job.state is JobState.LEASED:
        return Why(code=Reason.RUNNING, message=job.message or Reason.RUNNING.sentence)
    which = "first" if state.record is None else "next"
    message = f"The {which} round takes the job into account."
    place = Line(state.record).place_of(job, state.jobs.values())
    return Why(code=Reason.PENDING_EVALUATION, message=message, position=place)


def _running(job: Job, record: RoundRecord) -> Why | None:
    lease = next((each for each in record.plan.leases if each.job_id == job.id), None)
    if job.state is JobState.QUEUED:
        return None if lease is None else _served(job, lease)
    if lease is not None and lease.is_profiling:
        return Why(code=Reason.PROFILING, message=starting(lease)[1])
    message = f"The gang runs on {workers_of(lease)}." if lease else "The gang ends with the round in force."
    return Why(code=Reason.RUNNING, message=message)


def _served(job: Job, lease: Lease) -> Why:
    """A job whose gang has ended in the round keeps the reason that it got then."""
    code, message = starting(lease) if is_ahead(job, lease) else (job.reason, job.explanation)
    return Why(code=code, message=message)


def _waiting(job: Job, state: State, record: RoundRecord, shortage: Shortage) -> Why:
    row, place = record.problem.job_ids.index(job.id), Line(record).place_of(job, state.jobs.values())
    code, message = shortage.tell(job, row, place)
    binding = shortage.binding(row)
    helps = _would_unblock(job, state, record, binding) if binding else ()
    short = shortage.what_is_short(job, row)
    return Why(code=code, message=message, binding=binding, position=place, would_unblock=helps, shortage=short)


def _would_unblock(job: Job, state: State, record: RoundRecord, binding: Binding) -> tuple[str, ...]:
    missing = max(1, job.spec.scale_factor - max(0, binding.workers - binding.leased_workers))
    free = f"{counted(missing, 'more free worker')} of {binding.accelerator_type} would be enough."
    first = _next_to_end(state, record, binding.accelerator_type)
    return (free,) if first is None else (free, first)


def _next_to_end(state: State, record: RoundRecord, name: AcceleratorType) -> str | None:
    """A sentence that says when the first of the gangs on the type ends if it keeps running; None if unknown."""
    problem = record.problem
    if name not in problem.accelerator_types:
        return None
    column, row_of = problem.accelerator_types.index(name), {each: row for row, each in enumerate(problem.job_ids)}
    there = {lease.job_id for lease in record.plan.leases if lease.accelerator_type == name} & state.jobs.keys()
    of_length = {each for each in there if state.jobs[each].total_steps is not None}
    rates = [
        (row_of[each], problem.throughput_steps_per_s[row_of[each], 0, column]) for each in of_length & row_of.keys()
    ]
    ends_s = [float(problem.steps_remaining[row] / rate) for row, rate in rates if rate > 0]
    return f"The first gang on {name} ends in {lasting(min(ends_s))} of running." if ends_s else None


def _received(job: Job, state: State) -> dict[AcceleratorType, float]:
    end_s = job.finished_at_s if job.finished_at_s is not None else state.now_s
    age_s = end_s - job.submitted_at_s
    return {name: min(1.0, held_s / age_s) if age_s > 0 else 0.0 for name, held_s in sorted(job.received_s.items())}
