"""Which jobs wait, in which order, for which accelerator type, and the message of each.

A job's message, its explanation and the queue are all made here, so that they agree. The accelerator type that a job
waits for comes from the policy's own prices (gavel/policies/fast), else from how much of each type the allocation
gives away.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gavel.mechanism.planning.planner import time_per_job
from gavel.types import (
    AcceleratorType,
    BoolArray,
    FloatArray,
    Job,
    JobId,
    JobState,
    Lease,
    Reason,
    RoundRecord,
    largest_lag,
)
from gavel.types.identity_memo import IdentityMemo

TARGET_FRACTION_MIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The accelerator type that a job waits for. `price` is relative to the dearest type, in [0, 1]; `source` says
    whether it is a price of the policy (`prices`) or the part of the type that the allocation has given away (`load`).
    """

    accelerator_type: AcceleratorType
    price: float
    source: str
    leased_workers: int
    workers: int


MESSAGES_PER_TIER = 100
"""So many jobs of a tier have a message with their place: each end of a job changes those of all that wait behind."""


@dataclass(frozen=True, slots=True)
class _Order:
    """The jobs that a round names in the order in which they wait; where each is in that order, and in the problem."""

    job_ids: tuple[JobId, ...]
    rank_of: Mapping[JobId, int]
    row_of: Mapping[JobId, int]


def _order(job_ids: Sequence[JobId], lag_rounds: Mapping[tuple[JobId, AcceleratorType], float]) -> _Order:
    lag, present = largest_lag(lag_rounds), set(job_ids)
    others = sorted(job_id for job_id in lag if job_id not in present)
    ordered = tuple(
        sorted((*job_ids, *others), key=lambda job_id: -lag.get(job_id, 0.0))
    )  # the sort keeps the order of equal ones
    ranks, rows = ({job_id: place for place, job_id in enumerate(each)} for each in (ordered, job_ids))
    return _Order(ordered, ranks, rows)


_order_of = IdentityMemo(_order)


class Line:
    """The order in which jobs wait: the largest lag first, then by arrival; jobs that came later by ID."""

    def __init__(self, record: RoundRecord | None) -> None:
        self._order = _order_of(record.problem.job_ids, record.lag_rounds) if record else _Order((), {}, {})
        self.row_of = self._order.row_of
        self.lease_of: dict[JobId, Lease] = {lease.job_id: lease for lease in record.plan.leases} if record else {}

    def in_order(self, jobs: Mapping[JobId, Job]) -> Iterator[tuple[int, Job]]:
        """Yield each job that waits with its place in its tier, from 1; `jobs` are all unfinished ones."""
        places: dict[str, int] = {}
        for job in self._in_turn(jobs):
            tier = job.spec.tier
            places[tier] = place = places.get(tier, 0) + 1
            yield place, job

    def _in_turn(self, jobs: Mapping[JobId, Job]) -> Iterator[Job]:
        """Yield each job that waits, in order."""
        leased, rows = self.lease_of, self.row_of
        for job_id in self._order.job_ids:
            job = jobs.get(job_id)
            if job is not None and job_id not in leased and (job_id in rows or job.state is JobState.QUEUED):
                yield job
        yield from sorted((jobs[each] for each in self._new(jobs)), key=lambda job: job.id)

    def _new(self, jobs: Mapping[JobId, Job]) -> list[JobId]:
        """The jobs that wait and came after the newest round."""
        ranks = self._order.rank_of
        return [job_id for job_id, job in jobs.items() if job_id not in ranks and self.waits(job)]

    def by_tier(self, jobs: Mapping[JobId, Job]) -> dict[str, list[JobId]]:
        """Return the jobs that the round names, by tier, in the order in which they wait whenever they do."""
        ids: dict[str, list[JobId]] = {}
        for job_id in self._order.job_ids:
            if job_id in jobs:
                ids.setdefault(jobs[job_id].spec.tier, []).append(job_id)
        return ids

    def first_of(self, by_tier: Mapping[str, Sequence[JobId]], jobs: Mapping[JobId, Job]) -> Iterator[tuple[int, Job]]:
        """Yield what `in_order` yields of the first ones of each tier that the round names (MESSAGES_PER_TIER)."""
        for ids in by_tier.values():
            waiting = (jobs[each] for each in ids if each in jobs and self.waits(jobs[each]))
            yield from zip(range(1, MESSAGES_PER_TIER + 1), waiting, strict=False)

    def place_of(self, job: Job, jobs: Iterable[Job]) -> int:
        """Return the place of a job that waits, as `in_order` gives it."""
        tier, key = job.spec.tier, self._key(job)
        others = (each for each in jobs if each.spec.tier == tier and each.id != job.id)
        return 1 + sum(self._key(each) < key and self.waits(each) for each in others)

    def waits(self, job: Job) -> bool:
        """True for a job that the newest round does not serve; one whose gang ends with the round before waits, too."""
        return job.id not in self.lease_of and (job.id in self.row_of or job.state is JobState.QUEUED)

    def _key(self, job: Job) -> tuple[int, JobId]:
        return self._order.rank_of.get(job.id, len(self._order.job_ids)), job.id


class Shortage:
    """Why a round does not serve its other jobs, and which accelerator type each of them waits for."""

    def __init__(self, record: RoundRecord, jobs: Mapping[JobId, Job]) -> None:
        """`jobs`: all unfinished ones."""
        self._record, self._problem = record, record.problem
        self.target_fraction = time_per_job(record.allocation, record.problem)  # (n, m) fractions of time
        self._shares: list[float] = self.target_fraction.sum(axis=1).tolist()
        self._usable = self._problem.throughput_steps_per_s[: len(self._problem.job_ids), 0] > 0
        self._leased = leased(record, jobs)
        self._bindings: dict[bytes, Binding | None] = {}  # jobs that can use the same types wait for the same one

    def tell(self, job: Job, row: int, place: int) -> tuple[Reason, str]:
        """Return why the job in that row of the problem waits: the reason, and sentences for people."""
        return self.reason(row), f"{self.what_is_short(job, row)} {place_in_tier(place, job.spec.tier)}"

    def reason(self, row: int) -> Reason:
        """Return why the job in that row of the problem waits."""
        has_target = self._shares[row] > TARGET_FRACTION_MIN
        return Reason.BEHIND_FAIR_SHARE if has_target else Reason.WAITING_FOR_CAPACITY

    def what_is_short(self, job: Job, row: int) -> str:
        """Return a sentence on the workers that the job in that row waits for."""
        binding, size = self.binding(row), job.spec.scale_factor
        if binding is None:
            return "No accelerator type of the cluster can run this job now."
        name, workers, free = binding.accelerator_type, binding.workers, binding.workers - binding.leased_workers
        if free > 0:
            gives = f"; the next round gives {'it' if free == 1 else 'them'} away"
            rest = f", and this job needs {size}" if size > free else gives
            return f"{name} has {free} of {counted(workers, 'worker')} free{rest}."
        total = int(self._problem.capacity_workers.sum())
        if self._leased.total() >= total:
            return f"All {total} workers are busy." if total > 1 else "The only worker is busy."
        return f"All {workers} workers of {name} are busy." if workers > 1 else f"The only worker of {name} is busy."

    def binding(self, row: int) -> Binding | None:
        """Return the type with the highest price that the job in that row can use; None if it can use none."""
        usable = self._usable[row]
        key = usable.tobytes()
        if key not in self._bindings:
            self._bindings[key] = self._binding(usable) if usable.any() else None
        return self._bindings[key]

    def _binding(self, usable: BoolArray) -> Binding:
        problem = self._problem
        prices, source = _prices(self._record, usable), "prices"
        if prices is None:
            workers = np.maximum(1.0, problem.capacity_workers.astype(np.float64))
            prices, source = (self.target_fraction * problem.scale_factor[:, None]).sum(axis=0) / workers, "load"
        column = int(np.argmax(np.where(usable, prices, -math.inf)))
        name = problem.accelerator_types[column]
        return Binding(
            accelerator_type=name,
            price=float(prices[column] / max(float(prices.max()), 1e-300)),
            source=source,
            leased_workers=self._leased[name],
            workers=int(problem.capacity_workers[column]),
        )


def explain_waiting(
    jobs: Mapping[JobId, Job], record: RoundRecord, waiting: Iterable[tuple[int, Job]] | None = None
) -> Iterator[tuple[JobId, Reason, str]]:
    """Yield (job, reason, message) for each queued job of the round: those that it serves, then the others in order.

    The message is empty for those behind the first of each tier (MESSAGES_PER_TIER). `waiting`: the others that are to
    be explained, each with its place; by default all.
    """
    for lease in record.plan.leases:
        job = jobs.get(lease.job_id)
        if job is not None and is_ahead(job, lease):
            yield lease.job_id, *starting(lease)
    line, shortage = Line(record), Shortage(record, jobs)
    row_of = line.row_of
    for place, job in line.in_order(jobs) if waiting is None else waiting:
        if job.state is JobState.QUEUED and (row := row_of.get(job.id)) is not None:
            if place > MESSAGES_PER_TIER:
                yield job.id, shortage.reason(row), ""
            else:
                yield job.id, *shortage.tell(job, row, place)


def is_ahead(job: Job, lease: Lease) -> bool:
    """Return True if the job has yet to start under the lease; its gang of an older lease has ended."""
    return job.state is JobState.QUEUED and job.generation < lease.generation


def starting(lease: Lease) -> tuple[Reason, str]:
    """Return the reason and the message of a queued job to which a round gives that lease."""
    if lease.is_profiling:
        return Reason.PROFILING, (
            f"Round {lease.round_index} measures this job on {lease.accelerator_type}, where nobody knows its speed."
        )
    return (
        Reason.PENDING_EVALUATION,
        f"Round {lease.round_index} gives this job {workers_of(lease)}. Its gang is about to start.",
    )


def workers_of(lease: Lease) -> str:
    """Return how many workers of which type a lease gives, and the first of them."""
    names = ", ".join(lease.worker_ids[:4]) + (", .." if len(lease.worker_ids) > 4 else "")
    return f"{counted(len(lease.worker_ids), 'worker')} of {lease.accelerator_type} ({names})"


def place_in_tier(place: int, tier: str, *, is_own: bool = False) -> str:
    """Return a sentence on who comes before a job that waits. `is_own`: the reader is its user."""
    if place == 1:
        return f"{'You are' if is_own else 'This job is'} next in {tier}."
    verb, whose = "comes" if place == 2 else "come", "yours" if is_own else "this job"
    return f"{counted(place - 1, 'job')} of {tier} {verb} before {whose}."


def counted(number: int, what: str) -> str:
    """Return the number with its noun, as in "1 job" and "2 jobs"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def leased(record: RoundRecord, jobs: Mapping[JobId, Job]) -> Counter[AcceleratorType]:
    """Return how many of the workers that the allocation shares are leased to the end of the round, by type.

    A lease counts while its gang is there, or may still start; `jobs` are all unfinished ones.
    """
    plan, shared = record.plan, set(record.problem.job_ids)
    holding = {
        worker: lease.accelerator_type
        for lease in plan.leases
        if lease.expires_at_s >= plan.ends_at_s and (lease.job_id in shared or lease.starts_at_s is not None)
        if _holds(jobs.get(lease.job_id), lease)
        for worker in lease.worker_ids
    }
    return Counter(holding.values())


def _holds(job: Job | None, lease: Lease) -> bool:
    return job is not None and (job.state is JobState.LEASED or is_ahead(job, lease))


def _prices(record: RoundRecord, usable: BoolArray) -> FloatArray | None:
    """Prices (m,) of the level at which the job stops to rise: the first by which all its types have had a price.

    A type that was given away completely at an earlier level has no price at later ones.
    """
    stored: Mapping[str, Sequence[object]] = record.allocation.warm_start.get("prices", {})
    types, stored_types = record.problem.accelerator_types, list(stored.get("types", ()))
    if not stored_types or record.allocation.is_fallback or not set(stored_types) <= set(types):
        return None
    columns = [types.index(str(name)) for name in stored_types]
    is_short = np.zeros(len(usable), dtype=bool)
    for level in stored.get("levels", ()):
        prices = np.zeros(len(usable))
        prices[columns] = np.asarray(level, dtype=np.float64)
        is_short |= prices > 0
        if is_short[usable].all() and (prices[usable] > 0).any():
            return prices
    return None
