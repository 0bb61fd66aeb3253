"""What a change would do: the live state and the changed one through the service's own code, side by side.

Both are estimated, solved and capped by the production functions. When jobs would end comes from the lean replay, which
runs rounds as the service does from now on: without the leases and debts of the round in force, without jobs that come
later, in rounds as long as an answer in time allows. What the replay does not reach is taken from the fluid
(gavel/mechanism/forecast.py).
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.references import reference_table
from gavel.mechanism import nodes
from gavel.mechanism.caps import capped
from gavel.mechanism.forecast import forecast
from gavel.mechanism.holding import held
from gavel.mechanism.invariants import check_allocation
from gavel.mechanism.planner import time_per_job
from gavel.mechanism.problem import as_known, problem_from, schedulable
from gavel.policies.inline import InlineRunner
from gavel.policies.registry import load
from gavel.ports import ThroughputEstimate
from gavel.simulator.lean import LeanWorld
from gavel.simulator.outcome import Scenario
from gavel.types import (
    AcceleratorType,
    Allocation,
    AllocationProblem,
    Cluster,
    Job,
    JobId,
    JobSpec,
    Node,
    NodeStatus,
    RoundRecord,
    Tier,
    Usage,
    Worker,
)
from workloads.traces.job import TraceJob

NEW_JOB = "what-if"  # the id of a job that was not submitted
WORKERS_MAX = 10_000  # that are added
ROUNDS_MAX = 400  # of a replay: longer ones take longer rounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Live:
    """The state that is changed: as the scheduler would read it now. `last` None: no round was decided yet."""

    jobs: Sequence[Job]
    tiers: Mapping[str, Tier]
    cluster: Cluster
    nodes: Mapping[str, NodeStatus]
    usage: Mapping[tuple[str, str], Usage]
    throughputs: Sequence[ThroughputEstimate]
    policy: str
    settings: Settings
    last: RoundRecord | None
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodes:
    """`count` nodes with so many workers of one accelerator type each."""

    count: int
    accelerator_type: AcceleratorType
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is tried; what is left out stays. `tiers` replace those of the same name, or are new."""

    policy: str | None = None
    tiers: tuple[Tier, ...] = ()
    nodes_gone: tuple[str, ...] = ()
    nodes_added: tuple[AddedNodes, ...] = ()
    job: JobSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """`replay_cpu_s`: CPU seconds that each of the two replays may take; 0: no replay, the fluid says when jobs end."""

    live: Live
    change: Change
    replay_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """One job: its time on each type, the steps/s that makes, and when it would end (None: nothing says so)."""

    job_id: JobId
    kind: str
    user: str
    tier: str
    target: Mapping[AcceleratorType, float]
    steps_per_s: float
    finish_at_s: float | None
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What comes of a state. `workers`: of each type that a tier's jobs hold on average, (tier -> type -> workers)."""

    policy: str
    solver: str
    capacity: Mapping[AcceleratorType, int]
    workers: Mapping[str, Mapping[AcceleratorType, float]]
    jobs: Mapping[JobId, JobOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The same state without and with the change."""

    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Decided:
    jobs: Sequence[Job]
    cluster: Cluster
    problem: AllocationProblem
    allocation: Allocation
    runner: InlineRunner = field(repr=False)


class _Unwarmed(InlineRunner):
    """Imports the solvers only where a policy needs them: most answer without, and somebody waits."""

    def warm(self) -> bool:
        """Nothing to do; True."""
        return True


def effects(question: Question) -> Effects:
    """Raises InvalidRequest for a change that cannot be made, or that the policy has no answer for."""
    live = question.live
    return Effects(
        before=_outcome(live, question.replay_cpu_s),
        after=_outcome(changed(live, question.change), question.replay_cpu_s),
    )


def changed(live: Live, change: Change) -> Live:
    """The state with the change. Raises InvalidRequest for a node that is not there, and for too many."""
    jobs = [*live.jobs]
    if change.job is not None:
        jobs.append(Job(id=NEW_JOB, spec=change.job, submitted_at_s=live.now_s))
    return replace(
        live,
        jobs=jobs,
        tiers={**live.tiers, **{tier.name: tier for tier in change.tiers}},
        cluster=_cluster(live.cluster, change),
        policy=live.policy if change.policy is None else change.policy,
    )


def _cluster(cluster: Cluster, change: Change) -> Cluster:
    there = {node.name for node in cluster.nodes}
    for index, name in enumerate(change.nodes_gone):
        if name not in there:
            raise InvalidRequest(
                f"nodes_gone.{index}", f"there is no node {name}; there are {', '.join(sorted(there))}"
            )
    if sum(each.count * each.workers for each in change.nodes_added) > WORKERS_MAX:
        raise InvalidRequest("nodes_added", f"at most {WORKERS_MAX} workers can be tried; add fewer")
    gone = set(change.nodes_gone)
    added = [
        (f"{NEW_JOB}-{group}-{number}", each)
        for group, each in enumerate(change.nodes_added)
        for number in range(each.count)
    ]
    workers = [
        Worker(id=f"{name}-{slot}", node=name, accelerator_type=each.accelerator_type, price_usd_per_hour=price)
        for name, each in added
        for price in (_price(cluster, each.accelerator_type),)
        for slot in range(each.workers)
    ]
    like = cluster.nodes[0] if cluster.nodes else Node(name="")
    return Cluster(
        nodes=(*(n for n in cluster.nodes if n.name not in gone), *(replace(like, name=name) for name, _ in added)),
        workers=(*(w for w in cluster.workers if w.node not in gone), *workers),
    )


def _price(cluster: Cluster, name: AcceleratorType) -> float:
    prices = [worker.price_usd_per_hour for worker in cluster.workers if worker.accelerator_type == name]
    return sum(prices) / len(prices) if prices else 1.0


# --- one state --------------------------------------------------------------------------------------------------


def _outcome(live: Live, replay_cpu_s: float) -> Outcome:
    decided = _decided(live)
    problem, allocation = decided.problem, decided.allocation
    left_s = forecast(problem, allocation).finish_s
    replayed_s = _replayed(live, decided, left_s, replay_cpu_s) if replay_cpu_s > 0 and decided.jobs else {}
    times, rates = time_per_job(allocation, problem), problem.throughput_steps_per_s[: len(decided.jobs), 0]
    jobs = {}
    for row, job in enumerate(decided.jobs):
        ends_in_s = replayed_s.get(job.id, float(left_s[row]))
        jobs[job.id] = JobOutcome(
            job_id=job.id,
            kind=job.spec.kind,
            user=job.spec.user,
            tier=job.spec.tier,
            target=dict(zip(problem.accelerator_types, times[row].tolist(), strict=True)),
            steps_per_s=float(times[row] @ rates[row]),
            finish_at_s=live.now_s + ends_in_s if isfinite(ends_in_s) else None,
            is_replayed=job.id in replayed_s,
        )
    return Outcome(
        policy=live.policy,
        solver=allocation.solver,
        capacity=decided.cluster.capacity_workers(),
        workers=_workers_of_tiers(decided),
        jobs=jobs,
    )


def _decided(live: Live) -> _Decided:
    """Problem and allocation as the scheduler would have them in a round that began now."""
    holds = held(live.jobs, tiers=live.tiers, usage=live.usage, now_s=live.now_s)
    estimator = _estimator(live)
    jobs = [as_known(job, estimator) for job in schedulable(live.jobs, live.now_s) if job.id not in holds]
    cluster, settings = nodes.usable(live.cluster, live.nodes), live.settings
    problem = problem_from(
        jobs,
        cluster=cluster,
        tiers=live.tiers,
        matrix=estimator.matrix,
        now_s=live.now_s,
        round_duration_s=settings.round_duration_s,
        warm_start=live.last.allocation.warm_start if live.last else {},
    )
    if settings.space_sharing:
        rates = estimator.pair_rates(jobs, problem.accelerator_types, tries=settings.pair_trials)
        problem = replace(problem, pair_rates=rates)
    runner = _Unwarmed(lambda name: load(name, settings.policy_path))
    try:
        allocation = capped(runner.allocate(live.policy, problem, settings.solve_time_limit_s), problem)
    except SolveFailed as error:
        raise InvalidRequest("policy", f"{live.policy} has no answer for this: {error}") from error
    check_allocation(allocation)
    return _Decided(jobs=jobs, cluster=cluster, problem=problem, allocation=allocation, runner=runner)


def _estimator(live: Live) -> ReconciledThroughputs:
    sharing = 2 if any(worker.shares_core for worker in live.cluster.workers) else 1
    return ReconciledThroughputs.from_table(live.throughputs, core_sharing=sharing, references=reference_table())


def _workers_of_tiers(decided: _Decided) -> dict[str, dict[AcceleratorType, float]]:
    """Workers that each tier's jobs hold on average; those of a packed pair count half for each of its jobs."""
    problem, allocation = decided.problem, decided.allocation
    row_of = {job_id: row for row, job_id in enumerate(problem.job_ids)}
    workers = np.zeros((len(problem.tiers), len(problem.accelerator_types)))
    for members, fractions in zip(allocation.combinations, allocation.time_fraction, strict=True):
        for row in (row_of[job_id] for job_id in members):
            workers[problem.tier_of_job[row]] += fractions * problem.scale_factor[row] / len(members)
    return {
        tier.name: dict(zip(problem.accelerator_types, held_workers, strict=True))
        for tier, held_workers in zip(problem.tiers, workers.tolist(), strict=True)
    }


# --- when jobs would end ----------------------------------------------------------------------------------------


def _replayed(live: Live, decided: _Decided, left_s: np.ndarray, cpu_s: float) -> dict[JobId, float]:
    """Seconds from now to the end of each job that the lean replay sees end within its budget."""
    known = [row for row in range(len(decided.jobs)) if isfinite(left_s[row])]
    longest_s = max((float(left_s[row]) for row in known), default=0.0)
    rates, types = decided.problem.throughput_steps_per_s[:, 0], decided.problem.accelerator_types
    specs = [decided.jobs[row].spec for row in known]
    scenario = Scenario(
        cluster=decided.cluster,
        throughput={
            (spec.kind, spec.scale_factor, name): float(rates[row, column])
            for row, spec in zip(known, specs, strict=True)
            for column, name in enumerate(types)
        },
        settings=live.settings.model_copy(
            update={
                "policy": live.policy,
                "solve_on": "event",
                "round_duration_s": max(live.settings.round_duration_s, longest_s / ROUNDS_MAX),
            }
        ),
        tiers=tuple(live.tiers.values()),
        switch_cost_s=live.last.switch_cost_s if live.last else {},
    )
    world = LeanWorld([_trace_job(decided, row, live.now_s) for row in known], scenario, decided.runner)
    give_up_at_s = time.process_time() + cpu_s
    with suppress(InvariantViolated):  # nothing moves any more: what ended until then stands
        for _ in world.rounds():
            if time.process_time() > give_up_at_s:
                break
    return {row.name: row.jct_s for row in world.result().rows if row.jct_s is not None}


def _trace_job(decided: _Decided, row: int, now_s: float) -> TraceJob:
    """What is left of the job, arriving now, under the name of its id."""
    job, problem = decided.jobs[row], decided.problem
    deadline_at_s = None if job.spec.deadline_at_s is None else job.spec.deadline_at_s - now_s
    spec = replace(
        job.spec,
        name=job.id,
        total_steps=int(problem.steps_remaining[row]),
        weight=float(problem.weight[row]),
        deadline_at_s=deadline_at_s,
    )
    return TraceJob(submitted_at_s=0.0, spec=spec)
