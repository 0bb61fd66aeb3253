"""The only loop with side effects: observe, decide, commit once, act."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import structlog

from gavel.config import Settings
from gavel.errors import (
    BackendUnavailable,
    InvalidRequest,
    InvariantViolated,
    SolveFailed,
    StaleVersion,
    StoreUnavailable,
)
from gavel.mechanism import lifecycle
from gavel.mechanism.accounting import explain_waiting, isolated, measurements_of, received, unmeasured
from gavel.mechanism.events import Dismissed, Ended, EventKind, Launched, Reported
from gavel.mechanism.invariants import check_allocation, check_plan
from gavel.mechanism.placement import Layout
from gavel.mechanism.planner import RoundView, plan_round
from gavel.mechanism.problem import Solved, problem_from, restricted, reused, schedulable
from gavel.mechanism.reconcile import Decision, gang_resources, launch, reconcile, resource_name
from gavel.mechanism.tick import Tick
from gavel.ports import (
    Changes,
    Clock,
    ClusterBackend,
    ExtendLease,
    Instruction,
    KeepCheckpoint,
    Policy,
    PolicyRunner,
    SetResources,
    Store,
    ThroughputEstimator,
)
from gavel.types import (
    Allocation,
    AllocationProblem,
    Cluster,
    GangExit,
    GangOutcome,
    GangSeen,
    Job,
    JobId,
    JobState,
    Lease,
    Observation,
    Report,
    RoundPlan,
    RoundRecord,
)

log = structlog.get_logger("gavel.driver")

SOLVER_KEPT_S = 60.0  # how long an idle service keeps its solver warm
REUSED = "reused"  # solver outcome of a round in which no new solve was due
RETRY_S = 0.5  # how long to leave a store or backend alone that did not answer


class Driver:
    """Drives one cluster. Holds nothing that a restart could not rebuild from the store and the backend."""

    def __init__(
        self,
        *,
        store: Store,
        backend: ClusterBackend,
        runner: PolicyRunner,
        estimator: ThroughputEstimator,
        fallback: Policy,
        clock: Clock,
        settings: Settings,
        token_of: Callable[[Job], str] = lambda _: "",
    ) -> None:
        """`token_of` gives the bearer token that a job's programs may call the API with."""
        self._token_of = token_of
        self._store = store
        self._backend = backend
        self._runner = runner
        self._estimator = estimator
        self._fallback = fallback
        self._clock = clock
        self._settings = settings
        self._cluster = Cluster()
        self._layout = Layout(self._cluster)
        self._solved: Solved | None = None  # a restart solves once more, no harm
        self._decision_s: deque[float] = deque(maxlen=100)
        self._busy_at_s = clock.now_s()
        self._has_learned = False
        self._unread: dict[tuple[JobId, int], tuple[Report, ...]] = {}  # handed over, but not committed yet
        self._extended: dict[tuple[JobId, int], float] = {}
        self._told: dict[str, float] = {}  # resource of each extended gang -> when it was told to end
        self.halted: str | None = None  # the invariant that stopped planning, if any
        self.is_idle = True  # no job wants anything and no gang is left, as of the last tick

    def tick(self) -> float:
        """Do all that is due now; the next instant at which there is something to do unasked (+inf: nothing)."""
        now_s = self._clock.now_s()
        try:
            seen = self._observe()  # 1. what is
            snapshot = self._store.snapshot()
            tick = Tick(now_s=now_s, seen=seen, snapshot=snapshot, jobs=dict(snapshot.jobs))
            self._take_observation(tick)  # 2. what that means for each job, and for the estimates
            self._plan_if_due(tick)  # 3. who runs where in the next round
            self._explain(tick)
            decision = self._reconcile(tick)  # 4. what to tell the cluster
            self._commit(tick)  # 5. the one commit
            self._execute(tick, decision)  # 6. act
        except (BackendUnavailable, StoreUnavailable, StaleVersion) as error:
            log.warning("tick.skipped", error=str(error))
            return now_s + RETRY_S
        self._rest_if_idle(tick)
        return self._next_instant_s(tick)

    def _rest_if_idle(self, tick: Tick) -> None:
        """An idle service needs no solver in memory; the next job starts it again."""
        self.is_idle = not (tick.jobs or tick.seen.gangs)
        if not self.is_idle:
            self._busy_at_s = tick.now_s
        elif tick.now_s - self._busy_at_s > SOLVER_KEPT_S:
            self._runner.close()

    def _observe(self) -> Observation:
        """The backend's view, with the reports that an earlier tick could not commit put first."""
        seen = self._backend.observe()
        gangs = tuple(
            replace(gang, reports=(*unread, *gang.reports)) if unread else gang
            for gang in seen.gangs
            for unread in (self._unread.get((gang.job_id, gang.token), ()),)
        )
        if self._layout.cluster != seen.cluster:
            self._layout = Layout(seen.cluster)
        self._unread = {(gang.job_id, gang.token): gang.reports for gang in gangs if gang.reports}
        return replace(seen, gangs=gangs)

    # --- 2 observation -> jobs ----------------------------------------------------------------------------------

    def _take_observation(self, tick: Tick) -> None:
        for gang in tick.seen.gangs:
            job = tick.jobs.get(gang.job_id)
            if job is not None and gang.token == job.token:
                self._take_gang(tick, job, gang)
        seen = {(gang.job_id, gang.token) for gang in tick.seen.gangs}
        in_force = (plan for plan in tick.rounds if plan.starts_at_s <= tick.now_s < plan.ends_at_s)
        planned = {(lease.job_id, lease.token) for plan in in_force for lease in plan.leases}
        for job in list(tick.jobs.values()):
            key = (job.id, job.token)
            self._take_absence(tick, job, is_held=key in seen or (key in planned and not job.cancel_requested))

    def _take_gang(self, tick: Tick, job: Job, gang: GangSeen) -> None:
        after = lifecycle.take_reports(job, Reported(at_s=tick.now_s, token=gang.token, reports=gang.reports))
        if after.steps_done > job.steps_done:
            after = self._isolated(tick, after, after.steps_done - job.steps_done)
        measured = measurements_of(job, gang)
        if measured:
            self._estimator = self._estimator.learn(measured)
            self._has_learned = True
        end = lifecycle.ended(after, gang, tick.now_s)
        if end is not None or after is not job:
            after = lifecycle.account_time(after, gang, tick.now_s)
        if end is not None:
            self._end(tick, after, end)
        elif after is not job:
            tick.put(after)

    def _end(self, tick: Tick, job: Job, end: Ended) -> None:
        done_before = job.steps_done
        after, line = lifecycle.step(job, end)
        if after.steps_done > done_before:
            after = self._isolated(tick, after, after.steps_done - done_before)
        ahead = tick.rounds[-1].leases if tick.rounds and tick.rounds[-1].starts_at_s >= end.at_s else ()
        for lease in ahead:
            if (lease.job_id, lease.token) == (job.id, end.token):  # it was to stay for a round that it will not see
                after = received(after, lease.accelerator_type, rounds=-1)
        tick.put(after, line)

    def _take_absence(self, tick: Tick, job: Job, *, is_held: bool) -> None:
        """A queued job that was cancelled ends here; a leased one whose gang nobody has, and nobody wants, is lost."""
        if job.state is JobState.QUEUED and job.cancel_requested:
            gone = Dismissed(
                at_s=tick.now_s, kind=EventKind.CANCELLED, reason="Cancelled", message="cancelled before it ran"
            )
            tick.put(*lifecycle.step(job, gone))
        elif job.state is JobState.LEASED and not is_held:
            exit_ = GangExit(outcome=GangOutcome.LOST, message="no trace of its gang")
            kind = EventKind.CANCELLED if job.cancel_requested else EventKind.LOST
            end = Ended(
                at_s=tick.now_s, token=job.token, kind=kind, reason="Lost", message="no trace of its gang", exit=exit_
            )
            tick.put(*lifecycle.step(job, end))

    def _isolated(self, tick: Tick, job: Job, steps: int) -> Job:
        return isolated(job, steps, jobs_alive=len(tick.jobs), layout=self._layout, estimate=self._estimator.estimate)

    # --- 3 planning ---------------------------------------------------------------------------------------------

    def _plan_if_due(self, tick: Tick) -> None:
        jobs = schedulable(tick.jobs.values())
        starts_at_s = self._next_start_s(tick, jobs)
        if starts_at_s is None or self.halted or not tick.seen.cluster.workers:
            return
        if not self._runner.warm() and not self._anything_runs(tick):
            return  # nothing idles that a moment later would not serve better
        began_s = self._clock.now_s()
        try:
            tick.record = self._decide(tick, jobs, starts_at_s)
        except InvariantViolated as violation:
            self.halted = str(violation)
            log.error("planning.halted", invariant=violation.name, detail=str(violation))
            return
        self._decision_s.append(max(0.0, self._clock.now_s() - began_s))

    def _next_start_s(self, tick: Tick, jobs: list[Job]) -> float | None:
        """When the round to be decided now starts; None if none is due."""
        newest = tick.rounds[-1] if tick.rounds else None
        if not jobs or (newest and newest.starts_at_s > tick.now_s):
            return None
        live = {job.id for job in jobs}
        if newest is None or newest.ends_at_s <= tick.now_s or not any(x.job_id in live for x in newest.leases):
            return tick.now_s
        return newest.ends_at_s if tick.now_s >= self._planning_instant_s(newest) else None

    def _planning_instant_s(self, plan: RoundPlan) -> float:
        slowest = float(np.quantile(self._decision_s, 0.99)) if self._decision_s else 0.0
        lead = max(self._settings.planning_lead_fraction * plan.duration_s, 2 * slowest)
        return plan.ends_at_s - min(lead, plan.duration_s)

    def _anything_runs(self, tick: Tick) -> bool:
        return any(job.state is JobState.LEASED for job in tick.jobs.values())

    def _decide(self, tick: Tick, jobs: list[Job], starts_at_s: float) -> RoundRecord:
        last = tick.snapshot.rounds[-1] if tick.snapshot.rounds else None
        duration_s = self._settings.round_duration_s
        problem = problem_from(
            jobs,
            cluster=tick.seen.cluster,
            tiers=tick.snapshot.tiers,
            estimate=self._estimator.estimate,
            now_s=tick.now_s,
            round_duration_s=duration_s,
            warm_start=last.allocation.warm_start if last else {},
        )
        allocation, outcome = self._allocate(problem, last)
        check_allocation(allocation)
        view = RoundView(
            jobs=jobs,
            cluster=tick.seen.cluster,
            problem=problem,
            allocation=allocation,
            owed_rounds=last.owed_rounds if last else {},
            parent=last.plan if last else None,
            starts_at_s=starts_at_s,
            duration_s=duration_s,
            to_profile=unmeasured(jobs, problem, self._estimator.estimate),
            profiling_workers_fraction=self._settings.profiling_workers_fraction,
            planner=self._settings.planner,
            is_new_allocation=outcome != REUSED,
            layout=self._layout,
        )
        plan, owed = plan_round(view)
        check_plan(plan, cluster=tick.seen.cluster, jobs=tick.jobs, parent=view.parent)
        return RoundRecord(plan=plan, problem=problem, allocation=allocation, owed_rounds=owed, solver_outcome=outcome)

    def _allocate(self, problem: AllocationProblem, last: RoundRecord | None) -> tuple[Allocation, str]:
        """The policy's answer within its limit; else the last valid one for jobs still alive; else the equal share."""
        limit_s = min(self._settings.solve_time_limit_s, 0.2 * problem.round_duration_s)
        if self._solved and self._solved.serves(
            problem, solve_on=self._settings.solve_on, interval_s=self._settings.allocation_interval_s
        ):
            return reused(self._solved, problem), REUSED
        try:
            if self._runner.warm():
                self._solved = Solved(
                    problem=problem, allocation=self._runner.allocate(self._settings.policy, problem, limit_s)
                )
                return self._solved.allocation, "solved"
            failure = "the policy runner is starting"
        except (SolveFailed, InvalidRequest) as error:
            failure = str(error)
        log.warning("solve.failed", policy=self._settings.policy, error=failure)
        if last is not None and set(last.problem.accelerator_types) == set(problem.accelerator_types):
            return restricted(last.allocation, problem), f"last allocation kept: {failure}"
        return replace(self._fallback.allocate(problem), is_fallback=True), f"equal share: {failure}"

    def _explain(self, tick: Tick) -> None:
        """Tell waiting jobs why, whenever a round was decided or a job's state has changed."""
        if not tick.records or not (tick.record or tick.events):
            return
        for job_id, reason, message in explain_waiting(tick.jobs, tick.records[-1]):
            job = tick.jobs[job_id]
            if (job.reason, job.message) != (reason, message):
                tick.put(replace(job, reason=reason, message=message))

    # --- 4-6 reconcile, commit, act -----------------------------------------------------------------------------

    def _reconcile(self, tick: Tick) -> Decision:
        self._count_kept(tick)
        decision = reconcile(tick.rounds, tick.jobs, tick.seen, lease_grace_s=self._settings.lease_grace_s)
        for lease in decision.launches:
            job = tick.jobs[lease.job_id]
            if job.state is JobState.QUEUED:
                job, line = lifecycle.step(job, _launched(lease, tick.now_s))
                tick.put(received(job, lease.accelerator_type, rounds=1), line)
        return decision

    def _count_kept(self, tick: Tick) -> None:
        """A gang that stays receives the round that was just decided; a new one receives it when it is launched."""
        for lease in tick.record.plan.leases if tick.record else ():
            job = tick.jobs.get(lease.job_id)
            if job is not None and job.state is JobState.LEASED and job.token == lease.token:
                tick.put(received(job, lease.accelerator_type, rounds=1))

    def _commit(self, tick: Tick) -> None:
        cluster = tick.seen.cluster if tick.seen.cluster != self._cluster else None
        is_milestone = bool(tick.record or tick.events)  # estimates change with every report: often enough to keep
        changes = Changes(
            jobs=tuple(tick.changed.values()),
            events=tuple(tick.events),
            round=tick.record,
            cluster=cluster,
            throughputs=self._estimator.table() if self._has_learned and is_milestone else None,
        )
        if changes:
            self._store.commit(tick.snapshot.version, changes)
        self._unread = {}
        self._cluster = tick.seen.cluster
        self._has_learned = self._has_learned and not is_milestone

    def _execute(self, tick: Tick, decision: Decision) -> None:
        node_of = {worker.id: worker.node for worker in tick.seen.cluster.workers}
        instructions: list[Instruction] = []
        for job in tick.changed.values():
            before = tick.snapshot.jobs.get(job.id)
            if job.checkpoint and (before is None or before.checkpoint != job.checkpoint):
                instructions.append(KeepCheckpoint(job_id=job.id, checkpoint=job.checkpoint))
        instructions += [each for each in decision.instructions if not self._is_told(each)]
        for lease in decision.launches:
            instructions.append(gang_resources(lease, node_of, lease_grace_s=self._settings.lease_grace_s))
            job = tick.jobs[lease.job_id]
            instructions.append(launch(lease, job, job_token=self._token_of(job)))
        if instructions:
            self._backend.execute(instructions)
        self._remember(tick, instructions)

    def _is_told(self, instruction: Instruction) -> bool:
        """Extensions are repeated by every reconcile; the backend need hear each but once."""
        match instruction:
            case ExtendLease(job_id=job_id, token=token, expires_at_s=expires_at_s):
                return self._extended.get((job_id, token)) == expires_at_s
            case SetResources(resources=resources):
                return all(self._told.get(each.name) == each.lease_expires_at_s for each in resources)
        return False

    def _remember(self, tick: Tick, instructions: list[Instruction]) -> None:
        alive = {(gang.job_id, gang.token) for gang in tick.seen.gangs}
        self._extended = {key: value for key, value in self._extended.items() if key in alive}
        for each in instructions:
            if isinstance(each, ExtendLease):
                self._extended[(each.job_id, each.token)] = each.expires_at_s
        grace_s = self._settings.lease_grace_s
        self._told = {resource_name(*key): expires_at_s + grace_s for key, expires_at_s in self._extended.items()}

    def _next_instant_s(self, tick: Tick) -> float:
        if not tick.rounds or not tick.jobs:
            return float("inf")
        newest = tick.rounds[-1]
        if newest.starts_at_s > tick.now_s:
            return newest.starts_at_s
        if not tick.seen.cluster.workers:
            return float("inf")  # nothing can be planned until a worker comes
        return max(tick.now_s, self._planning_instant_s(newest))


def _launched(lease: Lease, at_s: float) -> Launched:
    return Launched(
        at_s=at_s,
        token=lease.token,
        round_index=lease.round_index,
        accelerator_type=lease.accelerator_type,
        worker_ids=lease.worker_ids,
    )
