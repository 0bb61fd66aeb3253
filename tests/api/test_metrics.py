"""Metrics after a round, and request ids in every log line and answer."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from api.http.requests import ID_HEADER
from api.region_metrics import link_metrics, region_metrics
from gavel.logs import configure_logs
from gavel.ports import AuditEntry, ThroughputEstimate, ThroughputSource
from gavel.store.sql import SqlStore
from gavel.types import Cluster, Fallback, JobState, Lease, Reason, StartupTimes, Tier
from tests.api.conftest import NOW_S, Service
from tests.api.rounds import a_record

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "gavel.json"
NAME = re.compile(r"\bgavel_[a-z_]+\b")


def submit(client: httpx.Client, **over: object) -> str:
    answer = client.post("/v1/jobs", json={"kind": "mlp-b256", "total_steps": 100} | over)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def lease(job_id: str, worker: str) -> Lease:
    return Lease(
        job_id=job_id,
        generation=1,
        combination=(job_id,),
        accelerator_type="fast",
        worker_ids=(worker,),
        round_index=1,
        expires_at_s=NOW_S + 10,
    )


def samples(service: Service) -> dict[str, dict[tuple[str, ...], float]]:
    """Return metric -> values of its labels, sorted by label -> value."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(service.operator().get("/metrics").text):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            values.setdefault(sample.name, {})[key] = sample.value
    return values


@pytest.fixture
def scraped(start: Callable[..., Service]) -> tuple[Service, dict[str, dict[tuple[str, ...], float]]]:
    """Two jobs of gold and silver that train, one that waits, one round, one preemption."""
    service = start()
    _, ann = service.user()
    gold, silver, waits = (submit(ann, tier=tier) for tier in ("gold", "silver", "gold"))
    held = {"fast": 30.0}
    run = [
        replace(service.store.job(each), state=JobState.LEASED, generation=1, received_s=held, isolated_time_s=20.0)
        for each in (gold, silver)
    ]
    leases = [lease(gold, "fast-0"), lease(silver, "fast-1")]
    record = a_record(leases, {gold: [0.5, 0.25], silver: [0.5, 0.0]})
    problem = replace(record.problem, tiers=(Tier(name="gold"), Tier(name="silver")), tier_of_job=np.array([0, 1]))
    taken = AuditEntry(at_s=NOW_S, by="fifo", subject=f"job/{gold}", before=None, after={}, action="gang.moved")
    estimate = ThroughputEstimate(
        kind="k",
        scale_factor=1,
        accelerator_type="fast",
        steps_per_s=2.0,
        relative_error=0.1,
        source=ThroughputSource.MEASURED,
    )
    interference = replace(estimate, partner="other", relative_error=0.9)  # no kind's own speed
    waiting = replace(service.store.job(waits), reason=Reason.BEHIND_FAIR_SHARE)
    service.change(
        *run,
        waiting,
        round=replace(record, problem=problem),
        audit=(taken, taken),
        throughputs=(estimate, interference),
        startup_times=(StartupTimes(kind="k", accelerator_type="fast", startup_s=(2.5,)),),
    )
    service.clock.advance(60)
    return service, samples(service)


def test_every_question_of_an_operator_has_its_metric(
    scraped: tuple[Service, dict[str, dict[tuple[str, ...], float]]],
) -> None:
    _, metrics = scraped
    assert metrics["gavel_jobs"][("LEASED", "silver")] == 1
    assert metrics["gavel_queue_jobs"] == {("BehindFairShare", "gold"): 1}
    assert metrics["gavel_preemptions_total"] == {(): 2}
    assert metrics["gavel_finish_time_fairness_mean"] == {("gold",): 3.0, ("silver",): 3.0}
    assert metrics["gavel_allocation_target_fraction"][("fast", "silver")] == 0.25
    assert metrics["gavel_allocation_received_fraction"][("fast", "gold")] == 0.25
    assert metrics["gavel_tier_envy"] == {("gold",): 0.0, ("silver",): 0.0}, "both held the same, at the same weight"
    assert metrics["gavel_estimator_relative_error"] == {("measured",): pytest.approx(0.1)}
    assert metrics["gavel_estimator_estimates"] == {("measured",): 1}
    assert (metrics["gavel_workers"][("fast",)], metrics["gavel_workers_leased"][("fast",)]) == (2, 2)
    assert (metrics["gavel_scheduler_leads"][()], metrics["gavel_scheduler_alive"][()]) == (1, 1)
    assert metrics["gavel_solve_seconds"][()] == pytest.approx(0.02)


def test_short_jobs_that_follow_each_other_have_received_no_more_than_there_is(start: Callable[..., Service]) -> None:
    """1. A job holds both workers for half a minute. 2. Another comes, and has had them since. 3. All they had is 1."""
    service = start()
    _, ann = service.user()
    first = submit(ann, scale_factor=2)
    service.clock.advance(30)
    second = submit(ann, scale_factor=2)
    service.clock.advance(30)
    jobs = [replace(service.store.job(each), received_s={"fast": 30.0}) for each in (first, second)]
    service.change(*jobs, round=a_record([], {first: [0.5, 0.0], second: [0.5, 0.0]}))
    assert samples(service)["gavel_allocation_received_fraction"][("fast", "gold")] == pytest.approx(1.0)


def test_preemptions_are_counted_for_good_and_by_every_process(
    scraped: tuple[Service, dict[str, dict[tuple[str, ...], float]]],
) -> None:
    service, _ = scraped
    for job in service.store.snapshot().jobs.values():
        service.change(replace(job, state=JobState.CANCELLED, finished_at_s=NOW_S))
    other = SqlStore(f"sqlite:///{service.settings.state_dir / 'gavel.db'}")
    assert other.snapshot().preemptions == 2 == samples(service)["gavel_preemptions_total"][()]
    other.close()


def test_every_query_of_the_dashboard_names_a_metric_that_is_exported(
    scraped: tuple[Service, dict[str, dict[tuple[str, ...], float]]],
) -> None:
    _, metrics = scraped
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(queries) > 12 and all(NAME.search(query) for query in queries)
    named = {name for query in queries for name in NAME.findall(query)}
    of_regions = {each.name for each in (*region_metrics((), Cluster(), ()), *link_metrics(()))}  # there are none here
    assert named <= metrics.keys() | of_regions, named - metrics.keys()
    alerts = (DASHBOARD.parents[1] / "prometheus" / "gavel-alerts.yml").read_text()
    assert set(NAME.findall(alerts)) <= metrics.keys() | {"gavel_notifications"}, "of which there are none here"
    shown = {name.removesuffix("_bucket") for name in named}
    unshown = {name for name in metrics if not name.endswith(("_created", "_sum", "_count", "_bucket"))} - shown
    assert unshown <= {"gavel_jobs", "gavel_round_index", "gavel_round_duration_seconds"}, "an unseen metric is no use"


def test_an_answer_carries_the_callers_id_or_a_new_one_but_nothing_that_could_break_a_log(service: Service) -> None:
    client = service.client()
    assert client.get("/healthz", headers={ID_HEADER: "abc-1"}).headers[ID_HEADER] == "abc-1"
    for bad in (b"a b", b"x" * 65, b'a"b', b"\xe9", b"{}"):
        given = client.get("/healthz", headers=[(ID_HEADER.encode(), bad)]).headers[ID_HEADER]
        assert re.fullmatch(r"[0-9a-f]{16}", given)


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """Where this test's process logs to."""
    before = logging.getLogger().handlers[:]
    configure_logs(tmp_path / "service.log")
    yield tmp_path / "service.log"
    for handler in logging.getLogger().handlers:
        if handler not in before:
            handler.close()
    logging.getLogger().handlers[:] = before
    structlog.reset_defaults()


@pytest.mark.parametrize(("which", "statuses"), [("none", []), ("failed", [404]), ("all", [200, 404])])
def test_the_log_has_a_json_line_for_each_request_that_it_is_to_keep(
    start: Callable[..., Service], log_file: Path, which: str, statuses: list[int]
) -> None:
    client = start(log_requests=which).client()
    for path in ("/healthz", "/nowhere"):
        client.get(path, headers={ID_HEADER: f"id{path.replace('/', '-')}"})
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    served = [line for line in lines if line["event"] == "request.served"]
    assert [line["status"] for line in served] == statuses
    assert all(line["request_id"].startswith("id-") and line["seconds"] > 0 for line in served)


def test_a_policy_that_fails_is_named_with_the_time_since_when(start: Callable[..., Service]) -> None:
    service = start()
    record = a_record([], {})
    why = Fallback(policy="mine", error="no", since_s=60.0, instead="equal share")
    service.change(round=replace(record, allocation=replace(record.allocation, is_fallback=True, fallback=why)))
    metrics = samples(service)
    assert (metrics["gavel_policy_failing_since_seconds"], metrics["gavel_solver_fallback"]) == (
        {("mine",): 60.0},
        {(): 1},
    )
