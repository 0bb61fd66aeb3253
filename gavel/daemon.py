"""The service in one process: API and dashboard in the main thread, the scheduler loop in another.

Composition root: the only place that names the store, the backend, the runner and the estimator together.
"""

import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import structlog
import uvicorn

from api.app import create_app
from api.services import Services
from gavel.backends.accelerators import Discovery, discover
from gavel.backends.local import LocalBackend
from gavel.backends.probe import probe
from gavel.backends.ray.backend import RayBackend
from gavel.backends.ray.words import RaySettings
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.errors import GavelError
from gavel.estimator.profiling import ProfilingByValue
from gavel.estimator.reconciled import ReconciledThroughputs
from gavel.estimator.references import reference_table
from gavel.logs import configure_logs
from gavel.mechanism.driver import Driver
from gavel.policies.equal_share import EqualShare
from gavel.policies.registry import load
from gavel.ports import Clock, ClusterBackend, Store
from gavel.runner import SubprocessRunner
from gavel.store.sql import SqlStore
from gavel.types import Job, Scope, User

log = structlog.get_logger("gavel.daemon")

OPERATOR = "operator"
TOKEN_FILE = "operator.token"  # noqa: S105  a file's name
SERVICE_FILE = "service.json"
SECRET_FILE = "job-tokens.key"  # noqa: S105  a file's name
SHUTDOWN_LIMIT_S = 10.0
STREAMS_LIMIT_S = 2  # how long open event streams may hold up a shutdown


class JobTokens:
    """Bearer tokens of scope JOB: derived from a secret of the state folder, so that a relaunched gang gets its own."""

    def __init__(self, store: Store, state_dir: Path, clock: Clock) -> None:
        path = state_dir / SECRET_FILE
        if not path.exists():
            _write_private(path, secrets.token_hex(32))
        self._secret = bytes.fromhex(path.read_text())
        self._store, self._clock = store, clock

    def __call__(self, job: Job) -> str:
        """The job's token; the store knows its digest afterwards."""
        token = "gavel_job_" + hmac.digest(self._secret, job.id.encode(), "sha256").hex()
        if job.attempt <= 1:  # the launch in progress is counted already
            digest = sha256(token.encode()).hexdigest()
            now_s = self._clock.now_s()
            self._store.add_token(digest, user=job.spec.user, scope=Scope.JOB, job_id=job.id, now_s=now_s)
        return token


class SchedulerLoop(threading.Thread):
    """Ticks the driver until stopped; a tick that fails is logged and tried again, never the end of the loop."""

    def __init__(self, driver: Driver, clock: Clock, settings: Settings, after_first: Callable[[], None]) -> None:
        super().__init__(name="scheduler", daemon=True)
        self._driver, self._clock, self._settings = driver, clock, settings
        self._after_first = after_first
        self._stopping = threading.Event()
        self._last_tick_at_s = clock.now_s()

    def run(self) -> None:
        """Observe, decide and act until `stop`; `after_first` is called once the cluster is known."""
        self._tick()
        self._after_first()
        while not self._stopping.is_set():
            due_s = self._tick()
            now_s = self._clock.now_s()
            self._clock.wait(max(now_s + self._settings.tick_s / 10, min(due_s, now_s + self._pause_s())))

    def _tick(self) -> float:
        """When the next tick is due."""
        try:
            due_s = self._driver.tick()
        except Exception:  # the boundary of the thread: whatever it was, leases go on and the next tick may do
            log.exception("tick.failed")
            return self._clock.now_s() + self._settings.idle_tick_s
        self._last_tick_at_s = self._clock.now_s()
        return due_s

    def _pause_s(self) -> float:
        return self._settings.idle_tick_s if self._driver.is_idle else self._settings.tick_s

    def is_alive_and_ticking(self) -> bool:
        """False once no tick has succeeded for longer than any solve and pause may take."""
        limit_s = self._settings.solve_time_limit_s + 10 * self._settings.idle_tick_s
        recent = self._clock.now_s() - self._last_tick_at_s < limit_s
        return self.is_alive() and recent and self._driver.halted is None

    def stop(self) -> None:
        """End after the tick in progress."""
        self._stopping.set()
        self._clock.wake()
        self.join(SHUTDOWN_LIMIT_S)


def _say(text: str) -> None:
    print(text, flush=True)


def serve(settings: Settings, announce: Callable[[str], None] = _say) -> int:
    """Run the service until SIGINT or SIGTERM; 0 after a clean end, 1 if it could not start (with the reason)."""
    with ExitStack() as stack:
        try:
            load(settings.policy, settings.policy_path)
            return _serve(settings, announce, stack)
        except (GavelError, OSError) as error:
            announce(f"gavel could not start: {error}")
            return 1


def _serve(settings: Settings, announce: Callable[[str], None], stack: ExitStack) -> int:
    clock = SystemClock()
    listener = _listen(settings, stack)
    url = _url(settings, listener)
    backend, found = _backend(settings, url, clock)
    stack.callback(backend.close)
    configure_logs(settings.state_dir / "service.log")  # the backend has made sure that the folder is ours alone
    store = SqlStore(
        settings.url, on_change=clock.wake, keep_rounds=settings.keep_rounds, keep_events_s=settings.keep_events_s
    )
    stack.callback(store.close)
    driver = _driver(settings, found, clock, store, backend, stack)
    loop = SchedulerLoop(driver, clock, settings, lambda: _report_types(settings.state_dir, found, announce))
    services = Services(
        store=store,
        settings=settings,
        clock=clock,
        read_log=backend.read_log,
        is_scheduler_alive=loop.is_alive_and_ticking,
        cluster_notes=backend.notes if isinstance(backend, RayBackend) else tuple,
    )
    token = _operator_token(store, settings.state_dir, clock.now_s())
    _write_private(settings.state_dir / SERVICE_FILE, json.dumps({"url": url, "pid": os.getpid()}))
    stack.callback((settings.state_dir / SERVICE_FILE).unlink, missing_ok=True)
    _announce(settings, url, token, announce)
    loop.start()
    stack.callback(loop.stop)
    _server(services).run(sockets=[listener])
    announce("stopped; gangs checkpoint at the end of their leases, the next start goes on with every job")
    return 0


def _backend(settings: Settings, url: str, clock: SystemClock) -> tuple[LocalBackend | RayBackend, Discovery]:
    """The cluster to run on; for Ray, whose nodes are found as they come, nothing is discovered here."""
    if settings.backend == "ray":
        backend = RayBackend(
            state_dir=settings.state_dir,
            ray=RaySettings(
                address=settings.ray_address,
                checkpoints=settings.ray_checkpoints,
                node_folder=settings.ray_node_folder,
                report_period_s=settings.ray_report_period_s,
            ),
            clock=clock,
            lease_grace_s=settings.lease_grace_s,
            log_bytes_per_job=settings.log_bytes_per_job,
            environment={"GAVEL_URL": url},
        )
        return backend, Discovery(accelerators=(), notes=(f"workers are those of Ray at {settings.ray_address}",))
    found = discover(settings.virtual_nodes)
    local = LocalBackend(
        state_dir=settings.state_dir,
        accelerators=found.accelerators,
        clock=clock,
        lease_grace_s=settings.lease_grace_s,
        log_bytes_per_job=settings.log_bytes_per_job,
        on_change=clock.wake,
        environment={"GAVEL_URL": url},
    )
    return local, found


def _driver(
    settings: Settings, found: Discovery, clock: Clock, store: Store, backend: ClusterBackend, stack: ExitStack
) -> Driver:
    runner = SubprocessRunner(settings.solve_memory_limit_bytes, policy_path=settings.policy_path)
    stack.callback(runner.close)
    sharing = 2 if any(each.worker.shares_core for each in found.accelerators) else 1
    return Driver(
        store=store,
        backend=backend,
        runner=runner,
        estimator=ReconciledThroughputs.from_table(
            store.throughputs(), core_sharing=sharing, references=reference_table()
        ),
        fallback=EqualShare(),
        clock=clock,
        settings=settings,
        token_of=JobTokens(store, settings.state_dir, clock),
        choose_profiling=ProfilingByValue(settings.profiling_budget_fraction, settings.profiling_window_s),
    )


def _server(services: Services) -> uvicorn.Server:
    config = uvicorn.Config(
        create_app(services),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=STREAMS_LIMIT_S,
    )
    return uvicorn.Server(config)


def _report_types(state_dir: Path, found: Discovery, announce: Callable[[str], None]) -> None:
    """Say what the accelerators are; measure that their types differ, once per state folder and set of workers."""
    workers = [each.worker.id for each in found.accelerators]
    for note in found.notes:
        announce(note)
    if not workers:
        return
    kept = state_dir / "probe.json"
    if kept.exists() and json.loads(kept.read_text()).get("workers") == workers:
        return
    try:
        measured = probe(found.accelerators)
    except GavelError as error:
        announce(f"the accelerator types could not be measured: {error}")
        return
    announce(measured.text)
    _write_private(kept, json.dumps({"workers": workers, "text": measured.text}))


def _listen(settings: Settings, stack: ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else small answers wait for the peer's delayed ack
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise OSError(
            f"{settings.host}:{settings.port} cannot be listened on ({error.strerror}); try --port 0"
        ) from None
    listener.listen(1024)
    return listener


def _url(settings: Settings, listener: socket.socket) -> str:
    return f"http://{settings.host}:{listener.getsockname()[1]}"


def _operator_token(store: Store, state_dir: Path, now_s: float) -> str:
    """The operator's token, from its file if it is still good, else a new one."""
    path = state_dir / TOKEN_FILE
    kept = path.read_text().strip() if path.exists() else ""
    if kept and store.identify(sha256(kept.encode()).hexdigest()):
        return kept
    token = secrets.token_urlsafe(32)
    tiers = tuple(tier.name for tier in store.tiers())
    store.put_user(User(name=OPERATOR, tiers=tiers), by=OPERATOR, now_s=now_s)
    store.add_token(sha256(token.encode()).hexdigest(), user=OPERATOR, scope=Scope.OPERATOR, now_s=now_s)
    _write_private(path, token)
    return token


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def _announce(settings: Settings, url: str, token: str, announce: Callable[[str], None]) -> None:
    announce(f"Gavel listens on {url}  (API: {url}/docs)")
    announce(f"dashboard: {url}/login?token={token}")
    announce(f"state, logs and the operator's token are in {settings.state_dir.resolve()}; Ctrl-C stops")
