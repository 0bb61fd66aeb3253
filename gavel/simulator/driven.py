"""Runs a scenario through the whole service: driver, store, leases and messages, on a manual clock.

Slower than the lean simulation, and used for what that leaves out: throughputs that must be measured, nodes that are
lost.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gavel.clock import ManualClock
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.mechanism.cluster.configured import in_regions
from gavel.mechanism.jobs.sizes import variants_of
from gavel.mechanism.planning.regions import HomeChoice, choose_homes
from gavel.ports import PolicyRunner
from gavel.simulator.cluster import VirtualCluster
from gavel.simulator.envy import Envy, mean_speed
from gavel.simulator.oracle import OracleThroughputs
from gavel.simulator.outcome import Scenario, SimulationOutcome, Tally
from gavel.simulator.report import JobResult, cost_usd, row_of
from gavel.simulator.rows import Rows
from gavel.simulator.simulation import LEASE_GRACE_S, World
from gavel.simulator.timed import TimedRunner
from gavel.simulator.timeline import Timeline
from gavel.types import FloatArray, Job, RoundRecord, mean_workers_held, plain_type, worker_s_of
from workloads.traces.job import TraceJob


class DrivenWorld:
    """One run. As in LeanWorld, `rounds` goes from round to round. Jobs stay in the store after they have ended."""

    def __init__(
        self,
        jobs: Iterable[TraceJob],
        scenario: Scenario,
        runner: PolicyRunner,
        choose_homes: HomeChoice = choose_homes,
    ) -> None:
        self._jobs = iter(jobs)
        if scenario.settings.regions is not None:
            scenario = replace(scenario, cluster=in_regions(scenario.cluster))
        self._scenario = scenario
        self._types = scenario.cluster.accelerator_types
        self._tiers = sorted(tier.name for tier in scenario.tiers)
        self._tally = Tally()
        true_rates = OracleThroughputs(scenario.throughput, scenario.colocated or {})
        backend = VirtualCluster(
            scenario.cluster,
            scenario.throughput,
            clock := ManualClock(),
            scenario.switch_cost_s,
            LEASE_GRACE_S,
            scenario.checkpoint_period_s,
            scenario.spread,
            scenario.colocated,
            checkpoint_bytes=scenario.checkpoint_bytes,
        )
        self._world = World(
            backend,
            clock,
            scenario.settings.model_copy(
                update={"planning_lead_fraction": 0.0, "space_sharing": scenario.colocated is not None}
            ),
            ReconciledThroughputs(fits_by_rate=True) if scenario.is_estimated else true_rates,
            scenario.outages,
            TimedRunner(runner, self._tally.solve_s),
            choose_homes,
        )
        self._world.add_tiers(scenario.tiers)
        self._prices = scenario.cluster.mean_price_usd_per_hour()
        self._timeline = Timeline()
        self._envy = Envy(sorted(scenario.tiers, key=lambda tier: tier.name))
        self._workers: dict[str, tuple[str, ...]] = {}  # of each lease of the previous round
        self._open = 0  # measured jobs before this one have all ended

    def rounds(self) -> Iterator[RoundRecord]:
        """Yield each round that was planned, until every measured job has ended."""
        began_s, last = time.process_time(), 0
        for now_s in self._world.ticks(self._jobs):
            snapshot = self._world.store.snapshot()
            self._tally.most_active = max(self._tally.most_active, len(snapshot.jobs))
            record = snapshot.round_records[-1] if snapshot.round_records else None
            if record and record.plan.round_index > last:
                last = record.plan.round_index
                self._count(record)
                yield record
            self._tally.ended_at_s = now_s
            if self._is_done():
                break
        self._tally.cpu_s = time.process_time() - began_s

    def _count(self, record: RoundRecord) -> None:
        tally, problem, leases = self._tally, record.problem, record.plan.leases
        tally.rounds += 1
        tally.solves = len(tally.solve_s)
        tally.failed_solves += record.allocation.is_fallback
        before, self._workers = self._workers, {lease.job_id: lease.worker_ids for lease in leases}
        kept = sum(before.get(job_id) == workers for job_id, workers in self._workers.items())
        tally.kept, tally.starts = tally.kept + kept, tally.starts + len(leases) - kept
        tier_of = dict(zip(problem.job_ids, problem.tier_of_job.tolist(), strict=True))
        held = np.zeros((len(problem.tiers), len(self._types)))
        for lease, workers in zip(leases, mean_workers_held(record.plan), strict=True):
            if lease.job_id in tier_of:  # not one that no plan moves
                held[tier_of[lease.job_id], self._types.index(lease.accelerator_type)] += workers
                tally.packed += len(lease.combination) > 1
        waiting = len(tier_of) - len(leases)
        self._timeline.add(record.plan.starts_at_s, held.sum(axis=0).tolist(), waiting, held.sum(axis=1).tolist())
        rates = np.zeros((len(tier_of), len(self._types)))  # 0 on a type whose nodes are all away
        rates[:, [self._types.index(name) for name in problem.accelerator_types]] = problem.throughput_steps_per_s[:, 0]
        speed = mean_speed(rates, problem.scale_factor, problem.tier_of_job, len(problem.tiers))
        self._envy.add(held, *speed, record.plan.duration_s)

    def _is_done(self) -> bool:
        if not self._scenario.measure:
            return False
        first, last = self._scenario.measure
        ids = self._world.submitted
        self._open = max(self._open, first)
        while self._open < min(last, len(ids)) and self._world.store.job(ids[self._open]).state.is_terminal:
            self._open += 1
        return self._open == last

    @property
    def completed(self) -> int:
        """Return how many measured jobs have ended so far, counted in order of arrival up to the first that has not."""
        if self._scenario.measure:
            return max(0, self._open - self._scenario.measure[0])
        return sum(self._world.store.job(job_id).state.is_terminal for job_id in self._world.submitted)

    def jobs(self) -> list[Job]:
        """Return the jobs that have arrived so far, in that order."""
        return [self._world.store.job(job_id) for job_id in self._world.submitted]

    def result(self) -> SimulationOutcome:
        """Return the outcome so far."""
        jobs = self.jobs()
        first, last = self._scenario.measure or (0, len(jobs))
        rows, tally = Rows(), self._tally
        for place in range(first, last):
            rows.add(place, self._row(jobs[place]))
        tally.jobs_seen, tally.began_at_s = len(jobs), min((job.submitted_at_s for job in jobs), default=0.0)
        tally.busy_s = self._busy_s(jobs)
        tally.envy = self._envy.by_tier()
        tally.moves = sum(job.residence.moves for job in jobs)
        tally.egress_bytes = sum(job.residence.egress_bytes for job in jobs)
        tally.egress_usd = sum(job.residence.egress_usd for job in jobs)
        offered_s = (tally.ended_at_s - tally.began_at_s) * len(self._scenario.cluster.workers)
        return SimulationOutcome(
            rows=rows,
            tally=tally,
            timeline=self._timeline,
            accelerator_types=self._types,
            utilisation=float(tally.busy_s.sum()) / offered_s if offered_s > 0 else 0.0,
        )

    def _busy_s(self, jobs: Sequence[Job]) -> FloatArray:
        busy_s = np.zeros((len(self._tiers), len(self._types)))
        for job in jobs:
            for name, seconds in worker_s_of(job).items():
                busy_s[self._tiers.index(job.spec.tier), self._types.index(name)] += seconds
        return busy_s

    def _row(self, job: Job) -> JobResult:
        """Return the job's line: the service's own figures, and those that only a simulation has."""
        spec = job.spec
        rates = [
            self._scenario.throughput.get((each.spec.kind, each.spec.scale_factor, plain_type(name)), 0.0)
            for each in variants_of(job)
            for name in self._types
        ]
        cost_s = self._scenario.switch_cost_s.get(spec.kind, self._scenario.switch_cost_s.get("", 0.0))
        return replace(
            row_of(job),
            scale_factor=spec.scale_factor,
            submitted_at_s=job.submitted_at_s,
            finished_at_s=job.finished_at_s,
            fastest_s=(job.total_steps or job.steps_done) / max(rates),
            lost_s=job.attempt * cost_s,
            packed_s=sum(job.shared_s.values()),
            cost_usd=cost_usd(job, self._prices),
            deadline_at_s=spec.deadline_at_s,
        )
