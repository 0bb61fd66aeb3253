"""Runs a workload through the production driver on a virtual cluster: only the decisions are real."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from gavel.clock import ManualClock
from gavel.config import Settings
from gavel.errors import InvalidRequest, InvariantViolated
from gavel.estimator.profiling import ProfilingByValue
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.driver import Driver
from gavel.mechanism.planning.regions import HomeChoice, choose_homes
from gavel.policies.equal_share import EqualShare
from gavel.policies.inline import InlineRunner
from gavel.ports import PolicyRunner, ThroughputEstimator
from gavel.simulator.cluster import Throughput, VirtualCluster, program
from gavel.simulator.outcome import NodeOutage
from gavel.simulator.report import JobResult, Metrics, metrics, metrics_by_tier, row_of, utilisation
from gavel.store.memory import MemoryStore
from gavel.types import Cluster, Job, JobId, JobSpec, Tier, chain_of
from workloads.traces.job import TraceJob

TICKS_MAX = 1_000_000
LEASE_GRACE_S = 1e-6  # a lease ends just after the next round was planned
STANDSTILL_TICKS_MAX = 100  # ticks in a row at one instant


SimulatedJob = TraceJob
"""A job and when it is submitted, in simulated seconds. Its argv is replaced: a virtual cluster runs the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The outcome of a workload; `rows` in order of submission. `utilisation`: the busy part of all worker seconds.

    `profiling_s`: accelerator seconds of rounds that were given to measure a rate; the job's steps are done in them,
    too.
    """

    rows: tuple[JobResult, ...]
    metrics: Metrics
    tiers: Mapping[str, Metrics]
    utilisation: float
    rounds: int
    ticks: int
    profiling_s: float = 0.0


def simulate(  # noqa: PLR0913  one argument per thing that a real cluster does
    workload: Sequence[SimulatedJob],
    *,
    cluster: Cluster,
    throughput: Throughput,
    policy: str,
    tiers: Sequence[Tier] = (),
    switch_cost_s: float = 0.0,
    estimator: ThroughputEstimator | None = None,
    outages: Sequence[NodeOutage] = (),
    checkpoint_period_s: float = inf,
    ticks_max: int = TICKS_MAX,
    **overrides: Any,
) -> SimulationResult:
    """Run until every job has ended, and return the outcome.

    `overrides` are settings, such as `round_duration_s=360`. Other settings are the service's, except that rounds are
    not planned ahead: on a virtual clock that would only hide from a round what happens meanwhile. `estimator` is the
    service's by default: it learns from the reports of the gangs, and does not see the true `throughput`. Gangs
    checkpoint when they are stopped and every `checkpoint_period_s`; what they did since is lost with their node.

    Raise InvalidRequest for a job that could never run, InvariantViolated when the jobs do not all end.
    """
    for job in workload:
        _check_feasible(job.spec, cluster, throughput)
    own = {"planning_lead_fraction": 0.0, "prices_usd_per_hour": {}}  # a virtual cluster has its own prices
    settings = Settings(policy=policy, **{**own, **overrides})
    backend = VirtualCluster(
        cluster, throughput, clock := ManualClock(), switch_cost_s, LEASE_GRACE_S, checkpoint_period_s
    )
    world = World(backend, clock, settings, estimator or ReconciledThroughputs(), outages)
    world.add_tiers(tiers)
    jobs, ticks = world.run(workload, ticks_max)
    return SimulationResult(
        rows=tuple(row_of(job) for job in jobs),
        metrics=metrics(jobs),
        tiers=metrics_by_tier(jobs),
        utilisation=utilisation(jobs, cluster),
        rounds=world.rounds(),
        ticks=ticks,
        profiling_s=world.profiling.total_s,
    )


def stated(spec: JobSpec, throughput: Throughput) -> JobSpec:
    """Return the specification with the true throughputs as the user's claim, so that nothing has to be measured."""
    rates = {name: rate for (kind, size, name), rate in throughput.items() if (kind, size) == _key(spec)}
    return replace(spec, throughput_steps_per_s=rates)


class World:
    """The store, cluster, clock and driver of one simulation."""

    def __init__(
        self,
        cluster: VirtualCluster,
        clock: ManualClock,
        settings: Settings,
        estimator: ThroughputEstimator,
        outages: Sequence[NodeOutage] = (),
        runner: PolicyRunner | None = None,
        choose_homes: HomeChoice = choose_homes,
    ) -> None:
        self.submitted: list[JobId] = []  # in order of arrival
        self._id_of: dict[str, JobId] = {}  # of jobs that the workload names
        self._clock = clock
        self.store = MemoryStore()
        self._cluster = cluster
        self._outages = _changes(outages)
        self.profiling = ProfilingByValue(settings.profiling_budget_fraction, settings.profiling_window_s)
        self._driver = Driver(
            store=self.store,
            backend=self._cluster,
            runner=runner or InlineRunner(),
            estimator=estimator,
            fallback=EqualShare(),
            clock=self._clock,
            settings=settings,
            choose_profiling=self.profiling,
            choose_homes=choose_homes,
        )

    def add_tiers(self, tiers: Sequence[Tier]) -> None:
        """Create the tiers, parents first, or replace those that a new store has."""
        versions = {tier.name: tier.version for tier in self.store.tiers()}
        named = {tier.name: tier for tier in tiers}
        for tier in sorted(tiers, key=lambda tier: len(chain_of(tier.name, named))):
            self.store.put_tier(tier, expected_version=versions.get(tier.name), by="simulation", now_s=0.0)

    def run(self, workload: Sequence[SimulatedJob], ticks_max: int) -> tuple[list[Job], int]:
        """Return every job after its end, in order of submission, and how many ticks that took."""
        ticks = 0
        for ticks, _ in enumerate(self.ticks(sorted(workload, key=lambda job: job.submitted_at_s)), start=1):
            if ticks > ticks_max:
                raise self._stuck(f"not done after {ticks_max} ticks")
        return [self.store.job(job_id) for job_id in self.submitted], ticks

    def ticks(self, workload: Iterable[SimulatedJob]) -> Iterator[float]:
        """Yield the instant of each tick once it is done, until every job of `workload` has ended.

        `workload` is in order of arrival.
        """
        arrivals = iter(workload)
        coming = next(arrivals, None)
        selection = 0
        while True:
            now_s = self._clock.now_s()
            while coming is not None and coming.submitted_at_s <= now_s:
                self.submitted.append(self._submit(coming))
                coming = next(arrivals, None)
            while self._outages and self._outages[0][0] <= now_s:
                _, change, node = self._outages.popleft()
                getattr(self._cluster, change)(node)
            wakes_at_s = self._driver.tick()
            yield now_s
            if coming is None and not self.store.snapshot().jobs:
                return
            arrives_at_s = coming.submitted_at_s if coming else inf
            changes_at_s = self._outages[0][0] if self._outages else inf
            due_at_s = min(wakes_at_s, arrives_at_s, changes_at_s, self._cluster.next_event_at_s())
            selection = selection + 1 if due_at_s <= now_s else 0
            if due_at_s == inf or selection > STANDSTILL_TICKS_MAX:
                raise self._stuck("nothing is due any more" if due_at_s == inf else "time stands still")
            self._clock.wait(due_at_s)

    def rounds(self) -> int:
        """Return how many rounds were planned."""
        return max((record.plan.round_index for record in self.store.snapshot().round_records), default=0)

    def _submit(self, job: SimulatedJob) -> JobId:
        """Submit the job under an id of the store. Raise InvalidRequest if it waits for a job that never arrived."""
        for each in job.spec.after:
            if each not in self._id_of:
                raise InvalidRequest("after", f"job {job.id or job.spec.name} waits for {each}, which is not before it")
        after = tuple(self._id_of[each] for each in job.spec.after)
        plans = tuple([replace(plan, argv=_program(job, plan.kind)) for plan in job.spec.plans])
        spec = replace(job.spec, argv=_program(job, job.spec.kind), plans=plans, after=after)
        job_id = self.store.submit(spec, key=None, body_hash="", now_s=job.submitted_at_s).job.id
        if job.id:
            self._id_of[job.id] = job_id
        return job_id

    def _stuck(self, why: str) -> InvariantViolated:
        jobs = sorted(self.store.snapshot().jobs.values(), key=lambda job: job.id)
        stories = "; ".join(
            f"{job.spec.name or job.id} is {job.state}: {job.message or job.reason}" for job in jobs[:3]
        )
        halted = f" (planning halted: {self._driver.halted})" if self._driver.halted else ""
        return InvariantViolated(
            "every_job_ends", f"{why} at {self._clock.now_s():g} s with {len(jobs)} jobs left{halted}: {stories}"
        )


def _program(job: SimulatedJob, kind: str) -> tuple[str, ...]:
    """Return what the virtual cluster runs, of this kind; it says how long it is where the submission does not."""
    return program(kind, job.total_steps if job.spec.total_steps is None else None)


def _changes(outages: Sequence[NodeOutage]) -> deque[tuple[float, str, str]]:
    """Return (instant, method of the cluster, node) of each change, in order of time."""
    ends = [(each.until_s, "return_node", each.node) for each in outages]
    begins = [(each.from_s, "drain_node" if each.is_drain else "lose_node", each.node) for each in outages]
    return deque(sorted(ends + begins))


def _key(spec: JobSpec) -> tuple[str, int]:
    return spec.kind, spec.scale_factor


def _check_feasible(spec: JobSpec, cluster: Cluster, throughput: Throughput) -> None:
    """Raise InvalidRequest unless the gang fits some type and its throughput is given wherever it may run."""
    fits = [name for name, count in cluster.capacity_workers().items() if count >= spec.scale_factor]
    who = f"job {spec.name or spec.kind}"
    if not fits:
        raise InvalidRequest("scale_factor", f"{who} needs {spec.scale_factor} workers of one type; no type has them")
    for name in fits:
        if (*_key(spec), name) not in throughput:
            raise InvalidRequest("throughput", f"{who}: give the steps/s of {_key(spec)} on {name}, 0 if it cannot run")
    if not any(throughput[(*_key(spec), name)] > 0 for name in fits):
        raise InvalidRequest("throughput", f"{who}: {_key(spec)} runs on none of {', '.join(fits)}")
