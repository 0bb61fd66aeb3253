"""A run of the demo of mixed work on real processes, looked at each second."""

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gavel.client import Client
from gavel.client import Job as JobView
from gavel.demo.elastic.workload import SAMPLE_MS
from gavel.demo.first_job import TERMINAL, run_first_job
from gavel.demo.mixed import replica
from gavel.demo.mixed.clients import Asked, Load, Visits
from gavel.demo.mixed.workload import (
    DOWN_AFTER_S,
    HEADROOM,
    RATE,
    REPLICAS_MAX,
    SERVICE_WEIGHT,
    WORKERS,
    WORKERS_PER_CORE,
    Piece,
    Training,
    piece_at,
)
from gavel.demo.service import ServiceProcess, wait_until
from workloads.training import elastic as program

LOOK_EVERY_S = 1.0
TOLD_EVERY_S = 10.0
READY_LIMIT_S = 60.0
ROUND_S = 4.0
SETTINGS = {
    "GAVEL_ROUND_DURATION_S": str(ROUND_S),
    "GAVEL_LEASE_GRACE_S": "2",
    "GAVEL_SPACE_SHARING": "false",  # workers whose time is mostly waited would seem to be free for a second job
    "GAVEL_CPU_WORKERS": str(WORKERS),
    "GAVEL_CPU_WORKERS_PER_CORE": str(WORKERS_PER_CORE),
}
SESSION, SERVICE = "notebook", "answers"  # names of jobs
JUPYTER = ("-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0")
FILES = ("-m", "http.server", "--bind", "127.0.0.1", "0")
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What there was `at_s` seconds after the begin of the curve: workers of each part, and replicas."""

    at_s: float
    trains: int
    session: int
    serves: int
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run left. `pages` counts what the session's visitor has seen; `trained` are the trainings at the end."""

    curve: tuple[Piece, ...]
    samples: tuple[Sample, ...]
    asked: tuple[Asked, ...]
    rounds: int
    session: JobView
    pages: int
    page_failures: tuple[str, ...]
    trained: tuple[JobView, ...]
    left: tuple[str, ...]

    def in_piece(self, number: int) -> list[Sample]:
        """Return the samples of one piece of the curve."""
        return [each for each in self.samples if piece_at(self.curve, each.at_s) == number]


def ran(
    curve: Sequence[Piece], trainings: Sequence[Training], folder: Path, until_s: float, tell: Callable[[str], None]
) -> Ran:
    """Return the run, which is cut off at `until_s` of the monotonic clock. All that it started is stopped."""
    with ServiceProcess(folder.resolve(), SETTINGS) as service:
        tell(f"dashboard and API at {service.url}")
        with Client(service.url, service.operator_token) as operator:
            run_first_job(operator)
            session, port = _session(operator)
            service_id = _service(operator)
            tell(f"the session listens on port {port}, the service has its first replica")
            for each in trainings:
                _train(operator, each)
            before = _rounds(operator)
            visits = Visits(service.url, service.operator_token, session, port, folder / "port-forward.err")
            with Load(operator, service_id, curve) as load, visits:
                samples = _watched(operator, load, service_id, until_s, tell)
            rounds, jobs = _rounds(operator) - before, list(operator.jobs())
            for job_id in (session, service_id):
                operator.cancel(job_id)
            wait_until(lambda: all(each["state"] in TERMINAL for each in operator.jobs()), READY_LIMIT_S)
    return Ran(
        curve=tuple(curve),
        samples=tuple(samples),
        asked=tuple(load.asked),
        rounds=rounds,
        session=next(each for each in jobs if each["id"] == session),
        pages=visits.seen,
        page_failures=tuple(visits.failures),
        trained=tuple(each for each in jobs if each["name"] in {training.name for training in trainings}),
        left=tuple(f"pid {each.pid}" for each in service.processes_left()),
    )


def _session(operator: Client) -> tuple[str, int]:
    """Begin the session: JupyterLab if this interpreter has it, else a server of files; its id and port."""
    argv = [sys.executable, "-u", *(JUPYTER if find_spec("jupyterlab") else FILES)]
    job_id = operator.submit(name=SESSION, argv=argv, mode="interactive", longest_s=600.0)["id"]
    wait_until(lambda: ADDRESS.search(operator.logs(job_id)[0]) is not None, READY_LIMIT_S)
    address = ADDRESS.search(operator.logs(job_id)[0])
    if address is None:
        raise RuntimeError(f"the session did not start: {operator.job(job_id)['message']}")
    return job_id, int(address[1])


def _service(operator: Client) -> str:
    """Begin the service, and wait for its first replica; return its id."""
    service_id = operator.submit(
        name=SERVICE,
        argv=[sys.executable, replica.__file__, "{GAVEL_REPLICA_PORT}"],
        mode="service",
        weight=SERVICE_WEIGHT,
        service={
            "port": 0,
            "readiness": {"path": "/ready", "interval_s": 0.5},
            "replicas_max": REPLICAS_MAX,
            "drain_s": 2.0,
            "demand": "measured",
            "rate": RATE,
            "headroom": HEADROOM,
            "down_after_s": DOWN_AFTER_S,
            "metrics": "/metrics",
            "requests_metric": replica.COUNTER,
        },
    )["id"]
    if not wait_until(lambda: bool(operator.endpoints(service_id)), READY_LIMIT_S):
        raise RuntimeError(f"the service did not start: {operator.job(service_id)['message']}")
    return service_id


def _train(operator: Client, training: Training) -> None:
    argv = [sys.executable, program.__file__, "--seed", str(training.seed), "--sample-ms", str(SAMPLE_MS)]
    argv += ["--global-batch", str(training.global_batch)]
    operator.submit(name=training.name, argv=argv, total_steps=training.steps)


def _rounds(operator: Client) -> int:
    """Return the number of the newest round."""
    newest = operator.rounds(limit=1)
    return newest[0]["round_index"] if newest else 0


def _watched(
    operator: Client, load: Load, service_id: str, until_s: float, tell: Callable[[str], None]
) -> list[Sample]:
    """Look at all until the curve is over and every training has ended."""
    samples: list[Sample] = []
    told_s = -TOLD_EVERY_S
    while time.monotonic() < until_s:
        jobs = list(operator.jobs())
        samples.append(sample := _sample(jobs, load.at_s, service_id))
        if sample.at_s - told_s >= TOLD_EVERY_S:
            told_s = sample.at_s
            tell(_line(sample, load.asked))
        trains = [each for each in jobs if _part(each, service_id) == "trains" and each["state"] not in TERMINAL]
        if not trains and piece_at(load.curve, load.at_s) is None:
            break
        time.sleep(LOOK_EVERY_S)
    return samples


def _part(job: JobView, service_id: str) -> str:
    """Return what a job is here: "session", "serves", "trains"; "" for the service itself, which holds no workers."""
    if job["mode"] == "interactive":
        return "session"
    if job["replica_of"] == service_id:
        return "serves"
    return "" if job["id"] == service_id else "trains"


def _sample(jobs: Sequence[JobView], at_s: float, service_id: str) -> Sample:
    parts_of = {worker: _part(each, service_id) for each in jobs for worker in each["worker_ids"]}
    held = Counter(parts_of.values())  # a worker that goes from one job to another counts once
    service = next(each["service"] for each in jobs if each["id"] == service_id)
    assert service is not None
    parts = {name: held[name] for name in ("trains", "session", "serves")}
    return Sample(at_s=at_s, ready=service["ready"], wanted=service["replicas"], **parts)


def _line(sample: Sample, asked: Sequence[Asked]) -> str:
    failed = sum(bool(each.failure) for each in asked)
    return (
        f"  {sample.at_s:4.0f} s  {sample.trains} workers train, {sample.session} for the session, "
        f"{sample.serves} serve ({sample.ready} of {sample.wanted} ready); {len(asked)} requests, {failed} failed"
    )
