"""One round decided: problem, allocation with its fallbacks, plan, checks. It asks the runner only."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from gavel.config import Settings
from gavel.errors import InvalidRequest, SolveFailed
from gavel.mechanism import nodes
from gavel.mechanism.accounting import unmeasured
from gavel.mechanism.again import inputs_of
from gavel.mechanism.caps import capped
from gavel.mechanism.invariants import check_allocation, check_plan
from gavel.mechanism.placement import Layout
from gavel.mechanism.planner import RoundView, plan_round
from gavel.mechanism.problem import Solved, as_known, problem_from, restricted, reused
from gavel.mechanism.staying import staying, without_ended
from gavel.mechanism.switching import blended
from gavel.mechanism.tick import Tick
from gavel.ports import Policy, PolicyRunner, ProfilingChoice, ThroughputEstimator
from gavel.types import Allocation, AllocationProblem, Cluster, GangState, Job, JobId, Lease, RoundPlan, RoundRecord

log = structlog.get_logger("gavel.decision")

REUSED = "reused"  # solver outcome of a round in which no new solve was due


class Decider:
    """Decides rounds; remembers the last problem it had solved, so that the same one is not solved again."""

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
        self._settings = settings
        self._choose_profiling = choose_profiling or unmeasured
        self._policy = settings.policy
        self._solved: Solved | None = None  # a restart solves once more, no harm
        self._layout = Layout(Cluster())
        self._switch_cost_s: Mapping[str, float] | None = None  # as the last round has it, until one was measured

    def learn_costs(self, tick: Tick) -> None:
        """Take what the gangs that ended spent on starting and stopping."""
        for kind, cost_s in tick.switch_cost_s:
            self._switch_cost_s = blended(self.switch_cost_s(tick), kind, cost_s)

    def switch_cost_s(self, tick: Tick) -> Mapping[str, float]:
        """Seconds that a start and a stop of a job kind cost together, as measured so far."""
        if self._switch_cost_s is not None:
            return self._switch_cost_s
        return tick.snapshot.rounds[-1].switch_cost_s if tick.snapshot.rounds else {}

    def decide(
        self, tick: Tick, jobs: Sequence[Job], starts_at_s: float, estimator: ThroughputEstimator
    ) -> RoundRecord:
        """The round that starts then, with all to decide it again. Raises InvariantViolated."""
        self._follow(tick)
        last = tick.records[-1] if tick.records else None
        parent = without_ended(last.plan, tick.now_s) if last else None
        # 1. who stays whatever the policy wants, and what is left to share
        ends_at_s = starts_at_s + self._settings.round_duration_s
        kept = staying(tick, parent, starts_at_s=starts_at_s, ends_at_s=ends_at_s) if parent else ()
        staying_jobs = {lease.job_id for lease in kept}
        free_jobs = [as_known(job, estimator) for job in jobs if job.id not in staying_jobs]
        cluster = nodes.usable(tick.seen.cluster, tick.nodes, [w for lease in kept for w in lease.worker_ids])
        # 2. how the rest shares it
        problem = self._problem(tick, free_jobs, cluster, estimator, last)
        allocation, outcome = self._allocate(problem, last)
        allocation = capped(allocation, problem)
        check_allocation(allocation)
        # 3. who goes where
        costs = self.switch_cost_s(tick)
        if self._layout.cluster != cluster:
            self._layout = Layout(cluster)
        view = RoundView(
            jobs=free_jobs,
            cluster=cluster,
            problem=problem,
            allocation=allocation,
            owed_rounds=last.owed_rounds if last else {},
            parent=parent,
            starts_at_s=starts_at_s,
            duration_s=self._settings.round_duration_s,
            to_profile=self._choose_profiling(free_jobs, problem, estimator),
            profiling_workers_fraction=self._settings.profiling_workers_fraction,
            planner=self._settings.planner,
            is_new_allocation=outcome != REUSED,
            layout=self._layout,
            minimum_run_s=self._settings.minimum_run_s,
            started_at_s=_started_at_s(tick),
            switch_cost_s=costs if self._settings.price_moves else {},
        )
        plan, owed = plan_round(view)
        plan = _with_leases(plan, kept)
        check_plan(plan, cluster=tick.seen.cluster, jobs=tick.jobs, parent=parent)
        return RoundRecord(
            plan=plan,
            problem=problem,
            allocation=allocation,
            owed_rounds=owed,
            solver_outcome=outcome,
            switch_cost_s=costs,
            inputs=inputs_of(view, kept, self._policy),
        )

    def _follow(self, tick: Tick) -> None:
        """Another policy answers anew, the same problem too."""
        chosen = tick.snapshot.policy if tick.policy is None else tick.policy
        if (policy := chosen or self._settings.policy) != self._policy:
            self._policy, self._solved = policy, None

    def _problem(
        self,
        tick: Tick,
        jobs: Sequence[Job],
        cluster: Cluster,
        estimator: ThroughputEstimator,
        last: RoundRecord | None,
    ) -> AllocationProblem:
        problem = problem_from(
            jobs,
            cluster=cluster,
            tiers=tick.snapshot.tiers,
            matrix=estimator.matrix,
            now_s=tick.now_s,
            round_duration_s=self._settings.round_duration_s,
            warm_start=last.allocation.warm_start if last else {},
        )
        if not self._settings.space_sharing:
            return problem
        rates = estimator.pair_rates(jobs, problem.accelerator_types, tries=self._settings.pair_trials)
        return replace(problem, pair_rates=rates)

    def _allocate(self, problem: AllocationProblem, last: RoundRecord | None) -> tuple[Allocation, str]:
        """The policy's answer within its limit; else the last valid one for jobs still alive; else the equal share."""
        limit_s = min(self._settings.solve_time_limit_s, 0.2 * problem.round_duration_s)
        if self._solved and self._solved.serves(
            problem, solve_on=self._settings.solve_on, interval_s=self._settings.allocation_interval_s
        ):
            return reused(self._solved, problem), REUSED
        try:
            if self._runner.warm():
                self._solved = Solved(problem=problem, allocation=self._runner.allocate(self._policy, problem, limit_s))
                return self._solved.allocation, "solved"
            failure = "the policy runner is starting"
        except (SolveFailed, InvalidRequest) as error:
            failure = str(error)
        log.warning("solve.failed", policy=self._policy, error=failure)
        if last is not None and set(last.problem.accelerator_types) == set(problem.accelerator_types):
            return restricted(last.allocation, problem), f"last allocation kept: {failure}"
        shared = self._fallback.allocate(replace(problem, pair_rates=None))
        return replace(shared, is_fallback=True), f"equal share: {failure}"


def _started_at_s(tick: Tick) -> dict[JobId, float]:
    """When each gang that is there now was started."""
    live = (gang for gang in tick.seen.gangs if gang.state is not GangState.ENDED)
    return {gang.job_id: gang.started_at_s for gang in live if gang.started_at_s is not None}


def _with_leases(plan: RoundPlan, kept: Sequence[Lease]) -> RoundPlan:
    return replace(plan, leases=(*kept, *plan.leases)) if kept else plan
