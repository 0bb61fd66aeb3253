"""Prometheus metrics: what the store holds, read at each scrape, so that any process of the service may serve them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TypeVar

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.autopilot_metrics import autopilot_metrics
from api.disk_metrics import disk_metrics
from api.region_metrics import link_metrics, region_metrics
from api.services import Services
from api.startup_metrics import startup_metrics
from api.views.jobs_and_rounds import leases_in_force
from gavel.backends.several.homes import speeds_file
from gavel.backends.several.link_speeds import LinkSpeeds
from gavel.estimator.tables import own_rows
from gavel.mechanism.explaining.fairness import finish_time_fairness
from gavel.ports import Snapshot, ThroughputEstimate
from gavel.simulator.envy import Envy, mean_speed
from gavel.types import (
    Cluster,
    FloatArray,
    Job,
    JobId,
    JobState,
    RoundRecord,
    mean_workers_received,
    workers_held,
    workers_promised,
)

Key = TypeVar("Key", bound=tuple[str, ...])


class StoreCollector(Collector):
    """Collects metrics of jobs, the newest round and its allocation, the estimates and the scheduler."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics as they are now."""
        store, now_s = self._services.store, self._services.clock.now_s()
        yield self._jobs()
        snapshot = store.snapshot()
        yield _queue(snapshot.jobs.values())
        yield from startup_metrics(snapshot)
        preemptions = snapshot.preemptions
        yield CounterMetricFamily("gavel_preemptions", "Gangs that a round stopped or moved.", value=preemptions)
        yield from _fairness(snapshot.jobs.values(), now_s)
        yield from _estimator(own_rows(store.throughputs()))
        yield from _workers(store.cluster(), snapshot)
        yield self._notifications()
        yield from self._scheduler()
        yield from autopilot_metrics(store, snapshot.autopilot.mode, now_s)
        yield from disk_metrics(self._services.settings)
        yield from region_metrics(snapshot.jobs.values(), store.cluster(), self._services.settings.backends)
        yield from link_metrics(LinkSpeeds(speeds_file(self._services.settings.state_dir)).sums())
        if not snapshot.round_records:
            return
        record = snapshot.round_records[-1]
        yield from _round(record)
        yield from _shares(record, snapshot.jobs, now_s)
        yield _envy(record, snapshot.jobs, now_s)

    def _jobs(self) -> Metric:
        counts = {
            (state.value, tier): float(count) for (state, tier), count in self._services.store.count_jobs().items()
        }
        return _by("gavel_jobs", "Jobs by core state and tier.", ("state", "tier"), counts)

    def _notifications(self) -> Metric:
        counts = self._services.store.notifications.counts()
        values = {(channel.value, state.value): float(count) for (channel, state), count in counts.items()}
        text = "Notifications that are kept, by channel and by what became of them."
        return _by("gavel_notifications", text, ("channel", "state"), values)

    def _scheduler(self) -> Iterable[Metric]:
        leads, is_alive = self._services.leads_scheduler(), self._services.is_scheduler_alive()
        yield _gauge(
            "scheduler_leads", "1 if this process is the one that plans, of all that serve one database.", leads
        )
        yield CounterMetricFamily(
            "gavel_clock_steps",
            "How often this machine's clock was set by a second or more.",
            self._services.clock.steps,
        )
        yield _gauge("scheduler_alive", "1 if a scheduler plans, in any process.", is_alive)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gavel_{name}", text, value=float(value))


def _by(name: str, text: str, labels: Key, values: Mapping[Key, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _queue(jobs: Iterable[Job]) -> Metric:
    waiting = Counter((job.spec.tier, job.reason.value) for job in jobs if job.state is JobState.QUEUED)
    counts = {key: float(count) for key, count in waiting.items()}
    return _by("gavel_queue_jobs", "Jobs that wait, by tier and by why.", ("tier", "reason"), counts)


def _fairness(jobs: Iterable[Job], now_s: float) -> Iterable[Metric]:
    """Yield the rho (Themis) of unfinished jobs that have trained; 1 is what an equal share would have given."""
    rhos: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for job in jobs:
        if (rho := finish_time_fairness(job, now_s)) is not None:
            rhos[(job.spec.tier,)].append(rho)
    mean, worst = {key: fmean(each) for key, each in rhos.items()}, {key: max(each) for key, each in rhos.items()}
    yield _by("gavel_finish_time_fairness_mean", "Finish-time fairness rho of unfinished jobs.", ("tier",), mean)
    yield _by("gavel_finish_time_fairness_worst", "The largest rho among them.", ("tier",), worst)


def _estimator(table: Iterable[ThroughputEstimate]) -> Iterable[Metric]:
    errors: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in table:
        errors[(row.source.value,)].append(row.relative_error)
    mean, count = {key: fmean(each) for key, each in errors.items()}, {key: float(len(errors[key])) for key in errors}
    text = "Mean standard error of log(steps/s) of the estimates, by where they come from."
    yield _by("gavel_estimator_relative_error", text, ("source",), mean)
    yield _by("gavel_estimator_estimates", "Estimates of a kind, scale factor and type.", ("source",), count)


def _workers(cluster: Cluster, snapshot: Snapshot) -> Iterable[Metric]:
    labels = ("accelerator_type",)
    capacity = {(each,): float(count) for each, count in cluster.capacity_workers().items()}
    yield _by("gavel_workers", "Workers by accelerator type.", labels, capacity)
    leases = [*leases_in_force([record.plan for record in reversed(snapshot.round_records)], snapshot.jobs).values()]
    held = workers_held(leases)
    leased = dict.fromkeys(capacity, 0.0)
    of_tier: dict[tuple[str, ...], float] = defaultdict(float)
    for lease, workers in zip(leases, held, strict=True):
        leased[(lease.accelerator_type,)] = leased.get((lease.accelerator_type,), 0.0) + workers
        of_tier[snapshot.jobs[lease.job_id].spec.tier, lease.accelerator_type] += workers
    yield _by("gavel_workers_leased", "Workers that gangs hold.", labels, leased)
    text = "Workers that the gangs of a tier hold; a worker that two jobs share counts half for each."
    yield _by("gavel_tier_workers_leased", text, ("tier", "accelerator_type"), of_tier)


def _round(record: RoundRecord) -> Iterable[Metric]:
    yield _gauge("round_index", "The newest round, which may be planned ahead.", record.plan.round_index)
    yield _gauge("round_duration_seconds", "Its length.", record.plan.duration_s)
    yield _gauge("solve_seconds", "What its allocation took to solve.", record.allocation.solve_time_s)
    yield _gauge("solver_fallback", "1 if its allocation is a fallback.", record.allocation.is_fallback)
    why = record.allocation.fallback
    failing = {(why.policy,): why.since_s} if why else {}
    yield _by("gavel_policy_failing_since_seconds", "When the policy that fails now began to.", ("policy",), failing)


def _shares(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> Iterable[Metric]:
    """Yield the part of each type that a tier's unfinished jobs should have, and have had since the first came."""
    types = record.allocation.accelerator_types
    target: dict[tuple[str, ...], float] = defaultdict(float)
    received: dict[tuple[str, ...], float] = defaultdict(float)
    capacity = [max(1, count) for count in record.problem.capacity_workers.tolist()]
    targets = workers_promised(record.allocation, record.problem).tolist()
    rows = {job_id: row for row, job_id in enumerate(record.problem.job_ids) if job_id in jobs}
    had = mean_workers_received([jobs[job_id] for job_id in rows], types, now_s).tolist()
    for (job_id, row), got in zip(rows.items(), had, strict=True):
        for column, (name, count) in enumerate(zip(types, capacity, strict=True)):
            key = jobs[job_id].spec.tier, name
            target[key] += targets[row][column] / count
            received[key] += got[column] / count
    labels = ("tier", "accelerator_type")
    yield _by("gavel_allocation_target_fraction", "Part of the type's workers the policy wants.", labels, target)
    yield _by("gavel_allocation_received_fraction", "Part of the type's workers received.", labels, received)


def _envy(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> Metric:
    """Of what the unfinished jobs of each tier have held since they were submitted (DRF, NSDI '11, section 3)."""
    problem = record.problem
    rates, held = _rates(record), np.zeros((len(problem.tiers), len(problem.accelerator_types)))
    rows = [index for index, job_id in enumerate(problem.job_ids) if job_id in jobs]
    there = [jobs[problem.job_ids[index]] for index in rows]
    received = mean_workers_received(there, problem.accelerator_types, now_s)
    np.add.at(held, problem.tier_of_job[rows], received)
    envy = Envy(problem.tiers)
    envy.add(held, *mean_speed(rates, problem.scale_factor, problem.tier_of_job, len(problem.tiers)), 1.0)
    gains = zip(problem.tiers, envy.by_tier().tolist(), strict=True)
    text = "By which part a tier's jobs would have run faster on what another tier had, weights counted; 0: no envy."
    return _by("gavel_tier_envy", text, ("tier",), {(tier.name,): gain for tier, gain in gains})


def _rates(record: RoundRecord) -> FloatArray:
    """Return the steps per second of each job alone on each type, (n, m)."""
    problem = record.problem
    alone = {
        combination[0]: rates[0]
        for combination, rates in zip(problem.combinations, problem.throughput_steps_per_s, strict=True)
        if len(combination) == 1
    }
    nothing = np.zeros(len(problem.accelerator_types))
    rows = [alone.get(index, nothing) for index in range(len(problem.job_ids))]
    return np.array(rows).reshape(len(rows), len(nothing))
