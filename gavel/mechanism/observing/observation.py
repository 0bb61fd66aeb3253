"""Applies an observation: to the jobs, by the table of their lifecycle, and to the estimates of throughputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from gavel.mechanism.cluster.away import gangs_away
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.jobs import infeasibility, lifecycle
from gavel.mechanism.jobs.events import Dismissed, Ended, EventKind, Reported
from gavel.mechanism.jobs.no_progress import no_progress, silent
from gavel.mechanism.jobs.sizes import variants_of
from gavel.mechanism.observing import startup_times
from gavel.mechanism.observing.accounting import (
    isolated,
    isolated_rates,
    measurements_of,
    received,
    silence_of,
    without_lost,
)
from gavel.mechanism.observing.colocation import Colocated, partner_of
from gavel.mechanism.observing.notes import notes_of
from gavel.mechanism.observing.served import Served
from gavel.mechanism.planning import switch_costs
from gavel.mechanism.planning.configurations import SpeedInputs, configurations_of, known_plans
from gavel.mechanism.planning.problem import as_known
from gavel.mechanism.planning.start_budget import cluster_s
from gavel.mechanism.tick import Tick
from gavel.ports import JobEvent, ThroughputEstimator
from gavel.types import (
    AcceleratorType,
    GangExit,
    GangOutcome,
    GangSeen,
    GangState,
    InfeasibleType,
    Job,
    JobId,
    JobState,
    Measurement,
    Reason,
    in_region,
    plain_type,
)
from gavel.types.copying import changed
from gavel.types.rounds import may_run_s_of


def learned(tick: Tick, layout: Layout, estimator: ThroughputEstimator, colocated: Colocated) -> ThroughputEstimator:
    """Return the estimator with the measurements in the new reports of gangs; the same object if there are none."""
    round_s = max((plan.ends_at_s - plan.starts_at_s for plan in tick.round_plans), default=inf)
    measured: list[Measurement] = []
    for gang in tick.seen.gangs:
        others, job = colocated.get((gang.job_id, gang.generation), ()), tick.jobs.get(gang.job_id)
        if not (gang.reports or others) or job is None or gang.generation != job.generation:
            continue
        partner = _kind_beside(tick, gang, others)
        measured += measurements_of(job, gang, layout, partner)
        measured += silence_of(job, gang, layout, partner, now_s=tick.now_s, round_s=round_s)
    return estimator.learn(measured) if measured else estimator


def _kind_beside(tick: Tick, gang: GangSeen, others: Sequence[GangSeen]) -> str | None:
    """The kind of the job beside which a gang did what it reports, if there was one."""
    partner = partner_of(gang, [each for each in others if each.job_id in tick.jobs], tick.now_s) if others else None
    return tick.jobs[partner.job_id].spec.kind if partner else None


def apply_observation(
    tick: Tick,
    *,
    layout: Layout,
    estimator: ThroughputEstimator,
    lost_retries: int,
    lost_backoff_s: float,
    start_limit_s: float,
    colocated: Colocated,
) -> None:
    """Change the tick's jobs by what was observed: the reports and the ends of gangs, and gangs that are missing.

    `layout` is that of the observed cluster. `colocated`: the other gangs on the workers of each gang, by job and
    generation, ended ones included.
    """
    _JobUpdates(
        tick=tick,
        layout=layout,
        estimator=estimator,
        lost_retries=lost_retries,
        lost_backoff_s=lost_backoff_s,
        start_limit_s=start_limit_s,
        colocated=colocated,
        served=Served(
            tick.index,
            tiers=tick.snapshot.tiers,
            usage=tick.snapshot.usage,
            largest=int(layout.capacity.max(initial=0)),
            now_s=tick.now_s,
        ),
    ).apply()


@dataclass(frozen=True, kw_only=True)
class _JobUpdates:
    """The arguments of `apply_observation`, and what each gang and each job without a gang changes."""

    tick: Tick
    layout: Layout
    estimator: ThroughputEstimator
    lost_retries: int
    lost_backoff_s: float
    start_limit_s: float
    colocated: Colocated
    served: Served  # until now

    def apply(self) -> None:
        tick, jobs = self.tick, self.tick.jobs
        for gang in tick.seen.gangs:
            is_quiet = not gang.reports and gang.state is not GangState.ENDED
            if is_quiet and self._ran_s(gang) < self.start_limit_s:
                continue
            job = jobs.get(gang.job_id)
            if job is None or gang.generation != job.generation:
                continue
            if is_quiet:
                self._tell_silent(job, gang)
            else:
                self._take_gang(job, gang)
        tick.startup_times = self._times.table
        queued = [job for job in tick.index.conditional.values() if job.state is JobState.QUEUED]
        for job in sorted((*queued, *self._unseen()), key=lambda job: job.id):
            if job.state is JobState.QUEUED:
                self._shorten_pause(job)
                self._dismiss_if_cancelled(tick.jobs[job.id])
            else:
                self._lose(job)

    @cached_property
    def _times(self) -> startup_times.LearnedTimes:
        return startup_times.LearnedTimes(self.tick.startup_times)

    def _unseen(self) -> list[Job]:
        """The jobs with a gang that no node and no plan has, and that no node that is away may have."""
        seen = {(gang.job_id, gang.generation) for gang in self.tick.seen.gangs}
        unseen = [job for job in self.tick.index.leased.values() if (job.id, job.generation) not in seen]
        if not unseen:
            return []
        tick = self.tick
        away = gangs_away(tick.round_plans, tick.seen.cluster, tick.rounds_over)
        unseen = [job for job in unseen if (job.id, job.generation) not in away]
        return [job for job in unseen if not (self._may_start(job) and (job.id, job.generation) in self._planned)]

    def _may_start(self, job: Job) -> bool:
        """Return True unless the job is not to run, or its gang has started before: what has reported is lost."""
        return job.is_wanted and not job.has_reported

    @cached_property
    def _planned(self) -> set[tuple[JobId, int]]:
        """The gangs of the round in force: they may still start."""
        tick = self.tick
        in_force = (plan for plan in tick.round_plans if plan.starts_at_s <= tick.now_s < plan.ends_at_s)
        return {(lease.job_id, lease.generation) for plan in in_force for lease in plan.leases}

    def _take_gang(self, job: Job, gang: GangSeen) -> None:
        tick, reports = self.tick, startup_times.checked_reports(gang, self.tick.now_s)
        self._times.add(job, gang, reports)
        after = lifecycle.take_reports(
            lifecycle.by_clock_of(gang, job),
            Reported(at_s=tick.now_s, generation=gang.generation, reports=reports, started_at_s=gang.started_at_s),
        )
        tick.events.extend(notes_of(job, gang, tick.now_s))
        after = self._isolated(after, after.steps_reported - job.steps_reported)
        end = self._weighed_here(after, gang, lifecycle.ended(after, gang, tick.now_s))
        if end is not None or (after is not job and job.state is JobState.LEASED) or _ended_before(job, gang):
            partners = self.colocated.get((gang.job_id, gang.generation), ())
            after = lifecycle.accounted_by(after, tick.now_s)
            after = lifecycle.account_time(after, gang, tick.now_s, partners, lease_s=self._lease_s(job, gang))
        if end is not None:
            cost_s = switch_costs.measured_s(after, gang)
            if cost_s is not None:
                tick.switch_cost_s.append((job.spec.kind, cost_s))
            self._account_partners(gang, end.at_s)
            self._end(after, end, gang.accelerator_type)
        elif after is not job:
            tick.put(after)

    def _lease_s(self, job: Job, gang: GangSeen) -> float:
        """How long the lease of a gang lasts by the stored rounds; 0 if there is no need to know, or it is in none."""
        return self._leases_s.get((job.id, gang.generation), 0.0) if _seems_early(job, gang) else 0.0

    @cached_property
    def _leases_s(self) -> dict[tuple[JobId, int], float]:
        return may_run_s_of(self.tick.snapshot.round_records)

    def _weighed_here(self, job: Job, gang: GangSeen, end: Ended | None) -> Ended | None:
        """The end of a gang; one that does not fit its accelerator type marks that, and the job goes on elsewhere."""
        if end is None or end.kind not in (EventKind.RETRIED, EventKind.BROKE):
            return end
        evidence = infeasibility.evidence_of(end.exit)
        if evidence and self._is_to_blame(job, gang, evidence):
            return self._elsewhere(job, gang, end, evidence, (gang.accelerator_type,))
        measured = known_plans(job, self.estimator.matrix, self.layout.feasibility.types) if job.spec.plans else ()
        if evidence := infeasibility.failure_under_plan(job, end.exit, measured):
            return self._elsewhere(job, gang, end, evidence, self.layout.feasibility.types)
        return end

    def _elsewhere(
        self, job: Job, gang: GangSeen, end: Ended, evidence: str, types: Sequence[AcceleratorType]
    ) -> Ended:
        """Mark that the job does not run on `types`, under its plan if it has one; it goes on with what is left."""
        for name in dict.fromkeys(map(plain_type, types)):
            mark = InfeasibleType(
                user=job.spec.user,
                kind=job.spec.kind,
                scale_factor=job.spec.scale_factor,
                accelerator_type=name,
                evidence=evidence,
                job_id=job.id,
                at_s=end.at_s,
            )
            self.tick.infeasible = infeasibility.marked(self.tick.infeasible, mark)
        left, is_refuted = self._left(job)
        kind = EventKind.BROKE if is_refuted else EventKind.INFEASIBLE
        goes_on = f"It goes on with {', '.join(left)}." if left else "It goes on once other nodes are there."
        goes_on = "No accelerator type is left." if is_refuted else goes_on
        under = f" under plan {job.spec.plan}" if job.spec.plan else ""
        message = f"The job does not fit {gang.accelerator_type}{under}: {evidence} {goes_on}"
        return replace(end, kind=kind, reason=Reason.DOES_NOT_FIT, message=message)

    def _left(self, job: Job) -> tuple[list[AcceleratorType], bool]:
        """The types on which the job can run now, and whether the marks alone leave it none.

        Nodes that are away, or its home, say nothing: it can run there later, or elsewhere.
        """
        free = changed(job, spec=in_region(job.spec, ""))
        left, unmarked = (self._types_of(free, marks) for marks in (self.tick.infeasible, ()))
        rounds, there = self.tick.snapshot.round_records, set(self.layout.feasibility.types)
        is_whole = there.issuperset(rounds[-1].problem.accelerator_types if rounds else ())
        return left, is_whole and bool(unmarked) and not left

    def _types_of(self, job: Job, marks: Sequence[InfeasibleType]) -> list[AcceleratorType]:
        """The types on which the job can run in any of its sizes and plans."""
        others = infeasibility.ruled_out(variants_of(job), marks)
        possible = {name for other in others for name in self.layout.feasibility.types_of(other.spec)}
        return [name for name in self.layout.feasibility.types if name in possible]

    def _is_to_blame(self, job: Job, gang: GangSeen, evidence: str) -> bool:
        """Return whether no other job may have used up the memory, on its accelerators or, for the kernel, nodes."""
        if self.colocated.get((gang.job_id, gang.generation)):
            return False
        if not infeasibility.is_of_kernel(evidence):
            return True
        node_of, jobs = self.layout.node_of, self.tick.snapshot.jobs
        there = {node_of.get(worker) for worker in gang.worker_ids}
        others = (each for each in self.tick.seen.gangs if not there.isdisjoint(map(node_of.get, each.worker_ids)))
        return all((seen := jobs.get(each.job_id)) and seen.spec.user == job.spec.user for each in others)

    def _account_partners(self, gang: GangSeen, ended_at_s: float) -> None:
        """Count the time that other gangs shared workers with one that has ended; the next observation lacks it."""
        tick = self.tick
        for partner in self.colocated.get((gang.job_id, gang.generation), ()):
            job = tick.jobs.get(partner.job_id)
            if job is not None and partner.state is not GangState.ENDED:
                after = lifecycle.account_time(job, partner, ended_at_s, (gang,))
                if after is not job:
                    tick.put(after)

    def _end(self, job: Job, end: Ended, on: AcceleratorType = "") -> None:
        tick, done_before = self.tick, job.steps_reported
        if self._is_charged(job, end):
            tick.unreported.append((job.spec.user, cluster_s(job, end.held_s, tick.seen.cluster)))
        end = lifecycle.weighed(job, end, retries=self.lost_retries, backoff_s=self.lost_backoff_s)
        after, line = lifecycle.step(job, end)
        after = self._isolated(after, after.steps_reported - done_before)
        ahead = tick.round_plans[-1].leases if tick.round_plans and tick.round_plans[-1].starts_at_s >= end.at_s else ()
        for lease in ahead:
            if (lease.job_id, lease.generation) == (
                job.id,
                end.generation,
            ):  # it was to stay for a round that it will not see
                after = received(after, lease.accelerator_type, rounds=-1)
        tick.put(after, line, *lifecycle.gone_back(after, end))
        if end.kind is EventKind.PREEMPTED:
            self._tell_no_progress(after, on, end.at_s)

    def _is_charged(self, job: Job, end: Ended) -> bool:
        """Return whether the gang has held workers without a report while jobs of other users waited for some."""
        is_silent = job.training_since_s is None and job.spec.preemptible and end.kind is not EventKind.LOST
        return is_silent and bool(self._waiting_users - {job.spec.user})

    @cached_property
    def _waiting_users(self) -> set[str]:
        """The users of jobs without a gang that runs since before the round: what a gang leaves is taken at once."""
        tick = self.tick
        since_s = max((plan.starts_at_s for plan in tick.round_plans if plan.starts_at_s <= tick.now_s), default=inf)
        running = {gang.job_id for gang in tick.seen.gangs if (gang.started_at_s or inf) < since_s}
        waiting = (job for job_id, job in tick.snapshot.jobs.items() if job_id not in running)
        return {job.spec.user for job in waiting if job.spec.service is None}

    def _ran_s(self, gang: GangSeen) -> float:
        """The seconds since the gang's program started; 0 before."""
        return 0.0 if gang.started_at_s is None else self.tick.now_s - gang.started_at_s

    def _tell_silent(self, job: Job, gang: GangSeen) -> None:
        """Give a job that runs on and on without a step its reason, once; its gang stays."""
        why = silent(job, self._ran_s(gang), start_limit_s=self.start_limit_s)
        if why and not job.no_progress:
            line = JobEvent(job_id=job.id, at_s=self.tick.now_s, kind="job.no_progress", message=why)
            self.tick.put(changed(job, no_progress=why), line)

    def _tell_no_progress(self, job: Job, on: AcceleratorType, at_s: float) -> None:
        """Give the job its reason if no lease is expected to help it, and the event when that begins."""
        records = self.tick.snapshot.round_records
        spent_s = records[-1].unreported_s.get(job.spec.user, 0.0) if records else 0.0
        why = no_progress(job, on, self._times.table, start_limit_s=self.start_limit_s, spent_s=spent_s)
        if why and not job.pause_requested:
            line = JobEvent(job_id=job.id, at_s=at_s, kind="job.no_progress", message=why)
            after = changed(job, no_progress=why, reason=Reason.NO_PROGRESS, message=why)
            self.tick.put(after, *(() if job.no_progress else (line,)))

    def _shorten_pause(self, job: Job) -> None:
        after = lifecycle.shortened_pause(job, self.tick.now_s, backoff_s=self.lost_backoff_s)
        if after is not job:
            self.tick.put(after)

    def _dismiss_if_cancelled(self, job: Job) -> None:
        if job.cancel_requested:
            gone = Dismissed(
                at_s=self.tick.now_s,
                kind=EventKind.CANCELLED,
                reason=Reason.CANCELLED,
                message="The job was cancelled before it ran.",
            )
            self.tick.put(*lifecycle.step(job, gone))

    def _lose(self, job: Job) -> None:
        """Count the gang of a leased job as lost: no node and no plan has it."""
        exit_ = GangExit(outcome=GangOutcome.LOST, message="no trace of its gang")
        kind, reason, message = EventKind.LOST, Reason.LOST, "There is no trace of the gang."
        if job.cancel_requested:
            kind, reason = EventKind.CANCELLED, Reason.CANCELLED
        elif job.over:
            kind, reason, message = EventKind.FINISHED, Reason.COMPLETED, job.over
        now_s = self.tick.now_s
        end = Ended(at_s=now_s, generation=job.generation, kind=kind, reason=reason, message=message, exit=exit_)
        self._end(job, end)

    def _isolated(self, job: Job, steps: int) -> Job:
        """The job with the isolated time of `steps` more steps added, or that of lost steps (negative) taken off."""
        if steps == 0:
            return job
        if steps < 0:
            return without_lost(job, -steps)
        own, whole = self._isolated_rates[job.id]
        return isolated(job, steps, own_steps_per_s=own, whole_steps_per_s=whole)

    @cached_property
    def _isolated_rates(self) -> dict[JobId, tuple[float, float]]:
        """T_iso of the jobs whose gangs reported or ended, each on its part of the cluster and on all of it."""
        stored = self.tick.snapshot.jobs
        gangs = [gang for gang in self.tick.seen.gangs if gang.reports or gang.state is GangState.ENDED]
        jobs = [stored[gang.job_id] for gang in gangs if gang.job_id in stored]
        served = self.served
        competing = [served.count + (not served.includes(job)) for job in jobs]
        specs = [as_known(job, self.estimator).spec for job in jobs]
        speeds = SpeedInputs(
            feasibility=self.layout.feasibility,
            matrix=self.estimator.matrix,
            marks=self.tick.infeasible,
            of_own_kind=lambda job: as_known(job, self.estimator),
        )
        choice = configurations_of(jobs, speeds)
        rates = isolated_rates(specs, competing, self.layout, self.estimator.estimate, choice)
        return {job.id: each for job, each in zip(jobs, rates, strict=True)}


def _seems_early(job: Job, gang: GangSeen) -> bool:
    """Return True if a new gang says that it began before it was launched: a clock was set, or it is forged."""
    is_new, since_s = job.gang_started_at_s is None, gang.started_at_s
    return is_new and since_s is not None and since_s < job.accounted_until_s - lifecycle.LAUNCH_CLOCK_S


def _ended_before(job: Job, gang: GangSeen) -> bool:
    """Return True if a gang that was taken for lost says that it had ended before the time that was accounted for."""
    if gang.exit is None or gang.exit.outcome is GangOutcome.LOST or gang.ended_at_s is None:
        return False
    return gang.ended_at_s <= job.accounted_until_s - lifecycle.CLOCK_SET_S
