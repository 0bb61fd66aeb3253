"""Prometheus: what the store knows, read at each scrape, and HTTP requests by templated route."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.services import Services
from api.views import received_of_job, target_of_jobs
from gavel.errors import NotFound
from gavel.types import Job, JobId, RoundRecord


class StoreCollector(Collector):
    """Gauges of jobs, the newest round and its allocation, read from the store: any process may serve them."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        yield self._jobs()
        jobs = self._services.store.snapshot().jobs
        yield _gauge("preemptions_of_unfinished_jobs", "Preemptions so far.", sum(j.preemptions for j in jobs.values()))
        try:
            record = self._services.store.round()
        except NotFound:
            return
        yield _gauge("round_index", "The newest round, which may be planned ahead.", record.plan.round_index)
        yield _gauge("solve_seconds", "What its allocation took to solve.", record.allocation.solve_time_s)
        yield _gauge("solver_fallback", "1 if its allocation is a fallback.", float(record.allocation.is_fallback))
        yield from _shares(record, jobs, self._services.clock.now_s())

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily("gavel_jobs", "Jobs by core state and tier.", labels=["state", "tier"])
        for (state, tier), count in self._services.store.count_jobs().items():
            family.add_metric([state.value, tier], count)
        return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gavel_{name}", text, value=value)


def _shares(record: RoundRecord, jobs: Mapping[JobId, Job], now_s: float) -> Iterable[Metric]:
    """Part of each type that a tier's unfinished jobs should have, and have had since they were submitted."""
    types = record.allocation.accelerator_types
    target: dict[tuple[str, str], float] = defaultdict(float)
    received: dict[tuple[str, str], float] = defaultdict(float)
    capacity = [max(1, count) for count in record.problem.capacity_workers.tolist()]
    for job_id, fractions in target_of_jobs(record.allocation).items():
        if job_id not in jobs:
            continue
        job = jobs[job_id]
        had = received_of_job(job, types, now_s)
        for each, count, wanted, got in zip(types, capacity, fractions, had, strict=True):
            target[job.spec.tier, each] += wanted * job.spec.scale_factor / count
            received[job.spec.tier, each] += got * job.spec.scale_factor / count
    yield _by_tier_and_type("gavel_allocation_target_fraction", "Part of the type's workers the policy wants.", target)
    yield _by_tier_and_type("gavel_allocation_received_fraction", "Part of the type's workers received.", received)


def _by_tier_and_type(name: str, text: str, values: Mapping[tuple[str, str], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["tier", "accelerator_type"])
    for (tier, each), value in values.items():
        family.add_metric([tier, each], value)
    return family


class RequestMetrics:
    """ASGI middleware: counts and times requests by method, route template and status."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self.app = app
        labels = ("method", "route")
        self._count = Counter("gavel_http_requests", "Requests.", (*labels, "status"), registry=registry)
        self._seconds = Histogram("gavel_http_seconds", "Until the last byte.", labels, registry=registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, then count."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            # Paths nobody serves share one name, else any caller could grow the number of series.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if route != "none" else "any"
            self._count.labels(method, route, str(status)).inc()
            self._seconds.labels(method, route).observe(time.perf_counter() - begun)
