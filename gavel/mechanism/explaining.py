"""Why a job does not run, from the newest round and what is kept of the job: the first of the codes that holds.

The constraint that binds it is read off the policy's own prices (gavel/policies/fast), else off what the allocation
promises of each accelerator type. docs/explain.md says what each code means and what helps.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gavel.mechanism.holding import held
from gavel.mechanism.planner import time_per_job
from gavel.types import (
    AcceleratorType,
    Cluster,
    FloatArray,
    Job,
    JobId,
    JobState,
    Lease,
    RoundRecord,
    Tier,
    Usage,
)

SECONDS_PER_HOUR = 3600.0
PROMISED_MIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """What is known when somebody asks. `jobs` are all unfinished ones; `record` None: no round was decided yet."""

    jobs: Mapping[JobId, Job]
    tiers: Mapping[str, Tier]
    cluster: Cluster
    record: RoundRecord | None
    usage: Mapping[tuple[str, str], Usage] = field(default_factory=dict)
    now_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The accelerator type that a job waits for. `price` is relative to the dearest type, in [0, 1]; `source` says
    whether it is a price of the policy (`prices`) or the part of the type that is promised away (`load`).
    """

    accelerator_type: AcceleratorType
    price: float
    source: str
    leased_workers: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer. `owed` and `received` are fractions of time by type: promised by the allocation in force, and had
    since the submission; `owed_rounds` what the planner still owes. `position` counts from 1 among the jobs of the tier
    that wait, in the order of the rounds owed; None for a job that does not wait there.
    """

    code: str
    message: str
    binding: Binding | None = None
    owed: Mapping[AcceleratorType, float] = field(default_factory=dict)
    received: Mapping[AcceleratorType, float] = field(default_factory=dict)
    owed_rounds: float = 0.0
    position: int | None = None
    jobs_ahead: int = 0
    would_unblock: tuple[str, ...] = ()


def explain(job: Job, state: State) -> Why:
    """The first code that holds, with figures, and what would change it."""
    found = _ended(job) or _never(job, state) or _stopped(job, state)
    if found is not None:
        return replace(found, received=_received(job, state))
    record = state.record
    if record is None or job.id not in record.problem.job_ids:
        return replace(_unseen(job, record), received=_received(job, state))
    why = _running(job, record) or _waiting(job, state, record)
    row = record.problem.job_ids.index(job.id)
    owed = time_per_job(record.allocation, record.problem)[row].tolist()
    return replace(
        why,
        owed=dict(zip(record.problem.accelerator_types, owed, strict=True)),
        received=_received(job, state),
        owed_rounds=max((rounds for (each, _), rounds in record.owed_rounds.items() if each == job.id), default=0.0),
    )


# --- what no round can mend ---------------------------------------------------------------------------------------


def _ended(job: Job) -> Why | None:
    if job.state.is_terminal:
        return Why(code="Ended", message=f"{job.state.value}, {job.reason}: {job.message}".rstrip(": "))
    if job.cancel_requested:
        return Why(code="Cancelling", message="it was cancelled; it ends once its gang has stopped")
    return None


def _never(job: Job, state: State) -> Why | None:
    return _misconfigured(job, state) or _without_type(job, state) or _beyond_quota(job, state)


def _misconfigured(job: Job, state: State) -> Why | None:
    spec = job.spec
    if spec.tier not in state.tiers:
        return Why(code="Misconfigured", message=f"there is no tier {spec.tier}", would_unblock=("submit it again",))
    for what, wanted, there in (
        ("CPU cores", spec.cpu_cores * spec.scale_factor, [node.cpu_cores for node in state.cluster.nodes]),
        ("bytes of memory", spec.memory_bytes * spec.scale_factor, [node.memory_bytes for node in state.cluster.nodes]),
    ):
        if there and all(there) and wanted > sum(there):
            message = f"its gang of {spec.scale_factor} needs {wanted} {what}, all nodes together have {sum(there)}"
            helps = (f"submit it again with at most {sum(there) // spec.scale_factor} {what} each",)
            return Why(code="Misconfigured", message=message, would_unblock=helps)
    return None


def _without_type(job: Job, state: State) -> Why | None:
    capacity, size = state.cluster.capacity_workers(), job.spec.scale_factor
    if any(count >= size for count in capacity.values()):
        return None
    there = ", ".join(f"{name} {count}" for name, count in capacity.items()) or "no workers at all"
    most = max(capacity.values(), default=0)
    helps = [f"{_count(size - most, 'more worker')} of one accelerator type"]
    if most:
        helps.append(f"submit it again with a scale factor of at most {most}")
    message = f"its gang needs {size} workers of one accelerator type; there are {there}"
    return Why(code="NoMatchingType", message=message, would_unblock=tuple(helps))


def _beyond_quota(job: Job, state: State) -> Why | None:
    """The tier's month is too short for what is left of the job, however long it waits."""
    tier, record = state.tiers[job.spec.tier], state.record
    limit = tier.accelerator_hours_per_month
    if limit is None or record is None or job.id not in record.problem.job_ids:
        return None
    row = record.problem.job_ids.index(job.id)
    best = float(record.problem.throughput_steps_per_s[row, 0].max(initial=0.0))
    hours = job.steps_remaining / best * job.spec.scale_factor / SECONDS_PER_HOUR if best > 0 else 0.0
    if hours <= limit:
        return None
    message = (
        f"its {job.steps_remaining} steps need {hours:.2f} accelerator hours, tier {tier.name} has {limit:g} a month"
    )
    helps = ("an operator raises the limit", "submit it again with fewer steps, or in another tier")
    return Why(code="ExceedsMaxQuota", message=message, would_unblock=helps)


# --- what somebody else has to do ---------------------------------------------------------------------------------

_HELPS = {
    "QuotaExceeded": ("the next month begins", "an operator raises the limit of the tier"),
    "Paused": ("gavel resume JOB",),
    "WaitingForJobs": ("the jobs that it waits for complete",),
}


def _stopped(job: Job, state: State) -> Why | None:
    bare = replace(job, pause_requested=False, waits_for=())  # what is spent goes before what its user wished
    for each in (bare, job):
        hold = held([each], tiers=state.tiers, usage=state.usage, now_s=state.now_s).get(job.id)
        if hold is not None:
            return Why(code=hold[0], message=hold[1], would_unblock=_HELPS.get(hold[0], ()))
    if job.retry_at_s > state.now_s:
        message = f"its gangs were lost {job.losses} times; it starts again in {job.retry_at_s - state.now_s:.0f} s"
        return Why(code="PendingEvaluation", message=message, would_unblock=("nothing: it goes on by itself",))
    return None


# --- what the round says ------------------------------------------------------------------------------------------


def _unseen(job: Job, record: RoundRecord | None) -> Why:
    if job.state is JobState.LEASED:
        return Why(code="Running", message=job.message or "its gang runs")
    if record is None:
        return Why(code="PendingEvaluation", message="no round has been decided yet")
    message = f"it came after round {record.plan.round_index} was decided; the next one takes it into account"
    return Why(code="PendingEvaluation", message=message, would_unblock=("nothing: the next round",))


def _running(job: Job, record: RoundRecord) -> Why | None:
    lease = next((each for each in record.plan.leases if each.job_id == job.id), None)
    if lease is not None and lease.is_profiling:
        message = (
            f"it is measured on {lease.accelerator_type} in round {lease.round_index}, where nobody knows its speed"
        )
        return Why(code="Profiling", message=message)
    if job.state is JobState.LEASED:
        return Why(code="Running", message=_lease_text(lease) if lease else "its gang ends with the round in force")
    if lease is not None:
        message = f"round {lease.round_index} gives it {_lease_text(lease)}; its gang is about to start"
        return Why(code="PendingEvaluation", message=message, would_unblock=("nothing: it starts with the round",))
    return None


def _lease_text(lease: Lease) -> str:
    return f"{len(lease.worker_ids)} of {lease.accelerator_type} ({', '.join(lease.worker_ids[:4])})"


def _waiting(job: Job, state: State, record: RoundRecord) -> Why:
    row = record.problem.job_ids.index(job.id)
    promised = time_per_job(record.allocation, record.problem)
    share = float(promised[row].sum())
    code = "BehindFairShare" if share > PROMISED_MIN else "WaitingForCapacity"
    binding = _binding(record, promised, row)
    ahead = _ahead(job, state, record)
    place = f"{_count(ahead, 'job')} ahead in tier {job.spec.tier}" if ahead else f"first in tier {job.spec.tier}"
    had = sum(_received(job, state).values())
    short = "" if binding is None else f"{_short(binding)}; "
    return Why(
        code=code,
        message=f"{short}owed {share:.1%} of the time, had {had:.1%}; {place}",
        binding=binding,
        position=ahead + 1,
        jobs_ahead=ahead,
        would_unblock=_would_unblock(job, state, record, binding),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _short(binding: Binding) -> str:
    return f"{binding.accelerator_type} {binding.leased_workers}/{binding.workers} leased"


def _ahead(job: Job, state: State, record: RoundRecord) -> int:
    """How many waiting jobs of its tier are owed more, or as much and came before."""
    owed = record.most_owed()
    served = {lease.job_id for lease in record.plan.leases}
    waiting = [
        (-owed.get(each, 0.0), row, each)
        for row, each in enumerate(record.problem.job_ids)
        if each not in served and each in state.jobs and state.jobs[each].spec.tier == job.spec.tier
    ]
    own = next((place for place in waiting if place[-1] == job.id), None)
    return sum(own is None or place < own for place in waiting)


def _received(job: Job, state: State) -> dict[AcceleratorType, float]:
    end_s = job.finished_at_s if job.finished_at_s is not None else state.now_s
    age_s = end_s - job.submitted_at_s
    return {name: min(1.0, held_s / age_s) if age_s > 0 else 0.0 for name, held_s in sorted(job.received_s.items())}


def _would_unblock(job: Job, state: State, record: RoundRecord, binding: Binding | None) -> tuple[str, ...]:
    helps = []
    if binding is not None:
        missing = job.spec.scale_factor - max(0, binding.workers - binding.leased_workers)
        helps.append(f"{_count(max(1, missing), 'more free worker')} of {binding.accelerator_type}")
        first = _next_to_end(state, record, binding.accelerator_type)
        if first is not None:
            helps.append(first)
    if record.plan.leases:
        helps.append("a higher priority of the job (gavel set JOB --priority), or a higher weight of its tier")
    return tuple(helps)


def _next_to_end(state: State, record: RoundRecord, name: AcceleratorType) -> str | None:
    """When the first of the gangs on the type ends, if it runs on."""
    problem = record.problem
    if name not in problem.accelerator_types:
        return None
    column, row_of = problem.accelerator_types.index(name), {each: row for row, each in enumerate(problem.job_ids)}
    there = {lease.job_id for lease in record.plan.leases if lease.accelerator_type == name} & state.jobs.keys()
    rates = [(row_of[each], problem.throughput_steps_per_s[row_of[each], 0, column]) for each in there & row_of.keys()]
    ends_s = [float(problem.steps_remaining[row] / rate) for row, rate in rates if rate > 0]
    return f"the first gang there ends, in {min(ends_s):.0f} s of running" if ends_s else None


def explain_waiting(jobs: Mapping[JobId, Job], record: RoundRecord) -> Iterator[tuple[JobId, str, str]]:
    """(job, reason, message) for each queued job that the round leaves out, the next one first; with its numbers."""
    leased = _leased(record)
    served = {lease.job_id for lease in record.plan.leases}
    ahead: Counter[str] = Counter()
    problem = record.problem
    capacity = dict(zip(problem.accelerator_types, map(int, problem.capacity_workers), strict=True))
    full = ", ".join(f"{name} {leased[name]}/{count}" for name, count in capacity.items())
    owed, promised = record.most_owed(), time_per_job(record.allocation, problem)
    waiting = [row for row, job_id in enumerate(problem.job_ids) if job_id in jobs and job_id not in served]
    for row in sorted(waiting, key=lambda row: -owed.get(problem.job_ids[row], 0.0)):
        job_id, job = problem.job_ids[row], jobs[problem.job_ids[row]]
        tier = job.spec.tier
        if job.state is JobState.QUEUED:
            share = float(promised[row].sum())
            code = "BehindFairShare" if share > 1e-6 else "WaitingForCapacity"
            queue = f"{ahead[tier]} waiting ahead in tier {tier}"
            yield job_id, code, f"leased {full}; owed {share:.0%} of the time; {queue}"
        ahead[tier] += 1


def _leased(record: RoundRecord) -> Counter[AcceleratorType]:
    """Workers of each type that are leased to the end of the round, of those that its allocation was to share."""
    plan, shared = record.plan, set(record.problem.job_ids)
    holding = {
        worker: lease.accelerator_type
        for lease in plan.leases
        if lease.expires_at_s >= plan.ends_at_s and (lease.job_id in shared or lease.starts_at_s is not None)
        for worker in lease.worker_ids
    }
    return Counter(holding.values())


# --- what binds ---------------------------------------------------------------------------------------------------


def _binding(record: RoundRecord, promised: FloatArray, row: int) -> Binding | None:
    """The dearest type that the job can use; None where it can use none."""
    problem = record.problem
    usable = problem.throughput_steps_per_s[row, 0] > 0
    if not usable.any():
        return None
    prices, source = _prices(record, usable), "prices"
    if prices is None:
        workers = np.maximum(1.0, problem.capacity_workers.astype(np.float64))
        prices, source = (promised * problem.scale_factor[:, None]).sum(axis=0) / workers, "load"
    column = int(np.argmax(np.where(usable, prices, -math.inf)))
    name = problem.accelerator_types[column]
    held = {worker for lease in record.plan.leases if lease.accelerator_type == name for worker in lease.worker_ids}
    return Binding(
        accelerator_type=name,
        price=float(prices[column] / max(float(prices.max()), 1e-300)),
        source=source,
        leased_workers=len(held),
        workers=int(problem.capacity_workers[column]),
    )


def _prices(record: RoundRecord, usable: np.ndarray) -> FloatArray | None:
    """Prices (m,) of the level at which the job stops to rise: that by which all that it can use has got a price.

    A type that an earlier level gave away whole has no price in later ones.
    """
    said: Mapping[str, Sequence[object]] = record.allocation.warm_start.get("prices", {})
    types, known = record.problem.accelerator_types, list(said.get("types", ()))
    if not known or record.allocation.is_fallback or not set(known) <= set(types):
        return None
    columns = [types.index(str(name)) for name in known]
    is_short = np.zeros(len(usable), dtype=bool)
    for level in said.get("levels", ()):
        prices = np.zeros(len(usable))
        prices[columns] = np.asarray(level, dtype=np.float64)
        is_short |= prices > 0
        if is_short[usable].all() and (prices[usable] > 0).any():
            return prices
    return None
