"""Guests: trainings beside a session on its accelerators, chosen once the plan of a round has given them nothing.

A session that lets another onto its accelerators uses them now and then. A training that would only wait does its steps
there meanwhile, on top of what its policy gives it: no fraction, no lag and no place of another job is touched. The
session keeps its lease, and a session that wants to join it comes first. A guest stays where the estimator expects it
to keep the part of its rate that the session leaves it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from gavel.mechanism.planning.caps import is_capped
from gavel.mechanism.planning.shared_sessions import both_fit, generation_beside, nodes_have_room, shares
from gavel.mechanism.planning.switch_costs import pays_a_start
from gavel.mechanism.tick import Tick
from gavel.ports import ThroughputEstimator
from gavel.types import Job, JobId, JobState, Lease, RoundPlan

LOOKED_AT = 64  # waiting trainings for each session, the first ones
TRIED_AGAIN_ROUNDS = 16  # in every so many rounds pairs that were too slow are tried again: sessions come and go


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestInputs:
    """What guests of a round are chosen from, besides its tick.

    `plan` has the leases of all others, and `hosts` are those of its sessions that may have a guest. `waiting` are the
    jobs that it gives nothing, in the order of service; those of `behind` have a lag. `parent` is the plan of the round
    before. `switch_cost_s` is what a start and a stop cost, in seconds, by kind.
    """

    plan: RoundPlan
    hosts: Sequence[Lease]
    waiting: Sequence[Job]
    behind: Collection[JobId]
    parent: RoundPlan | None
    estimator: ThroughputEstimator
    switch_cost_s: Mapping[str, float]


def hosts_of(tick: Tick, plan: RoundPlan) -> list[Lease]:
    """Return the leases of sessions that may have a guest: they run, alone on their workers, and say what they hold.

    None while the disk is nearly full, when nothing starts.
    """
    return [] if tick.disk.low else [lease for lease in plan.leases if _is_host(tick, lease, plan.starts_at_s)]


def guests_of(tick: Tick, inputs: GuestInputs) -> tuple[Lease, ...]:
    """Return the leases of the guests of a round, each a pair with the session whose workers it gets.

    Every session has one at most. Trainings have their turn in the order of backfilling, by priority, lag and arrival,
    but one that is a guest goes before others of its priority, so that it need not move. Each goes to the session
    beside which it is fastest.
    """
    hosts = list(inputs.hosts)
    before = {lease.job_id: lease for lease in inputs.parent.leases} if inputs.parent else {}
    waiting = list(_in_order(tick, inputs, before))
    rates = {host.job_id: _rates(tick, host, waiting, inputs) for host in hosts}
    guests: list[Lease] = []
    for job in waiting:
        possible = [host for host in hosts if job.id in rates[host.job_id]]
        held = [*inputs.plan.leases, *guests] if possible else []
        possible = [host for host in possible if nodes_have_room(tick, host.worker_ids, job.spec.needs, held)]
        if not possible:
            continue
        host = max(possible, key=lambda each: (_is_there(job, each, before), rates[each.job_id][job.id]))
        hosts.remove(host)
        guests.append(_lease(job, host, before.get(job.id)))
    return tuple(guests)


def _is_host(tick: Tick, lease: Lease, starts_at_s: float) -> bool:
    job = tick.jobs[lease.job_id]
    is_alone = lease.combination == (lease.job_id,) and job.state is JobState.LEASED
    goes_on = (inf if job.session_ends_at_s is None else job.session_ends_at_s) > starts_at_s
    return is_alone and goes_on and shares(job) and job.spec.accelerator_memory_bytes > 0


def _in_order(tick: Tick, inputs: GuestInputs, before: Mapping[JobId, Lease]) -> Iterator[Job]:
    """Those of the jobs that may be a guest of one of the hosts, the next one first."""
    sizes = {len(host.worker_ids) for host in inputs.hosts}
    capped = {name for name in tick.snapshot.tiers if is_capped(name, tick.snapshot.tiers)}
    candidates = [job for job in inputs.waiting if job.id in before]
    there = {job.id for job in candidates if any(_is_there(job, host, before) for host in inputs.hosts)}

    def turn(job: Job) -> tuple[int, bool, bool]:
        return -job.spec.priority, job.id not in there, job.id not in inputs.behind

    for job in sorted(inputs.waiting, key=turn):
        is_wanted = _may_be_guest(job) and job.spec.tier not in capped and job.spec.scale_factor in sizes
        if is_wanted and (job.id in there or pays_a_start(job.spec.kind, inputs.switch_cost_s, inputs.plan.duration_s)):
            yield job


def _may_be_guest(job: Job) -> bool:
    """Whether the job is a training of one size and program that can be stopped at the end of any round."""
    spec = job.spec
    is_batch = spec.mode == "batch" and spec.replica is None
    return is_batch and spec.preemptible and not spec.has_choice and not spec.topology_label


def _is_there(job: Job, host: Lease, before: Mapping[JobId, Lease]) -> bool:
    """Whether a gang of the job is on the workers of the host now, or about to start there."""
    lease = before.get(job.id)
    return lease is not None and generation_beside(job, lease, host.worker_ids) == lease.generation


def _rates(tick: Tick, host: Lease, waiting: Sequence[Job], inputs: GuestInputs) -> dict[JobId, float]:
    """The steps/s of each training that may be beside the session: both fit, and each keeps enough of its rate.

    What a training must keep is what the session leaves of its accelerators, and what the session must keep, if its
    program reports steps, is its own share of them.
    """
    session, name, jobs = tick.jobs[host.job_id], host.accelerator_type, _that_fit(tick, host, waiting)
    if not jobs:
        return {}
    estimates = inputs.estimator.colocated_estimates([(job, session) for job in jobs], name)
    of_session = inputs.estimator.colocated_estimates([(session, job) for job in jobs], name)
    memory_bytes = min(each.memory_bytes for each in tick.usable.workers if each.id in set(host.worker_ids))
    share, is_try = session.spec.accelerator_share, inputs.plan.round_index % TRIED_AGAIN_ROUNDS == 0
    rates = {}
    for job, own, other in zip(jobs, estimates, of_session, strict=True):
        has_memory = 0 < own.needed_bytes <= memory_bytes - other.needed_bytes
        is_spared = not other.is_measured or other.kept_fraction >= share
        if has_memory and is_spared and (is_try or own.kept_fraction >= 1 - share):
            rates[job.id] = own.kept_fraction * inputs.estimator.estimate(job.spec, [name])[0].steps_per_s
    return rates


def _that_fit(tick: Tick, host: Lease, waiting: Sequence[Job]) -> list[Job]:
    """The first of those whose gang may be on the workers of the session and fits there beside it."""
    own = tick.jobs[host.job_id].spec.needs
    of_size = [job for job in waiting if job.spec.scale_factor == len(host.worker_ids)]
    fits = {
        needs: both_fit(tick, host.worker_ids, needs, own.colocated_with(needs))
        for needs in {job.spec.needs for job in of_size}
    }
    return [job for job in of_size if fits[job.spec.needs]][:LOOKED_AT]


def _lease(job: Job, host: Lease, before: Lease | None) -> Lease:
    return Lease(
        job_id=job.id,
        generation=generation_beside(job, before, host.worker_ids),
        combination=(host.job_id, job.id),
        accelerator_type=host.accelerator_type,
        worker_ids=host.worker_ids,
        round_index=host.round_index,
        expires_at_s=host.expires_at_s,
    )
