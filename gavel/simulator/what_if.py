"""What a change would do: the live state and the changed state through the service's own code, compared.

Both are estimated, solved and capped by the production functions. When jobs would end comes from the lean simulation,
which runs rounds as the service does from now on: with what jobs have done and held, and with the leases and lags of
the round in force. Elastic jobs have the sizes that its rounds choose. It has no later arrivals, and its rounds are
long enough to answer in time. Jobs that do not end within the simulation get their ends from the fluid model
(gavel/mechanism/explaining/forecast.py).
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from gavel.errors import InvalidRequest, InvariantViolated, SolveFailed, first_few
from gavel.mechanism.explaining.forecast import forecast
from gavel.mechanism.planning.caps import capped
from gavel.mechanism.planning.invariants import check_allocation
from gavel.mechanism.planning.planner import time_per_job
from gavel.mechanism.planning.sizes import SizeInputs, in_their_sizes
from gavel.policies.inline import InlineRunner
from gavel.policies.registry import load
from gavel.simulator.lean import LeanWorld
from gavel.simulator.live import Live, Undecided, problem_of_round, undecided
from gavel.simulator.live_sizes import as_submitted, of_own_kinds, size_inputs, throughputs
from gavel.simulator.live_state import world_state
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
    Tier,
    Worker,
    workers_promised,
)

NEW_JOB = "what-if"  # the id of a job that was not submitted
WORKERS_MAX = 10_000  # that are added
NEW_TYPE_USD_PER_HOUR = 1.0  # of a type that the cluster does not have yet
ROUNDS_MAX = 400  # of a simulation: a longer one takes longer rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodes:
    """`count` new nodes, each with so many workers of one accelerator type."""

    count: int
    accelerator_type: AcceleratorType
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is tried. Fields that are left out change nothing. `tiers` replace those of the same name, or are new."""

    policy: str | None = None
    tiers: tuple[Tier, ...] = ()
    nodes_gone: tuple[str, ...] = ()
    nodes_added: tuple[AddedNodes, ...] = ()
    job: JobSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A live state and a change. `simulation_cpu_s`: CPU seconds for each of two simulations; 0: fluid model only."""

    live: Live
    change: Change
    simulation_cpu_s: float


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
    is_simulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one state. `workers`: tier -> type -> workers that the tier's jobs hold on average."""

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
    """The answer to a round's problem, in which elastic jobs have the sizes chosen for it; `now`: those in force."""

    now: "Undecided"
    sizes: SizeInputs | None  # None: no job has a choice
    problem: AllocationProblem
    allocation: Allocation
    runner: InlineRunner = field(repr=False)


class _Unwarmed(InlineRunner):
    """Imports the solvers only when a policy needs them. Most policies do not, and a person waits for the answer."""

    def warm(self) -> bool:
        """Import nothing; return True."""
        return True


def effects(question: Question) -> Effects:
    """Return the outcomes without and with the change.

    Raise InvalidRequest for a change that cannot be made, or for which the policy has no allocation.
    """
    live = question.live
    return Effects(
        before=_outcome(live, question.simulation_cpu_s),
        after=_outcome(changed(live, question.change), question.simulation_cpu_s),
    )


def changed(live: Live, change: Change) -> Live:
    """Return the state with the change. Raise InvalidRequest for an unknown node, and for too many workers."""
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
            raise InvalidRequest(f"nodes_gone.{index}", f"there is no node {name}; there are {first_few(there)}")
    if sum(each.count * each.workers for each in change.nodes_added) > WORKERS_MAX:
        raise InvalidRequest("nodes_added", f"at most {WORKERS_MAX} workers can be tried; add fewer")
    gone, prices = set(change.nodes_gone), cluster.mean_price_usd_per_hour()
    added = [
        (f"{NEW_JOB}-{group}-{number}", each)
        for group, each in enumerate(change.nodes_added)
        for number in range(each.count)
    ]
    workers = [
        Worker(id=f"{name}-{slot}", node=name, accelerator_type=each.accelerator_type, price_usd_per_hour=price)
        for name, each in added
        for price in (prices.get(each.accelerator_type, NEW_TYPE_USD_PER_HOUR),)
        for slot in range(each.workers)
    ]
    like = cluster.nodes[0] if cluster.nodes else Node(name="")
    return Cluster(
        nodes=(*(n for n in cluster.nodes if n.name not in gone), *(replace(like, name=name) for name, _ in added)),
        workers=(*(w for w in cluster.workers if w.node not in gone), *workers),
    )


# --- one state --------------------------------------------------------------------------------------------------


def _outcome(live: Live, simulation_cpu_s: float) -> Outcome:
    decided = _decided(live)
    problem, allocation = decided.problem, decided.allocation
    left_s = forecast(problem, allocation).finish_s
    simulated_s = (
        _simulated(live, decided, left_s, simulation_cpu_s) if simulation_cpu_s > 0 and decided.now.jobs else {}
    )
    times, rates = time_per_job(allocation, problem), problem.throughput_steps_per_s[: len(decided.now.jobs), 0]
    jobs = {}
    for row, job in enumerate(decided.now.jobs):
        ends_in_s = simulated_s.get(job.id, float(left_s[row]))
        jobs[job.id] = JobOutcome(
            job_id=job.id,
            kind=job.spec.kind,
            user=job.spec.user,
            tier=job.spec.tier,
            target=dict(zip(problem.accelerator_types, times[row].tolist(), strict=True)),
            steps_per_s=float(times[row] @ rates[row]),
            finish_at_s=live.now_s + ends_in_s if isfinite(ends_in_s) else None,
            is_simulated=job.id in simulated_s,
        )
    return Outcome(
        policy=live.policy,
        solver=allocation.solver,
        capacity=decided.now.cluster.capacity_workers(),
        workers=workers_of_tiers(problem, allocation),
        jobs=jobs,
    )


def _decided(live: Live) -> _Decided:
    """Return the problem and allocation that the scheduler would have in a round that began now."""
    now, settings = undecided(live), live.in_force
    sizes, problem = _in_chosen_sizes(live, now)
    runner = _Unwarmed(lambda name: load(name, settings.policy_dir))
    try:
        allocation = capped(runner.allocate(settings.policy, problem, settings.solve_time_limit_s), problem)
    except SolveFailed as error:
        raise InvalidRequest("policy", f"{live.policy} has no answer for this: {error}") from error
    check_allocation(allocation)
    return _Decided(now=now, sizes=sizes, problem=problem, allocation=allocation, runner=runner)


def _in_chosen_sizes(live: Live, now: Undecided) -> tuple[SizeInputs | None, AllocationProblem]:
    """What sizes are chosen from, and the problem in which jobs have those; None if no job has a choice."""
    if not any(job.spec.has_choice for job in now.jobs):
        return None, now.problem
    inputs = size_inputs(live, now)
    made = in_their_sizes(as_submitted(live, now), inputs)
    problem = problem_of_round(live, made.jobs, now.cluster, now.estimator, made.with_plans(now.estimator.matrix))
    return inputs, replace(problem, configurations=made.configurations)


def workers_of_tiers(problem: AllocationProblem, allocation: Allocation) -> dict[str, dict[AcceleratorType, float]]:
    """Return the mean number of workers that each tier's jobs get (tier -> type -> workers)."""
    workers = np.zeros((len(problem.tiers), len(problem.accelerator_types)))
    np.add.at(workers, problem.tier_of_job, workers_promised(allocation, problem))
    return {
        tier.name: dict(zip(problem.accelerator_types, held_workers, strict=True))
        for tier, held_workers in zip(problem.tiers, workers.tolist(), strict=True)
    }


# --- when jobs would end ----------------------------------------------------------------------------------------


def _simulated(live: Live, decided: _Decided, left_s: np.ndarray, cpu_s: float) -> dict[JobId, float]:
    """Return the seconds from now to the end of each job that ends in the simulation, within `cpu_s` of CPU time."""
    now, sizes = decided.now, decided.sizes
    rows = [row for row in range(len(now.jobs)) if isfinite(left_s[row])]
    if not rows:
        return {}
    longest_s = max(float(left_s[row]) for row in rows)
    jobs, speeds = now.jobs, dict[tuple[str, int, AcceleratorType], float]()
    if sizes:
        submitted = as_submitted(live, now)
        jobs = [of_own_kinds(job, sizes.of_own_kind) for job in submitted]
        speeds = throughputs([job for job in submitted if job.spec.has_choice], sizes)
    scenario = Scenario(
        cluster=now.cluster,
        throughput=speeds,  # of jobs with a choice; the others have their rates, and none arrives
        settings=live.in_force.model_copy(
            update={
                "solve_on": "event",
                "round_duration_s": max(live.in_force.round_duration_s, longest_s / ROUNDS_MAX),
            }
        ),
        tiers=tuple(live.tiers.values()),
        switch_cost_s=live.last.switch_cost_s if live.last else {},
        is_elastic=sizes is not None,
    )
    state = world_state(jobs, now.problem, rows, cluster=now.cluster, last=live.last, now_s=live.now_s)
    world = LeanWorld([], scenario, decided.runner, state)
    give_up_at_s = time.process_time() + cpu_s
    with suppress(InvariantViolated):  # no gang can run any more: keep the ends until then
        for _ in world.rounds():
            if time.process_time() > give_up_at_s:
                break
    ended = ((row.name, row.finished_at_s) for row in world.result().rows)
    return {name: at_s for name, at_s in ended if at_s is not None}
