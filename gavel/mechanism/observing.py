"""What an observation means: for each job, by the lifecycle's table, and for the estimates."""

from dataclasses import dataclass, replace
from math import inf

from gavel.mechanism import lifecycle, switching
from gavel.mechanism.accounting import isolated, measurements_of, received, silence_of
from gavel.mechanism.events import Dismissed, Ended, EventKind, Reported
from gavel.mechanism.placement import Layout
from gavel.mechanism.problem import as_known
from gavel.mechanism.tick import Tick
from gavel.ports import ThroughputEstimator
from gavel.types import GangExit, GangOutcome, GangSeen, GangState, Job, JobId, JobState, WorkerId


def learned(tick: Tick, layout: Layout, estimator: ThroughputEstimator) -> ThroughputEstimator:
    """The estimator with what the gangs' new reports measured; the same one if that is nothing."""
    beside = _partners(tick)
    round_s = max((plan.ends_at_s - plan.starts_at_s for plan in tick.rounds), default=inf)
    measured = [
        measurement
        for gang in tick.seen.gangs
        if (job := tick.jobs.get(gang.job_id)) is not None and gang.token == job.token
        for measurement in (
            *measurements_of(job, gang, layout, beside.get(job.id)),
            *silence_of(job, gang, layout, beside.get(job.id), now_s=tick.now_s, round_s=round_s),
        )
    ]
    return estimator.learn(measured) if measured else estimator


def _partners(tick: Tick) -> dict[JobId, str]:
    """Kind of the job beside each job whose gang trains on the same workers as another."""
    first: dict[WorkerId, Job] = {}
    partners = {}
    for gang in tick.seen.gangs:
        job = tick.jobs.get(gang.job_id)
        if job is None or gang.state is not GangState.RUNNING or not gang.worker_ids:
            continue
        other = first.setdefault(gang.worker_ids[0], job)
        if other is not job:
            partners[job.id], partners[other.id] = other.spec.kind, job.spec.kind
    return partners


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Takes one tick's observation into its jobs; `layout` is of the cluster as seen."""

    tick: Tick
    layout: Layout
    estimator: ThroughputEstimator
    lost_retries: int
    lost_backoff_s: float

    def take(self) -> None:
        """Reports, ends and absences of gangs become changes of their jobs."""
        tick = self.tick
        for gang in tick.seen.gangs:
            job = tick.jobs.get(gang.job_id)
            if job is not None and gang.token == job.token:
                self._take_gang(job, gang)
        seen = {(gang.job_id, gang.token) for gang in tick.seen.gangs}
        in_force = (plan for plan in tick.rounds if plan.starts_at_s <= tick.now_s < plan.ends_at_s)
        planned = {(lease.job_id, lease.token) for plan in in_force for lease in plan.leases}
        for job in list(tick.jobs.values()):
            key = (job.id, job.token)
            self._take_absence(job, is_held=key in seen or (key in planned and job.is_wanted))

    def _take_gang(self, job: Job, gang: GangSeen) -> None:
        tick = self.tick
        after = lifecycle.take_reports(job, Reported(at_s=tick.now_s, token=gang.token, reports=gang.reports))
        if after.steps_done > job.steps_done:
            after = self._isolated(after, after.steps_done - job.steps_done)
        end = lifecycle.ended(after, gang, tick.now_s)
        if end is not None or after is not job:
            after = lifecycle.account_time(after, gang, tick.now_s)
        if end is not None:
            cost_s = switching.measured_s(after, gang)
            if cost_s is not None:
                tick.switch_cost_s.append((job.spec.kind, cost_s))
            self._end(after, end)
        elif after is not job:
            tick.put(after)

    def _end(self, job: Job, end: Ended) -> None:
        tick, done_before = self.tick, job.steps_done
        end = lifecycle.weighed(job, end, retries=self.lost_retries, backoff_s=self.lost_backoff_s)
        after, line = lifecycle.step(job, end)
        if after.steps_done > done_before:
            after = self._isolated(after, after.steps_done - done_before)
        ahead = tick.rounds[-1].leases if tick.rounds and tick.rounds[-1].starts_at_s >= end.at_s else ()
        for lease in ahead:
            if (lease.job_id, lease.token) == (job.id, end.token):  # it was to stay for a round that it will not see
                after = received(after, lease.accelerator_type, rounds=-1)
        tick.put(after, line)

    def _take_absence(self, job: Job, *, is_held: bool) -> None:
        """A queued job that was cancelled ends here; a leased one whose gang nobody has, and nobody wants, is lost."""
        now_s = self.tick.now_s
        if job.state is JobState.QUEUED and job.cancel_requested:
            gone = Dismissed(
                at_s=now_s, kind=EventKind.CANCELLED, reason="Cancelled", message="cancelled before it ran"
            )
            self.tick.put(*lifecycle.step(job, gone))
        elif job.state is JobState.LEASED and not is_held:
            exit_ = GangExit(outcome=GangOutcome.LOST, message="no trace of its gang")
            kind = EventKind.CANCELLED if job.cancel_requested else EventKind.LOST
            end = Ended(
                at_s=now_s, token=job.token, kind=kind, reason="Lost", message="no trace of its gang", exit=exit_
            )
            self._end(job, end)

    def _isolated(self, job: Job, steps: int) -> Job:
        alive, known = len(self.tick.jobs), as_known(job, self.estimator)
        after = isolated(known, steps, jobs_alive=alive, layout=self.layout, estimate=self.estimator.estimate)
        return replace(after, spec=job.spec)
