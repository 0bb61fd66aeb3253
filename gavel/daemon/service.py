"""`gavel serve`: the API's process and its child, the scheduler's process; closed in the reverse order of opening."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog

from gavel.backends.folder import log_path
from gavel.backends.folder_backend import logged
from gavel.backends.job_users import problem_of_job_users
from gavel.backends.unix_users import open_state
from gavel.clock import SystemClock
from gavel.config import Settings
from gavel.daemon.background import Periodic, in_background
from gavel.daemon.child import Order, SchedulerProcess
from gavel.daemon.doctor import findings
from gavel.daemon.keys import TOKEN_FILE, Address, operator_token
from gavel.daemon.leading import Candidate
from gavel.daemon.opening import look_for_cycles_rarely, open_doorbell, open_store
from gavel.errors import BackendUnavailable, GavelError, StoreUnavailable
from gavel.freed_memory import EVERY_S, give_back
from gavel.logs import claim_log, configure_logs
from gavel.policies.registry import load
from gavel.store.sql import SqlStore
from gavel.types import JobId

if TYPE_CHECKING:
    from api.services import Services

log = structlog.get_logger("gavel.service")

Notes = Callable[[], tuple[str, ...]]

SWITCH_INTERVAL_S = 0.0005  # how long a small request waits for the interpreter while a large one is answered
MESSAGE_BYTES = 1 << 20  # of one WebSocket message: nobody makes the service hold more
KEPT_OUTPUT = {"JOURNAL_STREAM", "KUBERNETES_SERVICE_HOST"}  # systemd and Kubernetes keep what is printed, for others
STREAMS_LIMIT_S = 2  # how long open event streams may hold up a shutdown


def _say(text: str) -> None:
    with suppress(OSError):  # the reader of a pipe has ended
        print(text, flush=True)


def serve(settings: Settings, announce: Callable[[str], None] = _say, *, is_api_only: bool = False) -> int:
    """Run the service until SIGINT or SIGTERM; return 0 after a clean end, 1 if it could not start (with the reason).

    The first process of a database leads its scheduler, others stand by; with `is_api_only` this one never leads.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends the service in the same way as SIGINT
    with ExitStack() as stack:
        try:
            load(settings.policy, settings.policy_dir)
            return _serve(settings, announce, stack, is_api_only)
        except (GavelError, OSError) as error:
            announce(f"gavel could not start: {error}")
            return 1


def _serve(settings: Settings, announce: Callable[[str], None], stack: ExitStack, is_api_only: bool) -> int:
    _check_job_users(settings)
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if settings.job_users:
        open_state(str(settings.state_dir))  # also where only the checkpoints of a Ray cluster are in it
    configure_logs(stack.enter_context(claim_log(settings.state_dir, "service")))
    listener = _listen(settings, stack)
    scheme = "https" if settings.tls_cert_file else "http"
    url = f"{scheme}://{settings.host}:{listener.getsockname()[1]}"
    # A certificate names the public address, seldom the one that is listened on.
    address = Address(settings.state_dir, (settings.tls_cert_file and settings.public_url) or url)
    # The scheduler's process starts while this one loads the API's modules.
    scheduler = None if is_api_only else _begin_to_schedule(Order(settings=settings, url=url), announce, address, stack)
    bell = open_doorbell(settings, stack)
    store = open_store(settings, stack, bell.ring if bell else None)
    notes: list[Notes] = []
    services = _services(settings, store, scheduler, notes)
    threading.Thread(target=_read_ahead, args=(store,), name="read-ahead", daemon=True).start()
    _announce(settings, url, operator_token(store, settings.state_dir, services.clock.now_s()), announce)
    if scheduler is not None:
        scheduler.until_settled()
        notes.append(scheduler.notes)
        notes += _serve_training_jobs(services, stack)
    address.offer()
    stack.callback(address.withdraw)
    _run(services, listener)
    announce("stopped; gangs checkpoint at the end of their leases, the next start goes on with every job")
    return 0


def _read_ahead(store: SqlStore) -> None:
    """Decode the jobs while the scheduler's process does: 100,000 take ten seconds, and the first pages need them."""
    with suppress(StoreUnavailable):  # the first request that reads reports it
        store.snapshot()


def _check_job_users(settings: Settings) -> None:
    """Raise BackendUnavailable if jobs are to run as users of their own and cannot.

    Else close to others what this process makes from now on, as these users pass its state folder.
    On a Ray cluster each node says for itself whether its jobs can pass its folders.
    """
    if settings.job_users:
        is_here = any(own.backend == "local" for own in settings.by_region.values())
        isolation = settings.isolation if is_here else "sandbox"
        if problem := problem_of_job_users(settings.job_users, settings.state_dir, isolation):
            raise BackendUnavailable(problem)
        os.umask(0o077)


def _begin_to_schedule(
    order: Order, announce: Callable[[str], None], address: Address, stack: ExitStack
) -> SchedulerProcess:
    def claim() -> None:
        try:
            address.claim()
        except OSError as error:  # a full disk: commands go on using the address written before
            log.warning("address.not_written", error=str(error))

    scheduler = SchedulerProcess(order, announce=announce, on_lead=claim)
    scheduler.begin()
    stack.callback(scheduler.stop)
    return scheduler


def _serve_training_jobs(services: "Services", stack: ExitStack) -> Sequence[Notes]:
    """Serve TrainingJob objects, where the backend is a cluster of Kubernetes; return who tells of problems."""
    settings = services.settings
    if settings.backend != "kubernetes" or settings.kubernetes.training_jobs == "off":
        return ()
    from gavel.daemon.training_jobs.controller import training_jobs

    serving = training_jobs(services)
    serving.start()
    stack.callback(serving.close)
    return (serving.notes,)


def _services(
    settings: Settings, store: SqlStore, scheduler: SchedulerProcess | None, notes: Sequence[Notes]
) -> "Services":
    """Return what the API works with: the database, and the state that the scheduler's process reports.

    `notes`: who tells what is wrong with the cluster, when it is asked.
    """
    from api.services import Services

    watched = Candidate(store.leadership, lease_s=settings.lease_of_leader_s)

    def read(job_id: JobId, offset: int, limit_bytes: int) -> tuple[bytes, int]:
        return logged(log_path(settings.state_dir, job_id), offset, limit_bytes)

    return Services(
        store=store,
        settings=settings,
        clock=SystemClock(),
        read_log=read,
        is_scheduler_alive=lambda: not (scheduler and scheduler.state.is_stuck) and bool(watched.leader()),
        leads_scheduler=lambda: scheduler is not None and scheduler.state.leads,
        cluster_notes=lambda: tuple(note for tell in notes for note in tell()),
        scheduler_trouble=scheduler.trouble if scheduler else str,
        findings=partial(findings, settings),
    )


def _run(services: "Services", listener: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM."""
    import uvicorn

    from api.app import create_app
    from api.http.half_sent import TimedRequests
    from gavel.daemon.telemetry import tracing

    sys.setswitchinterval(SWITCH_INTERVAL_S)
    look_for_cycles_rarely()
    settings = services.settings
    with tracing(settings.telemetry_url) as traces, in_background([Periodic(give_back, EVERY_S)]):
        config = uvicorn.Config(
            create_app(services, traces),
            http=TimedRequests,
            ws_max_size=MESSAGE_BYTES,
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=STREAMS_LIMIT_S,
            forwarded_allow_ips=settings.trusted_proxies,
            ssl_certfile=settings.tls_cert_file,
            ssl_keyfile=settings.tls_key_file,
        )
        with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has ended in order
            uvicorn.Server(config).run(sockets=[listener])


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


def _announce(settings: Settings, url: str, token: str, announce: Callable[[str], None]) -> None:
    announce(f"Gavel listens on {url}  (API: {url}/docs)")
    if KEPT_OUTPUT & os.environ.keys():
        announce(f"dashboard: {url}/login, with the token in {settings.state_dir.resolve() / TOKEN_FILE}")
    else:
        announce(f"dashboard: {url}/login#token={token}")
    announce(f"state, logs and the operator's token are in {settings.state_dir.resolve()}; Ctrl-C stops")
