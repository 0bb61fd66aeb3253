"""The only loop with side effects: observe, decide, commit once, act."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from gavel.config import Settings
from gavel.errors import BackendUnavailable, InvariantViolated, NotFound, StaleVersion, StoreUnavailable
from gavel.mechanism.cluster import nodes, resources
from gavel.mechanism.cluster.configured import by_settings
from gavel.mechanism.cluster.losses import time_to_loss_s
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.cluster.reconcile import Actions, gang_key, gang_resources, launch, reconcile
from gavel.mechanism.cluster.warm_starts import preparations
from gavel.mechanism.commands.table import apply_commands
from gavel.mechanism.exchange import Exchange
from gavel.mechanism.explaining.explanations import Explanations
from gavel.mechanism.explaining.forecast import errors_of, predictions
from gavel.mechanism.explaining.preemption_audit import preemptions
from gavel.mechanism.jobs import admission_holds, disk_holds, lifecycle
from gavel.mechanism.jobs.events import Launched
from gavel.mechanism.jobs.index import JobIndex
from gavel.mechanism.jobs.infeasibility import ruled_out
from gavel.mechanism.jobs.sizes import sizes_taken
from gavel.mechanism.observing.accounting import count_kept, received
from gavel.mechanism.observing.charging import charges
from gavel.mechanism.observing.colocation import colocated
from gavel.mechanism.observing.metric_points import metric_points
from gavel.mechanism.observing.observation import apply_observation, learned
from gavel.mechanism.observing.sessions import LastUse, look_at_sessions
from gavel.mechanism.planning import timing
from gavel.mechanism.planning.backfill import backfill, gap_of
from gavel.mechanism.planning.decision import Decider
from gavel.mechanism.planning.non_preemptible import limit, restored
from gavel.mechanism.planning.regions import HomeChoice, choose_homes
from gavel.mechanism.planning.relocating import Relocation
from gavel.mechanism.planning.reserved_leases import late_sessions
from gavel.mechanism.planning.round_times import RoundTimes
from gavel.mechanism.planning.topology import keep_in_one_place
from gavel.mechanism.services import spread, tend_services
from gavel.mechanism.tick import Tick
from gavel.ports import (
    Changes,
    Clock,
    ClusterBackend,
    Instruction,
    KeepCheckpoint,
    Policy,
    PolicyRunner,
    ProfilingChoice,
    SchedulerStore,
    Snapshot,
    ThroughputEstimator,
)
from gavel.types import Cluster, DiskState, Job, JobId, JobState, Observation, OperationState, Reason
from gavel.types.copying import changed

log = structlog.get_logger("gavel.driver")

SOLVER_KEPT_S = 60.0  # how long an idle service keeps its solver warm
MOST_PREDICTED = 256  # jobs a round, the first ones
RETRY_S = 0.5  # how long to leave a store or backend alone that did not answer


class Driver:
    """Drives one cluster. Holds nothing that a restart could not rebuild from the store and the backend."""

    def __init__(  # noqa: PLR0913  the composition root names its parts
        self,
        *,
        store: SchedulerStore,
        backend: ClusterBackend,
        runner: PolicyRunner,
        estimator: ThroughputEstimator,
        fallback: Policy,
        clock: Clock,
        settings: Settings,
        tokens_of: Callable[[Sequence[Job]], Mapping[JobId, str]] = lambda _: {},
        choose_profiling: ProfilingChoice | None = None,
        disk: Callable[[], DiskState] = DiskState,
        last_use: LastUse = lambda job_id, generation: None,
        choose_homes: HomeChoice = choose_homes,
    ) -> None:
        """`tokens_of` gives the bearer tokens that jobs' programs may call the API with.

        `choose_profiling` says what each round measures; by default all that nobody knows, as far as there is room.
        `disk` says whose jobs may not start for lack of disk; by default there is no lack. `last_use` says when a
        session was last used; by default nobody knows. `choose_homes` says in which region each job runs.
        """
        self._decider = Decider(runner=runner, fallback=fallback, settings=settings, choose_profiling=choose_profiling)
        self._relocation = Relocation(settings.regions, choose_homes)
        self._tokens_of = tokens_of
        self._disk = disk
        self._last_use = last_use
        self._due_at_s = timing.NEVER_S  # when a session may be over, or something of a service is due
        self._store = store
        self._backend = backend
        self._runner = runner
        self._estimator = estimator
        self._clock = clock
        self._settings = settings
        self._stored_cluster = Cluster()
        self._observed_cluster = Cluster()  # as the backend has it, without what the operator states
        self._layout = Layout(Cluster())
        self._decision_times = timing.DecisionTimes()
        self._exchange = Exchange()
        self._index = JobIndex()
        self._explanations = Explanations()
        self._round_times = RoundTimes()
        self._busy_at_s = clock.now_s()
        self._has_new_estimates = False
        self._unfilled: tuple[object, ...] | None = None  # the last gap that nobody could fill
        self.newest_round = (0, 0.0)  # its index, and seconds from the observation to its commit
        self.ticks = 0  # completed ones
        self.skipped = ""  # why the last tick was skipped; empty if it was not
        self.halted: str | None = None  # the invariant that stopped planning, if any
        self.is_idle = True  # no job wants anything and no gang is left, as of the last tick

    def tick(self) -> float:
        """Do all that is due now; return the instant at which something is due next (+inf: nothing)."""
        now_s = self._clock.now_s()
        try:
            seen = self._observe()  # 1. what is
            snapshot = self._in_time(self._store.snapshot(), now_s)
            tick = Tick.of(now_s, seen, snapshot, self._index)
            tick.disk = self._disk()
            tick.rounds_over = self._round_times.over(
                self._clock.steady_s(), lease_grace_s=self._settings.lease_grace_s
            )
            self._take_observation(tick)  # 2. what that means for nodes, jobs and estimates
            apply_commands(tick)  # 3. what was asked for
            self._due_at_s = min(self._due_at_s, tend_services(tick))
            self._decider.follow(tick)
            tick.instructions.extend(resources.instructions(tick.resources, tick.seen))
            tick.instructions.extend(disk_holds.saves(tick.seen.gangs, tick.disk))
            tick.instructions.extend(nodes.cordons(tick.nodes, tick.seen))
            self._hold(tick)
            self._plan_if_due(tick)  # 4. who runs where in the next round, and on what is free in this one
            self._backfill(tick)
            self._predict(tick)
            self._explain(tick)
            decision = self._reconcile(tick)  # 5. what to tell the cluster
            self._commit(tick)  # 6. the one commit
            if tick.record:
                self.newest_round = (tick.record.plan.round_index, self._clock.now_s() - now_s)
            self._execute(tick, decision)  # 7. act
        except (BackendUnavailable, StoreUnavailable, StaleVersion) as error:
            self.skipped = str(error)
            log.warning("tick.skipped", error=str(error))
            return now_s + RETRY_S
        self.ticks, self.skipped = self.ticks + 1, ""
        self._rest_if_idle(tick)
        return self._next_instant_s(tick)

    def _in_time(self, snapshot: Snapshot, now_s: float) -> Snapshot:
        """Return the snapshot with its rounds by the clock of this service."""
        before = self._round_times.step
        records = self._round_times.in_time(snapshot.round_records, now_s, self._clock.steady_s())
        if self._round_times.step != before:
            self._decider.forget()
        return replace(snapshot, round_records=records)

    def _rest_if_idle(self, tick: Tick) -> None:
        """Close the solver of a service that has been idle for SOLVER_KEPT_S; the next job starts it again."""
        self.is_idle = not tick.seen.gangs and all(job_id in tick.held for job_id in tick.jobs)
        if not self.is_idle:
            self._busy_at_s = tick.now_s
        elif tick.now_s - self._busy_at_s > SOLVER_KEPT_S:
            self._runner.close()

    def _observe(self) -> Observation:
        """The backend's observation, with the reports that an earlier tick could not commit put first."""
        seen = self._exchange.with_uncommitted(self._backend.observe())
        if self._observed_cluster != seen.cluster:
            self._observed_cluster = seen.cluster
            self._layout = Layout(by_settings(seen.cluster, self._settings))
        return replace(seen, cluster=self._layout.cluster)

    # --- 2 observation -> nodes, jobs, estimates ----------------------------------------------------------------

    def _take_observation(self, tick: Tick) -> None:
        tick.nodes = nodes.look(tick.snapshot.nodes, tick.seen)
        on_same_workers = colocated(tick.seen.gangs)
        estimator = learned(tick, self._layout, self._estimator, on_same_workers)
        self._has_new_estimates = self._has_new_estimates or estimator is not self._estimator
        self._estimator = estimator
        apply_observation(
            tick,
            layout=self._layout,
            estimator=estimator,
            lost_retries=self._settings.lost_retries,
            lost_backoff_s=self._settings.lost_backoff_s,
            start_limit_s=self._settings.start_limit_s,
            colocated=on_same_workers,
        )
        self._due_at_s = look_at_sessions(tick, self._last_use)
        self._decider.learn_costs(tick)
        tick.resources = resources.look(tick.snapshot.resources, tick.seen, tick.jobs)

    def _hold(self, tick: Tick) -> None:
        """Release jobs whose predecessors have completed; find those no round may serve, and order the others."""
        for job in [job for job in tick.index.conditional.values() if job.waits_for]:
            states = {job_id: self._state_of(tick, job_id) for job_id in job.waits_for}
            after, line = admission_holds.release(job, states, tick.now_s)
            if after is not job:
                tick.put(after, *((line,) if line else ()))
        snapshot = tick.snapshot
        tick.held = admission_holds.held_of(tick.index, tiers=snapshot.tiers, usage=snapshot.usage, now_s=tick.now_s)
        tick.held = disk_holds.held(tick.jobs.values(), tick.disk) | tick.held
        self._relocation.settle(tick, self._estimator)
        jobs = tick.index.serving(tick.held, tick.now_s)
        is_any_out = tick.infeasible or any(job.spec.plans for job in tick.index.configurable.values())
        tick.wanting = ruled_out(jobs, tick.infeasible) if is_any_out else jobs
        limit(tick, self._layout, round_duration_s=self._decider.settings.round_duration_s)
        spread(tick, self._layout)
        keep_in_one_place(tick)

    def _state_of(self, tick: Tick, job_id: JobId) -> JobState:
        job = tick.changed.get(job_id) or tick.jobs.get(job_id)
        try:
            return (job or self._store.job(job_id)).state
        except NotFound:  # it ended and was purged in this moment; how it ended nobody knows any more
            return JobState.CANCELLED

    # --- 4 planning ---------------------------------------------------------------------------------------------

    def _plan_if_due(self, tick: Tick) -> None:
        jobs = tick.wanting
        starts_at_s = timing.next_start_s(tick, jobs, self._decider.settings, self._decision_times.slowest_s)
        if starts_at_s is None or self.halted:
            return
        if not self._runner.warm() and not tick.index.leased:
            return  # nothing idles that a moment later would not serve better
        began_s = self._clock.now_s()
        try:
            parent = tick.round_plans[-1] if tick.round_plans else None
            tick.record = self._decider.decide(tick, jobs, starts_at_s, self._estimator)
            for job in sizes_taken(tick.index.configurable, tick.record.problem):
                tick.put(job)
            tick.audit.extend(preemptions(parent, tick.record.plan, tick.jobs, tick.now_s))
        except InvariantViolated as violation:
            self._halt(violation)
            return
        self._decision_times.add(self._clock.now_s() - began_s)

    def _backfill(self, tick: Tick) -> None:
        """Amend the plan in force if workers are free and enough of the round is left to start something."""
        tick.amended = restored(tick)
        if tick.amended or not self._decider.settings.backfill or self.halted:
            return
        gap = gap_of(
            tick,
            self._estimator,
            minimum_lease_fraction=self._settings.minimum_lease_fraction,
            switch_cost_s=self._decider.switch_cost_s(tick),
            planner=self._decider.settings.planner,
            targets=lambda jobs, layout: self._decider.targets(tick, jobs, layout, self._estimator),
        )
        if gap is None or gap.question == self._unfilled:
            return
        try:
            tick.amended = backfill(gap)
        except InvariantViolated as violation:
            self._halt(violation)
        self._unfilled = gap.question if tick.amended is None else None

    def _predict(self, tick: Tick) -> None:
        """Predict start and end of jobs that are in a round for the first time, to compare with what happens."""
        if tick.record is None:
            return
        before = set(tick.snapshot.round_records[-1].problem.job_ids if tick.snapshot.round_records else ())
        new = [tick.jobs[job_id] for job_id in tick.record.problem.job_ids if job_id not in before][:MOST_PREDICTED]
        if new:
            errors = errors_of(self._store.predictions())
            tick.predictions = predictions(tick.record, new, self._estimator, errors)

    def _halt(self, violation: InvariantViolated) -> None:
        self.halted = str(violation)
        log.error("planning.halted", invariant=violation.name, detail=self.halted)

    def _explain(self, tick: Tick) -> None:
        """Set the reasons of waiting jobs after a round was decided or a job has changed; those of held ones always."""
        reasons = dict(tick.held) | late_sessions(tick)
        if tick.round_records and (tick.record or tick.events):
            reasons = {job_id: (Reason.NO_PROGRESS, why) for job_id, why in tick.stalled()} | reasons
            explained = self._explanations.explain(tick.index, tick.round_records[-1], reasons)
            reasons = {each[0]: each[1:] for each in explained} | reasons
        for job_id, (reason, message) in reasons.items():
            job = tick.jobs[job_id]
            is_explained = job.reason is reason and job.message == message
            if job.state is JobState.QUEUED and not is_explained:
                tick.put(changed(job, reason=reason, message=message))

    # --- 5-7 reconcile, commit, act -----------------------------------------------------------------------------

    def _reconcile(self, tick: Tick) -> Actions:
        count_kept(tick)
        grace_s = self._settings.lease_grace_s
        decision = reconcile(
            tick.round_plans,
            tick.jobs,
            tick.seen,
            lease_grace_s=grace_s,
            nodes=tick.nodes,
            sent=self._exchange.sent,
            leases_last_sessions=self._settings.backend == "local",
            over=tick.rounds_over,
        )
        if tick.disk.low:
            decision = replace(decision, launches=())
        if not decision.launches:
            return decision
        rounds = Counter(gang_key(lease) for plan in tick.round_plans for lease in plan.leases)
        for lease in decision.launches:
            if (job := tick.jobs[lease.job_id]).state is JobState.QUEUED:
                job, line = lifecycle.step(job, Launched.of(lease, tick.now_s))
                tick.put(received(job, lease.accelerator_type, rounds=rounds[gang_key(lease)]), line)
        return decision

    def _commit(self, tick: Tick) -> None:
        cluster = tick.seen.cluster if tick.seen.cluster != self._stored_cluster else None
        is_milestone = bool(tick.record or tick.events)  # estimates change with every report: often enough to keep
        kept_nodes = tuple(tick.nodes.values()) if tick.nodes != tick.snapshot.nodes else None
        changes = Changes(
            jobs=tuple(tick.changed.values()),
            made=tuple(tick.made),
            made_at_s=tick.now_s,
            events=tuple(tick.events),
            round=tick.record,
            cluster=cluster,
            nodes=kept_nodes,
            resources=tick.resources if tick.resources != tick.snapshot.resources else None,
            operations=tuple(tick.operations),
            audit=tuple(tick.audit),
            amended=tick.amended and self._round_times.as_written(tick.amended),
            policy=tick.policy,
            autopilot=tick.autopilot,
            predictions=tick.predictions,
            metric_points=metric_points(tick),
            usage=charges(
                tick.snapshot.jobs,
                tick.changed.values(),
                cluster=tick.seen.cluster,
                estimator=self._estimator,
                now_s=tick.now_s,
            ),
            infeasible=tick.infeasible if tick.infeasible is not tick.snapshot.infeasible else None,
            startup_times=tick.startup_times if tick.startup_times is not tick.snapshot.startup_times else None,
            throughputs=self._estimator.table() if self._has_new_estimates and is_milestone else None,
        )
        if changes:
            self._store.commit(tick.snapshot.version, changes)
        self._exchange.committed()
        self._stored_cluster = tick.seen.cluster
        self._has_new_estimates = self._has_new_estimates and not is_milestone

    def _execute(self, tick: Tick, decision: Actions) -> None:
        instructions: list[Instruction] = []
        for job in tick.changed.values():
            before = tick.snapshot.jobs.get(job.id)
            if job.checkpoint and (before is None or before.checkpoint != job.checkpoint):
                instructions.append(KeepCheckpoint(job_id=job.id, checkpoint=job.checkpoint))
        instructions += decision.instructions
        instructions += tick.instructions
        tokens = self._tokens_of([tick.jobs[lease.job_id] for lease in decision.launches])
        for lease in decision.launches:
            instructions.append(gang_resources(lease, self._layout.node_of, lease_grace_s=self._settings.lease_grace_s))
            until_lost_s = time_to_loss_s(tick.snapshot.usage.values(), len(lease.worker_ids))
            token = tokens.get(lease.job_id, "")
            instructions.append(launch(lease, tick.jobs[lease.job_id], job_token=token, time_to_loss_s=until_lost_s))
        instructions += self._preparations(tick)
        if instructions:
            self._backend.execute(instructions)
        self._exchange.heard(instructions, tick.seen.gangs)

    def _preparations(self, tick: Tick) -> Iterable[Instruction]:
        """Return the hints for gangs of the round that was just planned ahead."""
        if tick.record is None or not self._settings.warm_starts:
            return ()
        return preparations(
            tick.record.plan,
            tick.jobs,
            tick.seen,
            reporting_kinds={each.kind for each in tick.startup_times if each.startup_s},
            lease_grace_s=self._settings.lease_grace_s,
        )

    def _next_instant_s(self, tick: Tick) -> float:
        if any(each.state is OperationState.PENDING for each in tick.operations):
            return tick.now_s  # what was told to the backend may be there already
        if tick.record and tick.now_s < tick.record.plan.starts_at_s < tick.now_s + 2 * self._settings.tick_s:
            return tick.now_s  # gangs that stay have to hear of it before the leases of the round before end
        if self.halted:
            return self._due_at_s
        slowest_s = self._decision_times.slowest_s
        planning_s = timing.next_planning_s(tick, tick.wanting, self._decider.settings, slowest_s)
        return min(planning_s, timing.next_pause_end_s(tick, self._settings), self._due_at_s)
