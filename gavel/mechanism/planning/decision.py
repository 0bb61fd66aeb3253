"""Decides a round: problem, allocation with its fallbacks, plan, checks. It calls nothing but the policy runner."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import structlog

from gavel.composition import effective
from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed
from gavel.mechanism.cluster import nodes
from gavel.mechanism.cluster.feasibility import Feasibility
from gavel.mechanism.cluster.placement import Layout
from gavel.mechanism.planning.behind import served_first
from gavel.mechanism.planning.caps import capped
from gavel.mechanism.planning.guests import GuestInputs, guests_of, hosts_of
from gavel.mechanism.planning.invariants import check_allocation, check_plan, needs_are_met
from gavel.mechanism.planning.non_preemptible import of_tiers, staying, used_of_kept, without_ended
from gavel.mechanism.planning.planner import Ledger, plan_round, shares_of
from gavel.mechanism.planning.problem import (
    Matrix,
    Solved,
    as_known,
    problem_from,
    restricted,
    reused,
    with_new_jobs,
    with_staying,
)
from gavel.mechanism.planning.profiling import unmeasured
from gavel.mechanism.planning.replanning import with_guests, with_kept
from gavel.mechanism.planning.reserved_leases import duration_s, reserved_instants, with_reserved_leases
from gavel.mechanism.planning.shared_sessions import with_sessions_that_join
from gavel.mechanism.planning.sharing import pair_rates
from gavel.mechanism.planning.sizes import ConfiguredJobs, SizeInputs, in_their_sizes
from gavel.mechanism.planning.start_budget import charged
from gavel.mechanism.planning.starting import starting
from gavel.mechanism.planning.switch_costs import blended, with_startups
from gavel.mechanism.tick import Tick
from gavel.ports import Policy, PolicyRunner, ProfilingChoice, ThroughputEstimator
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    Fallback,
    FloatArray,
    GangState,
    Job,
    JobId,
    Lease,
    PlanInputs,
    PlannedJobs,
    RoundPlan,
    RoundRecord,
    Used,
)

log = structlog.get_logger("gavel.decision")

SOLVED = "solved"
MOST_ERROR_CHARACTERS = 2000
REUSED = "reused"  # solver outcome of a round in which no new solve was due


class Decider:
    """Decides rounds; keeps the last problem and its answer, so that the same problem is not solved again."""

    def __init__(
        self,
        *,
        runner: PolicyRunner,
        fallback: Policy,
        settings: Settings,
        choose_profiling: ProfilingChoice | None = None,
    ) -> None:
        self._runner = runner
        self._fallback = fallback
        self._service = settings
        self._chosen = ""  # the composition that `settings` are the service's with
        self.settings = settings
        self._choose_profiling = choose_profiling or unmeasured
        self._solved: Solved | None = None  # a restart solves once more, no harm
        self._layout = Layout(Cluster())
        self._unreported: list[tuple[str, float]] = []  # of gangs that ended since the last round was decided
        self._switch_cost_s: Mapping[str, float] | None = None  # as the last round has it, until one was measured

    def learn_costs(self, tick: Tick) -> None:
        """Learn the switch costs from the gangs that ended in this tick."""
        for kind, cost_s in tick.switch_cost_s:
            self._switch_cost_s = blended(self._measured_s(tick), kind, cost_s)
        self._unreported.extend(tick.unreported)

    def switch_cost_s(self, tick: Tick) -> Mapping[str, float]:
        """Return the seconds that a start and a stop cost together, by job kind, as known so far."""
        return with_startups(self._measured_s(tick), tick.startup_times)

    def _measured_s(self, tick: Tick) -> Mapping[str, float]:
        if self._switch_cost_s is not None:
            return self._switch_cost_s
        return tick.snapshot.round_records[-1].switch_cost_s if tick.snapshot.round_records else {}

    def decide(
        self, tick: Tick, jobs: Sequence[Job], starts_at_s: float, estimator: ThroughputEstimator
    ) -> RoundRecord:
        """Return the round that starts at `starts_at_s`, with all that is needed to decide it again.

        Raises InvariantViolated if its allocation or its plan breaks an invariant.
        """
        self.follow(tick)
        last = tick.round_records[-1] if tick.round_records else None
        parent = without_ended(last.plan, tick.now_s) if last else None
        # 1. who stays whatever the policy wants, and what is left to share
        lasts_s = duration_s(starts_at_s, self.settings.round_duration_s, reserved_instants(tick))
        ends_at_s = starts_at_s + lasts_s
        kept = self._kept(tick, parent, starts_at_s, ends_at_s)
        staying_jobs = {lease.job_id for lease in kept}
        free_jobs = [as_known(job, estimator) for job in jobs if job.id not in staying_jobs]
        costs, unreported_s = self.switch_cost_s(tick), self._charge_unreported(last, starts_at_s)
        early = starting(
            tick, free_jobs, starts_at_s, start_limit_s=self.settings.start_limit_s, unreported_s=unreported_s
        )
        cluster = nodes.usable(tick.usable, {}, [w for lease in kept for w in lease.worker_ids])
        # 2. how the rest shares it
        used = self._lay_out(tick, cluster, kept, free_jobs)
        configured = self._configured(tick, free_jobs, estimator, parent, early, starts_at_s)
        free_jobs = configured.jobs
        matrix = configured.with_plans(estimator.matrix)
        problem = self._problem(tick, free_jobs, self._layout.feasibility, estimator, last, matrix)
        problem = with_staying(replace(problem, configurations=configured.configurations), of_tiers(tick, kept))
        allocation, outcome = self.allocation_of(problem, last.allocation if last else None)
        # 3. who goes where
        inputs = PlanInputs(
            policy=self.settings.policy,
            cluster=cluster,
            jobs=PlannedJobs.of(free_jobs),
            parent=parent,
            starts_at_s=starts_at_s,
            duration_s=lasts_s,
            kept=kept,
            used=used,
            to_profile=self._to_profile(configured, problem, estimator),
            profiling_workers_fraction=self.settings.profiling_workers_fraction,
            planner=self.settings.planner,
            is_new_allocation=outcome != REUSED,
            switch_cost_s=costs if self.settings.price_moves else {},
            minimum_run_s=self.settings.minimum_run_s,
            started_at_s=_started_at_s(tick) if self.settings.minimum_run_s > 0 else {},
            starting=early,
            plan_on=configured.plan_on,
            late=served_first(configured.late, problem, allocation),
        )
        lag_before = last.lag_rounds if last else {}
        plan, lag = plan_round(
            inputs, problem=problem, allocation=allocation, lag_rounds=lag_before, layout=self._layout
        )
        given, plan = plan.leases, with_kept(plan, inputs)
        inputs = replace(inputs, guests=self._guests(tick, plan, inputs, free_jobs, lag, estimator))
        given, plan = (*given, *inputs.guests), with_guests(plan, inputs.guests)
        needs_are_met(given, plan.leases, tick.seen.cluster, tick.jobs)
        check_plan(plan, cluster=tick.seen.cluster, jobs=tick.jobs, parent=parent)
        return RoundRecord(
            plan=plan,
            problem=problem,
            allocation=allocation,
            lag_rounds=lag,
            solver_outcome=outcome,
            switch_cost_s=self._measured_s(tick),
            unreported_s=unreported_s,
            inputs=inputs,
        )

    def _kept(self, tick: Tick, parent: RoundPlan | None, starts_at_s: float, ends_at_s: float) -> tuple[Lease, ...]:
        """The leases that are given before anything is planned: of gangs that stay, and of sessions, see there."""
        kept = staying(tick, parent, starts_at_s=starts_at_s, ends_at_s=ends_at_s) if parent else ()
        kept = with_reserved_leases(tick, parent, kept, starts_at_s=starts_at_s, ends_at_s=ends_at_s)
        return with_sessions_that_join(tick, parent, kept, round_duration_s=self.settings.round_duration_s)

    def _lay_out(self, tick: Tick, cluster: Cluster, kept: Sequence[Lease], jobs: Sequence[Job]) -> dict[str, Used]:
        """Set the layout to the workers that are left to share, and return what gangs that stay hold of each node."""
        held = [(lease.worker_ids, tick.jobs[lease.job_id].spec.needs) for lease in kept]
        used = used_of_kept(held, (job.spec.needs for job in jobs), tick.seen.cluster)
        if (self._layout.cluster, self._layout.used) != (cluster, used):
            self._layout = Layout(cluster, used)
        return used

    def _guests(
        self,
        tick: Tick,
        plan: RoundPlan,
        inputs: PlanInputs,
        jobs: Sequence[Job],
        lag: Ledger,
        estimator: ThroughputEstimator,
    ) -> tuple[Lease, ...]:
        """The leases of trainings beside sessions in the round, where jobs may share workers at all."""
        hosts = hosts_of(tick, plan) if self.settings.space_sharing else []
        if not hosts:
            return ()
        served = {lease.job_id for lease in plan.leases}
        chosen_from = GuestInputs(
            plan=plan,
            hosts=hosts,
            waiting=[job for job in jobs if job.id not in served],
            behind={job_id for (job_id, _), rounds in lag.items() if rounds > 0},
            parent=inputs.parent,
            estimator=estimator,
            switch_cost_s=self.switch_cost_s(tick),
        )
        return guests_of(tick, chosen_from)

    def _configured(
        self,
        tick: Tick,
        jobs: Sequence[Job],
        estimator: ThroughputEstimator,
        parent: RoundPlan | None,
        early: Collection[JobId],
        starts_at_s: float,
    ) -> ConfiguredJobs:
        """The jobs of the round in their sizes and plans; those that start, or have not run their minimum yet, keep
        theirs.
        """
        if not tick.index.configurable:
            return ConfiguredJobs(jobs=list(jobs))
        submitted = [tick.jobs[job.id] if job.spec.has_choice else job for job in jobs]
        since_s = starts_at_s - self.settings.minimum_run_s
        young = {job_id for job_id, at_s in _started_at_s(tick).items() if at_s > since_s}
        held = _held(tick, parent)
        inputs = SizeInputs(
            feasibility=self._layout.feasibility,
            matrix=estimator.matrix,
            marks=tick.infeasible,
            held={job_id: (lease.accelerator_type, len(lease.worker_ids)) for job_id, lease in held.items()},
            plan_held={job_id: lease.plan for job_id, lease in held.items()},
            staying=young.union(early),
            restart_s=self.switch_cost_s(tick),
            round_duration_s=self.settings.round_duration_s,
            of_own_kind=lambda job: as_known(job, estimator),
            now_s=tick.now_s,
        )
        return in_their_sizes(submitted, inputs)

    def _to_profile(
        self, configured: ConfiguredJobs, problem: AllocationProblem, estimator: ThroughputEstimator
    ) -> tuple[tuple[JobId, AcceleratorType], ...]:
        """What the round measures; no job that may not be preempted, which would lose its place after the round.

        A job with plans measures those that are due.
        """
        jobs, plans = configured.jobs, configured.plans
        staying = {job.id for job in jobs if not job.spec.preemptible}
        chosen = [pair for pair in self._choose_profiling(jobs, problem, estimator) if pair[0] not in plans]
        chosen += [(job.id, name) for job in jobs if job.id in plans for name in plans[job.id].due(job.rounds_received)]
        return tuple(pair for pair in chosen if pair[0] not in staying)

    def _charge_unreported(self, last: RoundRecord | None, starts_at_s: float) -> dict[str, float]:
        """Return how long each user's gangs have held workers without a report, those that ended until now."""
        ended, self._unreported = self._unreported, []
        return charged(
            last.unreported_s if last else {},
            ended,
            starts_at_s - last.plan.starts_at_s if last else 0.0,
            start_limit_s=self.settings.start_limit_s,
        )

    def follow(self, tick: Tick) -> None:
        """Set `settings` to those of the composition in force, and forget the last answer if it is another one."""
        chosen = tick.snapshot.policy if tick.policy is None else tick.policy
        if chosen != self._chosen:
            self._chosen, self.settings, self._solved = chosen, effective(self._service, chosen), None

    def forget(self) -> None:
        """Solve anew for the next round, however young the last answer is."""
        self._solved = None

    def _problem(
        self,
        tick: Tick,
        jobs: Sequence[Job],
        feasibility: Feasibility,
        estimator: ThroughputEstimator,
        last: RoundRecord | None,
        matrix: Matrix,
    ) -> AllocationProblem:
        settings = self.settings
        return problem_from(
            jobs,
            feasibility=feasibility,
            tiers=tick.snapshot.tiers,
            matrix=matrix,
            now_s=tick.now_s,
            round_duration_s=settings.round_duration_s,
            pair_rates=pair_rates(jobs, feasibility.cluster, estimator, settings),
            warm_start=last.allocation.warm_start if last else {},
        )

    def allocation_of(self, problem: AllocationProblem, last: Allocation | None) -> tuple[Allocation, str]:
        """Return the allocation of a round, within the caps of tiers, and the solver's outcome; `last`: the one before.

        Raises InvariantViolated.
        """
        allocation, outcome = self._allocate(problem, last)
        allocation = capped(allocation, problem)
        check_allocation(allocation)
        return allocation, outcome

    def targets(self, tick: Tick, jobs: Sequence[Job], layout: Layout, estimator: ThroughputEstimator) -> Ledger:
        """Return the fractions, by job and type, that the policy gives jobs that wait in the middle of a round."""
        last = tick.round_records[-1] if tick.round_records else None
        waiting = [as_known(job, estimator) for job in jobs]
        problem = self._problem(tick, waiting, layout.feasibility, estimator, last, estimator.matrix)
        cells = self.fractions_now(problem)
        ids, types = problem.job_ids, problem.accelerator_types
        return {(ids[row], types[column]): float(cells[row, column]) for row, column in np.argwhere(cells > 0).tolist()}

    def fractions_now(self, problem: AllocationProblem) -> FloatArray:
        """Return the fractions (n, m) that the policy gives the jobs of a problem each alone; zeros if it gives none.

        It is not asked where there has to be some time from one solve to the next.
        """
        alone = replace(problem, pair_rates=None)
        nothing = np.zeros((len(problem.job_ids), len(problem.accelerator_types)))
        if self.settings.allocation_interval_s > 0 or not self._runner.warm():
            return nothing
        try:
            answer = self._runner.allocate(self.settings.policy, alone, self._solve_limit_s(problem))
            check_allocation(answer)
        except (SolveFailed, InvalidRequest, InvariantViolated) as error:
            log.warning("solve.failed", policy=self.settings.policy, error=str(error)[:MOST_ERROR_CHARACTERS])
            return nothing
        return shares_of(answer, alone).of_job

    def _solve_limit_s(self, problem: AllocationProblem) -> float:
        return min(self.settings.solve_time_limit_s, 0.2 * problem.round_duration_s)

    def serves_after_progress(self, now_s: float) -> bool:
        """Return True if the last answer of the policy serves all problems with the same jobs, however they progress.

        Whoever knows that jobs, workers and tiers are those of the last answer does not have to make the problem.
        """
        return self._solved is not None and self._solved.serves_after_progress(
            now_s, solve_on=self.settings.solve_on, interval_s=self.settings.allocation_interval_s
        )

    def _allocate(self, problem: AllocationProblem, last: Allocation | None) -> tuple[Allocation, str]:
        """The policy's answer within its limit; else the last valid one, for the present jobs; else the equal share."""
        if self._solved and self._solved.serves(
            problem, solve_on=self.settings.solve_on, interval_s=self.settings.allocation_interval_s
        ):
            return reused(self._solved, problem), REUSED
        try:
            if self._runner.warm():
                answer = self._runner.allocate(self.settings.policy, problem, self._solve_limit_s(problem))
                check_allocation(answer)  # the policy's fault, if any: no reason to stop planning
                self._solved = Solved(problem=problem, allocation=answer)
                return answer, SOLVED
            failure = "the policy runner is starting"
        except (SolveFailed, InvalidRequest, InvariantViolated) as error:
            failure = str(error)[:MOST_ERROR_CHARACTERS]
        log.warning("solve.failed", policy=self.settings.policy, error=failure)
        return self._without(failure, problem, last)

    def _without(self, failure: str, problem: AllocationProblem, last: Allocation | None) -> tuple[Allocation, str]:
        """The allocation used while the policy fails: the last valid one, else the equal share.

        A job that came after the last valid one has its equal share beside it: it would wait for as long as every
        solve fails, behind jobs that never end.
        """
        before = last.fallback if last else None
        goes_on = before is not None and before.policy == self.settings.policy
        since_s = before.since_s if before is not None and goes_on else problem.now_s
        why = Fallback(policy=self.settings.policy, error=failure, since_s=since_s, instead="last allocation kept")
        shared = self._fallback.allocate(replace(problem, pair_rates=None))
        if last is not None and set(last.accelerator_types) == set(problem.accelerator_types):
            kept = with_new_jobs(
                restricted(last, problem), last, shared, dict(zip(problem.job_ids, problem.users, strict=True))
            )
            return replace(kept, fallback=why), f"{why.instead}: {failure}"
        why = replace(why, instead="equal share")
        return replace(shared, is_fallback=True, fallback=why), f"{why.instead}: {failure}"


def _held(tick: Tick, parent: RoundPlan | None) -> dict[JobId, Lease]:
    """The lease of the gang that each job has now; of a job with plans also of the one that is about to start."""
    leases = {lease.job_id: lease for lease in (parent.leases if parent else ())}
    now = ((job, leases.get(job.id)) for job in tick.index.leased.values())
    held = {job.id: lease for job, lease in now if lease is not None and lease.generation == job.generation}
    planned = ((job, leases.get(job.id)) for job in tick.index.configurable.values() if job.spec.plans)
    return held | {job.id: lease for job, lease in planned if lease is not None and lease.generation > job.generation}


def _started_at_s(tick: Tick) -> dict[JobId, float]:
    """The instant at which each present gang was started, by job."""
    live = (gang for gang in tick.seen.gangs if gang.state is not GangState.ENDED)
    return {gang.job_id: gang.started_at_s for gang in live if gang.started_at_s is not None}
